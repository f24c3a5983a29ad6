//! The medians of the runs in the order of the runs.

use maud::{Markup, html};
use probe::measure::Measure;
use probe::run::Arm;
use prove::{Proof, Recording};
use stats::quantile;

use super::legend::{legend, mark};
use crate::format::{self, counted};
use crate::page::axis::{LogAxis, percent};
use crate::page::chart::chart;

const HEIGHT: u32 = 96;
/// The margin above and below, so that no mark is cut off.
const MARGIN: f64 = 10.0;

/// The share of the width that the labels on the left take up.
const LABELS: f64 = 0.17;

struct Point {
    arm: Arm,
    block: u32,
    median: f64,
}

pub(crate) fn render(outcome: &Proof, recording: &Recording) -> Markup {
    html! {
        section {
            h2 { "The runs in order of time" }
            p.muted {
                "One mark is the median of one run, in cycles on a logarithmic axis, from the first run on the left to the last. "
                "Blocks of off, on, on, off are divided by lines. A slope is a drift; marks of one arm that lie far apart "
                "make the interval wide."
            }
            (legend(outcome))
            div.multiples {
                @for row in &outcome.measures {
                    (multiple(recording, row.measure))
                }
            }
        }
    }
}

fn points(recording: &Recording, measure: Measure) -> Vec<Point> {
    let mut runs: Vec<_> = recording.timed_runs(measure).collect();
    runs.sort_by_key(|timed| timed.position);
    runs.iter()
        .filter_map(|timed| {
            let mut sorted = timed.run.cycles.clone();
            sorted.sort_unstable();
            Some(Point { arm: timed.run.arm, block: timed.block, median: quantile(&sorted, 0.5)? })
        })
        .collect()
}

fn multiple(recording: &Recording, measure: Measure) -> Markup {
    let points = points(recording, measure);
    let low = points.iter().map(|point| point.median).fold(f64::INFINITY, f64::min);
    let high = points.iter().map(|point| point.median).fold(0.0, f64::max);
    let axis = LogAxis::new(low, high);
    let x = |place: f64| LABELS + (1.0 - LABELS) * place / points.len() as f64;
    let y = |value: f64| {
        let room = f64::from(HEIGHT) - 2.0 * MARGIN;
        f64::from(HEIGHT) - MARGIN - axis.share(value) * room
    };
    let ticks = axis.ticks();
    let every = ticks.len().div_ceil(4).max(1);
    let description = format!(
        "{}, medians from {} to {} cycles",
        counted(points.len() as u64, "run"),
        format::cycles(low),
        format::cycles(high)
    );
    let content = html! {
        @for tick in ticks.into_iter().step_by(every) {
            @let at = format!("{:.1}", y(tick));
            line.grid x1="0" x2="100%" y1=(at) y2=(at) {}
            text.tick x="0" y=(format!("{:.1}", y(tick) - 2.0)) { (format::cycles(tick)) }
        }
        @for (index, point) in points.iter().enumerate() {
            @if index > 0 && points[index - 1].block != point.block {
                @let edge = percent(x(index as f64));
                line.block x1=(edge) x2=(edge) y1="0" y2=(HEIGHT) {}
            }
            (mark(point.arm, &percent(x(index as f64 + 0.5)), y(point.median)))
        }
    };
    html! {
        figure {
            figcaption { strong { (measure.title()) } }
            (chart(HEIGHT, &format!("Runs of {} in order of time", measure.title()), &description, &content))
        }
    }
}
