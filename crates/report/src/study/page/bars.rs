//! VM exits by reason in each arm, as bars and as a table.

use maud::{Markup, html};
use study::analysis::{Comparison, Figure, Findings, Point, Source, counted_reason, exits_of_which_work};

use super::marks::{class, legend};
use super::tables;
use crate::format::{NONE, counted};
use crate::page::axis::{linear_ticks, percent};
use crate::page::chart::chart;
use crate::study::figures::{self, Measure};
use crate::text::minus;

/// The end of the longest bar, as a share of the width, so that its figure fits behind it.
const LONGEST: f64 = 0.76;
const MOST_DRAWN: usize = 10;
const BAR: u32 = 12;
const LABEL: u32 = 18;
const GAP: u32 = 12;

/// A reason at the largest number of guests.
type Row<'a> = (&'a str, &'a Figure, &'a Point);

/// A chart and a table for each workload, at its largest number of guests.
pub(super) fn section(findings: &Findings) -> Markup {
    let title = "VM exits a second by reason";
    section_of(findings, title, "Of all guests together.", &counted_reason, &Figure::is_exit_total)
}

/// Exits per unit of work, if workloads report their work.
pub(super) fn section_of_work(findings: &Findings) -> Markup {
    let title = "VM exits for each unit of work by reason";
    section_of(
        findings,
        title,
        "Of all guests together, over the whole run.",
        &reason_of_work,
        &Figure::is_exit_total_of_work,
    )
}

fn reason_of_work(metric: &str) -> Option<&str> {
    exits_of_which_work(metric).map(|(_, reason)| reason).filter(|reason| *reason != "total")
}

/// A function that returns the reason of a metric; `None` if the metric does not belong to the section.
type Reason<'r> = dyn Fn(&str) -> Option<&str> + 'r;

fn section_of(
    findings: &Findings,
    title: &str,
    note: &str,
    reason: &Reason<'_>,
    is_total: &dyn Fn(&Figure) -> bool,
) -> Markup {
    let workloads: Vec<(&str, Vec<Row<'_>>)> = findings
        .study
        .workloads
        .iter()
        .map(|workload| (workload.name.as_str(), rows(findings, &workload.name, reason)))
        .filter(|(_, rows)| !rows.is_empty())
        .collect();
    html! {
        @if !workloads.is_empty() {
            section {
                h2 { (title) }
                p.muted { (note) " Whiskers are 95 % intervals of the mean." }
                (legend(findings))
                div.charts {
                    @for (workload, rows) in &workloads { (figure(findings, workload, rows, is_total)) }
                }
            }
        }
    }
}

fn rows<'a>(findings: &'a Findings, workload: &str, reason: &Reason<'_>) -> Vec<Row<'a>> {
    // Only figures of the host: a workload of the micro VM counts its own exits, per operation.
    let of =
        findings.figures.iter().filter(|figure| figure.workload == workload && figure.source == Source::Host);
    let mut rows: Vec<Row<'a>> =
        of.filter_map(|figure| Some((reason(&figure.metric)?, figure, figure.points.last()?))).collect();
    rows.sort_by(|a, b| largest(b.2).total_cmp(&largest(a.2)));
    rows
}

fn largest(point: &Point) -> f64 {
    point.arms.iter().flatten().map(|values| values.level).fold(0.0, f64::max)
}

fn figure(
    findings: &Findings,
    workload: &str,
    rows: &[Row<'_>],
    is_total: &dyn Fn(&Figure) -> bool,
) -> Markup {
    let Some(&(_, first, point)) = rows.first() else { return html! {} };
    let most = rows.iter().map(|row| largest(row.2)).fold(0.0, f64::max);
    let most = if most > 0.0 { most } else { 1.0 };
    let measure = Measure::of_metric(&first.metric, first.unit, most);
    let guests = figures::with_guests(findings, point.guests);
    let each =
        exits_of_which_work(&first.metric).map_or_else(String::new, |(work, _)| format!(" {}", work.each()));
    let title = format!("VM exits{each} by reason during {workload}{guests}");
    let across = |value: f64| (value / most).clamp(0.0, 1.2) * LONGEST;
    let arms = findings.arms.len() as u32;
    let height = LABEL + arms * BAR + GAP;
    let drawn = &rows[..rows.len().min(MOST_DRAWN)];
    let bottom = drawn.len() as u32 * height;
    let size = measure.size();
    let ticks: Vec<f64> = linear_ticks(0.0, most / size).into_iter().map(|tick| tick * size).collect();
    let step = ticks.get(1).copied().unwrap_or(most);
    let content = html! {
        @for tick in &ticks {
            @let x = percent(across(*tick));
            line.grid x1=(x) x2=(x) y1="0" y2=(bottom) {}
            text.tick x=(x) y=(bottom + 14) text-anchor=(if *tick == 0.0 { "start" } else { "middle" }) { (measure.tick(*tick, step)) }
        }
        @for (index, (reason, _, point)) in (0..).zip(drawn) {
            @let top = index * height;
            text.name x="0" y=(top + 13) { (reason) }
            @for (place, arm) in (0..).zip(0..findings.arms.len()) {
                @if let (Some(values), Some(level)) = (point.arms.get(arm).and_then(Option::as_ref), point.level(arm)) {
                    @let y = top + LABEL + place * BAR;
                    g class=(class(arm)) { rect.arm x="0" y=(y) width=(percent(across(level))) height=(BAR - 2) {} }
                    @let end = values.level_interval.map_or(level, |interval| interval.high.max(level));
                    @if let Some(interval) = values.level_interval {
                        @let middle = y + BAR / 2 - 1;
                        line.under x1=(percent(across(interval.low))) x2=(percent(across(interval.high))) y1=(middle) y2=(middle) {}
                        line.whisker x1=(percent(across(interval.low))) x2=(percent(across(interval.high))) y1=(middle) y2=(middle) {}
                    }
                    text.value.halo x=(percent(across(end))) dx="5" y=(y + 9) { (measure.number(level)) }
                }
            }
        }
    };
    html! {
        figure {
            figcaption {
                strong { (title) }
                span.muted {
                    (measure.name())
                    @if rows.len() > drawn.len() { "; " (counted((rows.len() - drawn.len()) as u64, "reason")) " with fewer in the table" }
                }
            }
            (chart(bottom + 22, &title, &description(findings, drawn, &measure), &content))
            details open { summary { "Table" } (table(findings, workload, rows, &measure, (&title, is_total))) }
        }
    }
}

fn description(findings: &Findings, rows: &[Row<'_>], measure: &Measure) -> String {
    let rows = rows.iter().map(|(reason, _, point)| {
        let arms =
            findings.arms.iter().enumerate().filter_map(|(at, arm)| {
                Some(format!("{} {}", arm.full_name, measure.shown(point.level(at)?)))
            });
        format!("{reason}: {}", arms.collect::<Vec<_>>().join(", "))
    });
    rows.collect::<Vec<_>>().join("; ")
}

/// Reasons with both arms' counts and the change, and the total.
fn table(
    findings: &Findings,
    workload: &str,
    rows: &[Row<'_>],
    measure: &Measure,
    (caption, is_total): (&str, &dyn Fn(&Figure) -> bool),
) -> Markup {
    let total = findings.figures.iter().find(|figure| figure.workload == workload && is_total(figure));
    let total = total.and_then(|figure| Some((figure, figure.points.last()?)));
    html! {
        div.wide tabindex="0" role="region" aria-label=(caption) {
            table {
                caption.hidden { (caption) }
                thead {
                    tr {
                        th scope="col" { "reason" }
                        @for arm in &findings.arms { th scope="col" { (arm.name) } }
                        @for arm in findings.arms.iter().skip(1) { th scope="col" { "change" @if findings.arms.len() > 2 { " " (arm.name) } } }
                    }
                }
                tbody { @for (reason, figure, point) in rows { (line(findings, reason, figure, point, measure)) } }
                @if let Some((figure, point)) = total { tfoot { (line(findings, "all reasons", figure, point, measure)) } }
            }
        }
    }
}

fn line(findings: &Findings, name: &str, figure: &Figure, point: &Point, measure: &Measure) -> Markup {
    let of = |arm: usize| -> Option<&Comparison> { point.comparisons.iter().find(|one| one.arm == arm) };
    html! {
        tr {
            th scope="row" { (name) }
            @for arm in 0..findings.arms.len() {
                td { (figures::level(point, arm, &measure.of_row(point))) }
            }
            @for arm in 1..findings.arms.len() {
                @match of(arm) {
                    Some(one) => { td class=(tables::tone(figure, one)) { (minus(&figures::percent(one))) } }
                    None => { td { (NONE) } }
                }
            }
        }
    }
}
