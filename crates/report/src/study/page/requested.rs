//! Requested and attained rates of workloads that differ in the requested rate.

use maud::{Markup, html};
use study::Unit;
use study::analysis::{ATTAINED, Figure, Findings, Source};

use super::marks::{class, legend, mark};
use crate::format::NONE;
use crate::page::axis::{anchor, linear_ticks, percent};
use crate::page::chart::chart;
use crate::study::figures::{self, Measure};

const TOP: f64 = 10.0;
const BOTTOM: f64 = 190.0;
/// The end of the axis of requested rates as a share of the width, so that marks at the end are not cut off.
const END: f64 = 0.95;
/// The relative difference up to which rates count as equal.
const ONE_RATE: f64 = 0.02;

/// Workloads of one kind at one number of guests: the requested rates, in order, and the rates that each arm
/// attained.
struct Asked<'a> {
    metric: &'a str,
    guests: u32,
    loads: Vec<Load<'a>>,
}

struct Load<'a> {
    workload: &'a str,
    rate: f64,
    /// The attained rates by arm.
    attained: Vec<Option<f64>>,
}

/// A chart for each kind of workload and number of guests with at least two rates.
pub(super) fn section(findings: &Findings) -> Markup {
    let charts = all(findings);
    html! {
        @if !charts.is_empty() {
            section {
                h2 { "Asked for, and attained" }
                p.muted {
                    "Loads of a fixed rate, of all guests together: what was answered, against what was due. The dashed line is all "
                    "of it. Marks are means."
                }
                (legend(findings))
                div.charts { @for asked in &charts { (figure(findings, asked)) } }
            }
        }
    }
}

fn all(findings: &Findings) -> Vec<Asked<'_>> {
    let mut charts: Vec<Asked<'_>> = Vec::new();
    let of_loads = findings.figures.iter().filter(|figure| figure.source == Source::Workload);
    for shares in of_loads.clone().filter(|figure| figure.metric == ATTAINED) {
        let mut rates = of_loads.clone();
        let rate = rates.find(|one| one.workload == shares.workload && one.unit == Unit::PerSecond);
        let Some(rate) = rate else { continue };
        for &guests in &findings.counts {
            let Some(load) = load(rate, shares, guests, findings.arms.len()) else { continue };
            match charts.iter_mut().find(|one| one.metric == rate.metric && one.guests == guests) {
                Some(asked) => asked.loads.push(load),
                None => charts.push(Asked { metric: &rate.metric, guests, loads: vec![load] }),
            }
        }
    }
    for asked in &mut charts {
        asked.loads.sort_by(|a, b| a.rate.total_cmp(&b.rate));
    }
    charts.retain(|asked| {
        let rates = || asked.loads.iter().map(|load| load.rate);
        rates().fold(0.0, f64::max) > rates().fold(f64::INFINITY, f64::min) * (1.0 + ONE_RATE)
    });
    charts
}

fn load<'a>(rate: &'a Figure, shares: &Figure, guests: u32, arms: usize) -> Option<Load<'a>> {
    let of = |figure: &Figure, arm: usize| {
        let point = figure.points.iter().find(|point| point.guests == guests)?;
        Some(point.arms.get(arm)?.as_ref()?.mean)
    };
    let attained: Vec<Option<f64>> = (0..arms).map(|arm| of(rate, arm)).collect();
    // Compute the requested rate from the attained rate and share: the plan's rate is of all guests together if the
    // workload is divided.
    let asked = (0..arms).filter_map(|arm| {
        let share = of(shares, arm)? / 100.0;
        (share > 0.0).then_some(of(rate, arm)? / share)
    });
    let most = asked.fold(0.0, f64::max);
    (most > 0.0 && most.is_finite()).then_some(Load { workload: &rate.workload, rate: most, attained })
}

fn figure(findings: &Findings, asked: &Asked<'_>) -> Markup {
    let attained = asked.loads.iter().flat_map(|load| load.attained.iter().flatten());
    let most = asked.loads.iter().map(|load| load.rate).fold(0.0, f64::max);
    let highest = attained.copied().fold(most, f64::max) * 1.05;
    let measure = Measure::of(Unit::PerSecond, most);
    let title = format!("{} attained{}", asked.metric, figures::with_guests(findings, asked.guests));
    let y = |value: f64| BOTTOM - value / highest * (BOTTOM - TOP);
    let x = |rate: f64| percent(rate / most * END);
    let ticks = linear_ticks(0.0, highest);
    let step = ticks.get(1).copied().unwrap_or(highest);
    let mut last = f64::NEG_INFINITY;
    let labelled: Vec<(f64, bool)> = asked
        .loads
        .iter()
        .map(|load| {
            let has_room = load.rate / most * END - last > 0.16;
            if has_room {
                last = load.rate / most * END;
            }
            (load.rate, has_room)
        })
        .collect();
    let content = html! {
        @for tick in &ticks { line.grid x1="0" x2="100%" y1=(px(y(*tick))) y2=(px(y(*tick))) {} }
        line.zero x1="0" x2=(x(most)) y1=(px(y(0.0))) y2=(px(y(most))) {}
        @for arm in 0..findings.arms.len() {
            @let points: Vec<(f64, f64)> = asked.loads.iter().filter_map(|load| Some((load.rate, load.attained[arm]?))).collect();
            g class=(class(arm)) {
                @for pair in points.windows(2) {
                    line.between x1=(x(pair[0].0)) y1=(px(y(pair[0].1))) x2=(x(pair[1].0)) y2=(px(y(pair[1].1))) {}
                }
                @for (rate, attained) in &points {
                    svg x=(x(*rate)) y=(px(y(*attained))) width="1" height="1" { (mark(arm)) }
                }
            }
        }
        line.axis x1="0" x2="100%" y1=(px(BOTTOM)) y2=(px(BOTTOM)) {}
        @for (rate, has_room) in &labelled {
            line.axis x1=(x(*rate)) x2=(x(*rate)) y1=(px(BOTTOM)) y2=(px(BOTTOM + 4.0)) {}
            @if *has_room {
                text.tick x=(x(*rate)) y=(px(BOTTOM + 17.0)) text-anchor=(anchor(rate / most * END)) { (measure.number(*rate)) }
            }
        }
    };
    html! {
        figure.lines {
            figcaption {
                strong { (title) }
                span.muted { (measure.name()) ", against what was asked for" }
            }
            div.scaled {
                svg width="100%" height=((BOTTOM + 26.0) as u32) aria-hidden="true" {
                    @for tick in &ticks {
                        text.tick x="100%" y=(px(y(*tick))) dy="4" text-anchor="end" { (measure.tick(*tick, step)) }
                    }
                }
                (chart((BOTTOM + 26.0) as u32, &title, &description(findings, asked, &measure), &content))
            }
            (table(findings, asked, &measure))
        }
    }
}

fn px(value: f64) -> String {
    format!("{value:.1}")
}

fn table(findings: &Findings, asked: &Asked<'_>, measure: &Measure) -> Markup {
    let arms: Vec<usize> = (0..findings.arms.len())
        .filter(|&arm| asked.loads.iter().any(|load| load.attained[arm].is_some()))
        .collect();
    html! {
        details {
            summary { "Table" }
            div.wide tabindex="0" role="region" aria-label={ (asked.metric) " attained" } {
                table {
                    thead {
                        tr {
                            th scope="col" { "load" }
                            th scope="col" { "asked for" }
                            @for &arm in &arms { th scope="col" { (findings.arms[arm].name) } }
                        }
                    }
                    tbody {
                        @for load in &asked.loads {
                            tr {
                                th scope="row" { (load.workload) }
                                td { (measure.number(load.rate)) }
                                @for &arm in &arms {
                                    td { (load.attained[arm].map_or_else(|| NONE.to_owned(), |rate| measure.number(rate))) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn description(findings: &Findings, asked: &Asked<'_>, measure: &Measure) -> String {
    let loads = asked.loads.iter().map(|load| {
        let arms = load.attained.iter().zip(&findings.arms);
        let arms =
            arms.filter_map(|(rate, arm)| Some(format!("{} {}", arm.full_name, measure.shown((*rate)?))));
        format!("of {}: {}", measure.shown(load.rate), arms.collect::<Vec<_>>().join(", "))
    });
    loads.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
#[path = "requested_tests.rs"]
mod tests;
