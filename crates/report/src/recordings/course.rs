//! The exits of a recording over time, as stacked layers with their colours.

use std::collections::BTreeMap;

use exits::{Column, ExitReason, Grouping, Slice, Span, TimelineFigure, TimelineRows, What};
use maud::{Markup, html};
use traces::Recordings;

use crate::format::{per_second, share, whole_time};
use crate::page::stacked::{Layer, MOST_LAYERS, Stacked, elapsed, legend};

/// The colours of reasons, which are the same on the whole page. The most frequent reasons have colours of their own.
#[derive(Debug, Default)]
pub(crate) struct Colours(BTreeMap<ExitReason, usize>);

impl Colours {
    pub(crate) fn new<'a>(sides: impl IntoIterator<Item = &'a Recordings>) -> Self {
        let mut counts: BTreeMap<ExitReason, u64> = BTreeMap::new();
        for recordings in sides {
            for (reason, exits) in recordings.profile.reasons() {
                let sum = counts.entry(reason).or_default();
                *sum = sum.saturating_add(exits.count);
            }
        }
        let mut ranked: Vec<_> = counts.into_iter().collect();
        ranked.sort_by_key(|&(reason, count)| (std::cmp::Reverse(count), reason));
        Self(ranked.into_iter().take(MOST_LAYERS).enumerate().map(|(at, (reason, _))| (reason, at)).collect())
    }
}

/// The data of a chart.
pub(crate) struct Course {
    layers: Vec<Layer>,
    edges: Vec<f64>,
    length_ns: f64,
    figure: TimelineFigure,
}

impl Course {
    /// The course by reason. Handling times are shares of the time of all vCPUs, without idle exits. `None` without exits
    /// or without a duration.
    pub(crate) fn new(
        recordings: &Recordings,
        figure: TimelineFigure,
        colours: &Colours,
        columns: usize,
    ) -> Option<Self> {
        let observed = recordings.observed().filter(|span| span.length_ns() > 0)?;
        let grouping = Grouping::by_reason();
        let rows = TimelineRows::new(&recordings.profile.timeline, &grouping, figure);
        let columns = rows.columns(columns, observed);
        let scale = Scale::new(recordings, figure, observed);
        let mut layers: BTreeMap<usize, (String, Vec<Slice>, u64)> = BTreeMap::new();
        for row in rows.rows() {
            let What::Reason(reason) = row.key.what else { continue };
            if figure == TimelineFigure::Time && reason.is_sleep() {
                continue;
            }
            let at = colours.0.get(&reason).copied().unwrap_or(MOST_LAYERS);
            let name = if at == MOST_LAYERS { "other".to_owned() } else { reason.to_string() };
            let empty = || (name, vec![Slice::default(); rows.len()], 0);
            let (_, sums, total) = layers.entry(at).or_insert_with(empty);
            sums.iter_mut().zip(&row.slices).for_each(|(sum, &slice)| sum.merge(slice));
            *total = total.saturating_add(figure.of(row.total));
        }
        let layers: Vec<Layer> = layers
            .into_iter()
            .map(|(at, (name, slices, total))| Layer {
                name,
                class: if at == MOST_LAYERS { "rest".to_owned() } else { format!("s{at}") },
                values: values(&columns, &slices, figure, &scale),
                figure: scale.shown(scale.mean(total)),
            })
            .collect();
        (!layers.is_empty()).then(|| Self {
            layers,
            edges: edges(&columns),
            length_ns: observed.length_ns() as f64,
            figure,
        })
    }

    /// The highest sum of a column.
    pub(crate) fn highest(&self) -> f64 {
        let sum = |column: usize| {
            self.layers.iter().map(|layer| layer.values.get(column).copied().unwrap_or(0.0)).sum::<f64>()
        };
        (0..self.edges.len().saturating_sub(1)).map(sum).fold(0.0, f64::max)
    }

    /// The chart with its legend, on a scale up to `highest`.
    pub(crate) fn render(&self, title: &str, height: u32, highest: f64) -> Markup {
        let shown: &dyn Fn(f64) -> String = match self.figure {
            TimelineFigure::Exits => &per_second,
            TimelineFigure::Time => &share,
        };
        let (layers, edges) = (&self.layers, &self.edges);
        let ticks = elapsed(self.length_ns);
        let chart = Stacked { title, layers, ticks: &ticks, gaps: &[], edges, highest, height, shown };
        html! {
            figure.course { (chart.render()) (legend(layers)) }
        }
    }

    /// The duration of a column: "22 ms".
    pub(crate) fn step(&self) -> String {
        whole_time((self.length_ns / (self.edges.len().saturating_sub(1)).max(1) as f64).round() as u64)
    }
}

/// The factors that convert the sum of a column to its value.
struct Scale {
    figure: TimelineFigure,
    vcpus: f64,
    observed_ns: f64,
}

impl Scale {
    fn new(recordings: &Recordings, figure: TimelineFigure, observed: Span) -> Self {
        let vcpus = recordings.profile.vcpus().len().max(1) as f64;
        let observed_ns = recordings.observed_ns().min(observed.length_ns()).max(1) as f64;
        Self { figure, vcpus, observed_ns }
    }

    fn value(&self, sum: u64, ns: f64) -> f64 {
        match self.figure {
            TimelineFigure::Exits => sum as f64 / ns * 1e9,
            TimelineFigure::Time => sum as f64 / ns / self.vcpus * 100.0,
        }
    }

    fn mean(&self, total: u64) -> f64 {
        self.value(total, self.observed_ns)
    }

    fn shown(&self, value: f64) -> String {
        match self.figure {
            TimelineFigure::Exits => per_second(value),
            TimelineFigure::Time => share(value),
        }
    }
}

fn values(columns: &[Column], slices: &[Slice], figure: TimelineFigure, scale: &Scale) -> Vec<f64> {
    columns.iter().map(|column| scale.value(column.sum(slices, figure), column.observed_ns as f64)).collect()
}

/// The starts of columns, as shares of their total time.
fn edges(columns: &[Column]) -> Vec<f64> {
    let all: f64 = columns.iter().map(|column| column.observed_ns as f64).sum();
    let mut edges = vec![0.0];
    let mut until = 0.0;
    for column in columns {
        until += column.observed_ns as f64;
        edges.push(until / all.max(1.0));
    }
    edges
}
