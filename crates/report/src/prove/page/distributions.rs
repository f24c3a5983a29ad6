//! The distributions of the samples of each operation.

use maud::{Markup, html};
use probe::run::Arm;
use prove::{Cost, MeasureOutcome, Proof, Recording};

use super::legend::{arms, legend};
use crate::format;
use crate::page::axis::{LogAxis, percent};
use crate::page::chart::{self, chart};
use crate::prove::words;

const LANE: u32 = 40;
const GAP: u32 = 6;
const MOST_BINS: usize = 90;
const FEWEST_BINS: usize = 12;
/// The minimum width of a bin in steps of the clock: narrower bins would be empty between the steps, which looks like a
/// comb.
const STEPS_PER_BIN: f64 = 4.0;

pub(crate) fn render(outcome: &Proof, recording: &Recording) -> Markup {
    html! {
        section {
            h2 { "How the samples are spread" }
            p.muted {
                "Each hill shows where the samples of one arm lie, on a logarithmic axis in cycles; its height is scaled "
                "to its own peak. The solid line is the median, the broken one the 99th percentile. The most expensive samples, "
                "beyond the 99th percentile of both arms, are not drawn; no figure leaves them out."
            }
            (legend(outcome))
            div.multiples {
                @for row in &outcome.measures {
                    (multiple(outcome, recording, row))
                }
            }
        }
    }
}

fn multiple(outcome: &Proof, recording: &Recording, row: &MeasureOutcome) -> Markup {
    let lanes: Vec<(Arm, Cost)> =
        arms(outcome).into_iter().filter_map(|arm| Some((arm, (*row.cost.of(arm))?))).collect();
    let low = lanes.iter().map(|(_, cost)| cost.pooled.minimum as f64).fold(f64::INFINITY, f64::min);
    let high = lanes.iter().map(|(_, cost)| cost.pooled.p99).fold(0.0, f64::max);
    let axis = LogAxis::new(low, high);
    let bottom = lanes.len() as u32 * (LANE + GAP);
    let words = lanes
        .iter()
        .map(|(arm, cost)| {
            format!(
                "{}: p50 {}, p99 {}",
                words::arm(*arm),
                format::cycles(cost.pooled.median),
                format::cycles(cost.pooled.p99)
            )
        })
        .collect::<Vec<_>>();
    let content = html! {
        @for (index, (arm, cost)) in (0..).zip(&lanes) {
            @let top = index * (LANE + GAP);
            (hill(&recording.cycles(row.measure, *arm), &axis, *arm, top))
            @let median = percent(axis.share(cost.pooled.median));
            @let p99 = percent(axis.share(cost.pooled.p99));
            line class={ "median " (words::arm(*arm)) } x1=(median) x2=(median) y1=(top) y2=(top + LANE) {}
            line class={ "p99 " (words::arm(*arm)) } x1=(p99) x2=(p99) y1=(top) y2=(top + LANE) {}
        }
        (axis.render(bottom, format::cycles))
    };
    html! {
        figure {
            figcaption {
                strong { (row.measure.title()) }
                @for ((arm, _), words) in lanes.iter().zip(&words) {
                    span.(words::arm(*arm)) { (words) }
                }
            }
            (chart(bottom + 20, &format!("Samples of {}", row.measure.title()), &words.join("; "), &content))
        }
    }
}

/// The outline of a histogram with bins of equal width on the axis.
fn hill(cycles: &[u64], axis: &LogAxis, arm: Arm, top: u32) -> Markup {
    let mut bins = vec![0.0_f64; bins(cycles, axis)];
    let count = bins.len();
    for &cycles in cycles {
        let share = axis.share(cycles as f64);
        // Leave out samples beyond the axis: they would pile up at its end.
        if share < 1.0 {
            bins[((share * count as f64) as usize).min(count - 1)] += 1.0;
        }
    }
    let peak = bins.iter().copied().fold(1.0, f64::max);
    chart::hill(words::arm(arm), top, LANE, &bins, peak)
}

/// The number of bins that the clock's resolution justifies over this axis.
fn bins(cycles: &[u64], axis: &LogAxis) -> usize {
    let mut distinct = cycles.to_vec();
    distinct.sort_unstable();
    let middle = distinct.get(distinct.len() / 2).copied().unwrap_or(1).max(1) as f64;
    distinct.dedup();
    let step = distinct.windows(2).map(|pair| pair[1] - pair[0]).min().unwrap_or(1) as f64;
    let bins = axis.span() / (STEPS_PER_BIN * step / middle).ln_1p();
    (bins as usize).clamp(FEWEST_BINS, MOST_BINS)
}
