//! The cost of each operation, with its interval drawn next to the figures.

use prove::Difference;
use prove::{ArmPair, Cost, Effect, MeasureOutcome, Proof, charged_switch, emulated_cycles};
use std::collections::BTreeSet;

use maud::{Markup, html};
use probe::measure::Measure;
use probe::run::Arm;

use super::legend::arms;
use crate::format::{self, NONE};
use crate::page::span::Span;
use crate::prove::words;
use crate::text;

pub(crate) fn render(outcome: &Proof) -> Markup {
    let both = words::only_arm(&outcome.arms).is_none();
    html! {
        section {
            h2 { "Cost of one operation" }
            p.muted {
                "In cycles of the TSC"
                @if let Some(emulator) = &outcome.emulated {
                    ", which are " (emulated_cycles(emulator)) " (" (emulator) ") and not time on hardware"
                } @else if let Some(khz) = outcome.tsc_khz {
                    ", of which one microsecond has " (format::cycles(f64::from(khz) / 1000.0))
                }
                @if let Some(charged) = charged_switch(outcome.switch_cycles) { "; they include " (charged) }
                ". The first row is what measuring itself costs; it is part of every other row."
            }
            div.wide {
                @if both { (compared(outcome)) } @else { (alone(outcome)) }
            }
        }
    }
}

/// The change of each measure at each cost of a switch between guest and host, as lines with a table below.
pub(crate) fn over_costs(outcome: &Proof) -> Markup {
    let rows: Vec<(Measure, Vec<(u32, f64)>)> = outcome
        .measures
        .iter()
        .map(|row| {
            let points = outcome.over_costs(row.measure).into_iter();
            let change = |(cycles, point): (u32, &MeasureOutcome)| Some((cycles, point.difference?.percent));
            (row.measure, points.filter_map(change).collect())
        })
        .filter(|(_, points): &(Measure, Vec<(u32, f64)>)| points.len() > 1)
        .collect();
    let costs: BTreeSet<u32> =
        rows.iter().flat_map(|(_, points)| points.iter().map(|(cycles, _)| *cycles)).collect();
    html! {
        @if !rows.is_empty() {
            section {
                h2 { "And on another CPU?" }
                p.muted {
                    "The change of the median, by what a switch between guest and host costs: instructions for each VM exit \
                     with the entry after it. The emulator charges them; a CPU takes some hundreds to some thousands of \
                     cycles."
                }
                div.wide {
                    table {
                        thead { tr {
                            th scope="col" { "Operation" }
                            @for cycles in &costs { th scope="col" { (format::count(u64::from(*cycles))) } }
                        } }
                        tbody {
                            @for (measure, points) in &rows { tr {
                                th scope="row" { (measure.title()) }
                                @for cycles in &costs {
                                    td { (points.iter().find(|(at, _)| at == cycles).map_or_else(
                                        || NONE.to_owned(), |(_, change)| text::minus(&format::percent(*change)))) }
                                }
                            } }
                        }
                    }
                }
                (curve(&rows, &costs))
            }
        }
    }
}

/// Lines over the costs, with names at their right ends.
fn curve(rows: &[(Measure, Vec<(u32, f64)>)], costs: &BTreeSet<u32>) -> Markup {
    const HEIGHT: f64 = 220.0;
    const WIDTH: f64 = 700.0;
    const NAMES: f64 = 190.0;
    const LINE: f64 = 14.0;
    let most = f64::from(costs.last().copied().unwrap_or(1).max(1));
    let x = |cycles: u32| 40.0 + f64::from(cycles) / most * (WIDTH - NAMES - 40.0);
    // The top is the largest increase, or no change; the bottom is -100 %.
    let top = rows.iter().flat_map(|(_, points)| points).map(|&(_, change)| change).fold(0.0, f64::max);
    let y = |change: f64| 10.0 + (top - change) / (top + 100.0) * (HEIGHT - 35.0);
    let label = |change: f64| match change {
        change if change > 0.0 => format!("+{change:.0} %"),
        change => text::minus(&format!("{change:.0} %")),
    };
    // No labels that would overlap the one of zero.
    let ticks = [top, 0.0, -50.0, -100.0];
    let ticks: Vec<f64> = ticks
        .into_iter()
        .skip(usize::from(top == 0.0))
        .filter(|&change| change == 0.0 || (y(change) - y(0.0)).abs() >= LINE)
        .collect();
    let path = |points: &[(u32, f64)]| {
        let at = points.iter().map(|&(cycles, change)| format!("{:.1},{:.1}", x(cycles), y(change)));
        at.collect::<Vec<_>>().join(" ")
    };
    // Move names down that would overlap.
    let mut ends: Vec<(f64, Measure)> =
        rows.iter().filter_map(|(measure, points)| points.last().map(|last| (y(last.1), *measure))).collect();
    ends.sort_by(|one, other| one.0.total_cmp(&other.0));
    let mut free = 0.0;
    for end in &mut ends {
        end.0 = f64::max(end.0, free);
        free = end.0 + LINE;
    }
    html! {
        svg.curve viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) role="img" aria-label="Change of the median over the cost of a switch" {
            @for &change in &ticks {
                line.axis x1="40" x2=(WIDTH - NAMES) y1=(y(change)) y2=(y(change)) {}
                text x="36" y=(y(change) + 4.0) text-anchor="end" { (label(change)) }
            }
            @for cycles in costs {
                text x=(x(*cycles)) y=(HEIGHT - 5.0) text-anchor="middle" { (format::count(u64::from(*cycles))) }
            }
            @for (_, points) in rows {
                polyline points=(path(points)) fill="none" stroke="currentColor" stroke-width="1.5" {}
            }
            @for (at, measure) in &ends {
                text x=(WIDTH - NAMES + 6.0) y=(at + 4.0) { (measure.title()) }
            }
        }
    }
}

fn compared(outcome: &Proof) -> Markup {
    let differences = outcome.measures.iter().filter_map(|row| row.difference);
    let span = Span::new(differences.map(|difference| (Some(difference.percent), difference.interval)));
    html! {
        table {
            thead {
                tr {
                    th rowspan="2" scope="col" { "Operation" }
                    th colspan="2" scope="colgroup" { "Median, cycles" }
                    th colspan="3" scope="colgroup" { "Change of the median, %" }
                    th colspan="2" scope="colgroup" { "p99, cycles" }
                    th colspan="2" scope="colgroup" { "Exits an operation" }
                    th rowspan="2" scope="col" { abbr title="Chance of such a difference if the arms did not differ" { "p" } }
                    th rowspan="2" scope="col" { "Runs" }
                }
                tr {
                    th scope="col" { "off" } th scope="col" { "on" }
                    th scope="col" { "estimate" } th scope="col" { "95 % interval" }
                    th.plot scope="col" { (span.labels("")) }
                    th scope="col" { "off" } th scope="col" { "on" }
                    th scope="col" { "off" } th scope="col" { "on" }
                }
            }
            tbody {
                @for row in &outcome.measures {
                    tr {
                        th scope="row" { (row.measure.title()) }
                        (pair(&row.cost, |cost| cost.median))
                        td class=(tone(row.effect)) { (text::minus(&bare(row.difference))) }
                        td { (text::minus(&bare_interval(row.difference))) }
                        td.plot { (plot(&span, row)) }
                        (pair(&row.cost, |cost| cost.pooled.p99))
                        td { (exits(row, Arm::Off)) } td { (exits(row, Arm::On)) }
                        td { (p_value(row.p_value)) }
                        td { (runs(row)) }
                    }
                }
            }
        }
    }
}

fn alone(outcome: &Proof) -> Markup {
    html! {
        table {
            thead {
                tr {
                    th scope="col" { "Operation" }
                    @for name in ["Median", "p90", "p99", "p99.9", "Mean", "Exits an operation", "Runs"] {
                        th scope="col" { (name) }
                    }
                }
            }
            tbody {
                @for row in &outcome.measures {
                    tr {
                        th scope="row" { (row.measure.title()) }
                        @for arm in arms(outcome) {
                            @if let Some(cost) = row.cost.of(arm) {
                                @let pooled = cost.pooled;
                                @for value in [cost.median, pooled.p90, pooled.p99, pooled.p999, pooled.mean] {
                                    td { (format::cycles(value)) }
                                }
                            }
                            td { (exits(row, arm)) }
                            td { (runs(row)) }
                        }
                    }
                }
            }
        }
    }
}

fn plot(span: &Span, row: &MeasureOutcome) -> Markup {
    let label = format!("{}: change {}", row.measure.title(), words::interval_of(row.difference));
    span.plot(&label, row.difference.map(|one| one.percent), row.difference.and_then(|one| one.interval))
}

fn pair(cost: &ArmPair<Option<Cost>>, value: fn(&Cost) -> f64) -> Markup {
    html! {
        @for cost in [&cost.off, &cost.on] {
            td { (cost.as_ref().map_or_else(|| NONE.to_owned(), |cost| format::cycles(value(cost)))) }
        }
    }
}

fn tone(effect: Effect) -> &'static str {
    match effect {
        Effect::Fewer => "best good",
        Effect::More => "best bad",
        Effect::Negligible | Effect::Indistinguishable | Effect::Unknown => "best",
    }
}

/// The percentage without the unit, which is in the column's title.
fn bare(difference: Option<Difference>) -> String {
    difference.map_or_else(|| NONE.to_owned(), |difference| format::percent(difference.percent))
}

fn bare_interval(difference: Option<Difference>) -> String {
    words::interval_of(difference).trim_end_matches(" %").to_owned()
}

fn exits(row: &MeasureOutcome, arm: Arm) -> String {
    format::per_operation_of(row.exits.traced.of(arm).or(*row.exits.statistics.of(arm)))
}

fn p_value(value: Option<f64>) -> String {
    match value {
        Some(value) if value < 0.001 => "<0.001".to_owned(),
        Some(value) => format!("{value:.3}"),
        None => NONE.to_owned(),
    }
}

fn runs(row: &MeasureOutcome) -> String {
    let runs = [row.cost.off, row.cost.on].into_iter().flatten().map(|cost| cost.runs).min();
    runs.map_or_else(|| NONE.to_owned(), |runs| runs.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_curve_begins_at_the_largest_change() {
        let costs = BTreeSet::from([100, 1_000]);
        let drawn = |changes: [f64; 2]| {
            let points: Vec<(u32, f64)> = costs.iter().copied().zip(changes).collect();
            curve(&[(Measure::Eoi, points)], &costs).into_string()
        };
        let more = drawn([40.0, -60.0]);
        assert!(more.contains("points=\"87.0,10.0 510.0,142.1\"") && more.contains(">+40 %<"), "{more}");
        let fewer = drawn([0.0, -100.0]);
        assert!(fewer.contains("points=\"87.0,10.0 510.0,195.0\"") && !fewer.contains('+'), "{fewer}");
    }
}
