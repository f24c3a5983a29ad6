//! The exits of a recording over time, as stacked layers with their colours.

use std::collections::BTreeMap;

use exits::{Column, ExitReason, Grouping, Slice, Span, TimelineFigure, TimelineRows, What};
use maud::{Markup, html};
use traces::Recordings;

use super::scale::Scale;
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
    gaps: Vec<(f64, f64)>,
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
        let columns = rows.columns(columns, &recordings.spans());
        let scale = Scale::new(recordings, figure, recordings.profile.vcpus().len().max(1) as f64);
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
                values: scale.values(&columns, &slices),
                figure: scale.shown(scale.mean(total)),
            })
            .collect();
        let edges = edges(&columns, observed);
        (!layers.is_empty()).then(|| Self {
            layers,
            gaps: gaps(&columns, &edges),
            edges,
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
        let (layers, gaps, edges) = (&self.layers, &self.gaps, &self.edges);
        let ticks = elapsed(self.length_ns);
        let chart = Stacked { title, layers, ticks: &ticks, gaps, edges, highest, height, shown };
        html! {
            figure.course { (chart.render()) (legend(layers)) }
        }
    }

    /// The duration of a column: "22 ms".
    pub(crate) fn step(&self) -> String {
        whole_time((self.length_ns / (self.edges.len().saturating_sub(1)).max(1) as f64).round() as u64)
    }
}

/// The starts of columns as shares of the time from the first to the last, followed by 1.
fn edges(columns: &[Column], observed: Span) -> Vec<f64> {
    let share = |column: &Column| {
        column.span.last_ns.saturating_sub(observed.first_ns) as f64 / observed.length_ns() as f64
    };
    std::iter::once(0.0).chain(columns.iter().map(share)).collect()
}

/// The columns between recordings, as shares of the time; neighbours are one gap.
fn gaps(columns: &[Column], edges: &[f64]) -> Vec<(f64, f64)> {
    let mut gaps: Vec<(f64, f64)> = Vec::new();
    for (_, ends) in columns.iter().zip(edges.windows(2)).filter(|(column, _)| column.observed_ns == 0) {
        match gaps.last_mut() {
            Some(gap) if gap.1 == ends[0] => gap.1 = ends[1],
            _ => gaps.push((ends[0], ends[1])),
        }
    }
    gaps
}

#[cfg(test)]
mod tests {
    use super::*;
    use exits::{Profile, SeriesKey, Vcpu};
    use traces::{Format, Options, Origin, Reading};

    const SECOND: u64 = 1_000_000_000;

    /// A reading of these seconds, with an exit each 10 ms of the last 10 s.
    fn reading(first: u64, last: u64) -> Reading {
        let mut profile = Profile::new();
        profile.span = Some(Span { first_ns: first * SECOND, last_ns: last * SECOND });
        let (reason, vm) = (ExitReason::vmx(32), Some(1));
        let vcpu = Vcpu { vm, number: Some(0), thread: Some(2) };
        profile.vcpu(vcpu).reasons.entry(reason).or_default().count = 1000;
        let series = profile.timeline.series(SeriesKey { vm, reason });
        for number in (last - 10) * 100..last * 100 {
            profile.timeline.add(series, number * SECOND / 100, Slice { count: 1, handling_ns: 0 });
        }
        Reading { profile, origin: Origin::new(Format::PerfData), damage: None, warnings: Vec::new() }
    }

    fn course(readings: Vec<Reading>) -> Course {
        let mut recordings = Recordings::new(Options::default());
        readings.into_iter().for_each(|reading| recordings.add("one".to_owned(), reading));
        Course::new(&recordings, TimelineFigure::Exits, &Colours::new([&recordings]), 60).unwrap()
    }

    #[test]
    fn exits_are_drawn_at_their_time() {
        let course = course(vec![reading(0, 60)]);
        assert_eq!((course.step().as_str(), course.gaps.len()), ("1.00 s", 0));
        let drawn = course.layers[0].values.iter().zip(&course.edges).filter(|(value, _)| **value > 0.0);
        let first = drawn.map(|(_, &edge)| edge).fold(1.0, f64::min);
        assert!((first - 5.0 / 6.0).abs() < 0.02, "{first}");
        assert_eq!(course.edges.last(), Some(&1.0));
    }

    #[test]
    fn between_recordings_is_a_gap_which_lowers_no_rate() {
        let course = course(vec![reading(0, 10), reading(3600, 3610)]);
        assert_eq!(course.layers[0].figure, "100/s");
        assert!((course.highest() - 100.0).abs() < 10.0, "{}", course.highest());
        assert_eq!(course.gaps.len(), 1, "{:?}", course.gaps);
        assert!(course.gaps[0].0 < 0.05 && course.gaps[0].1 > 0.95, "{:?}", course.gaps);
    }
}
