//! The figures as tables: one with each chart, and all at the end.

use maud::{Markup, html};
use study::analysis::{Comparison, Figure, Findings, Point};

use super::marks::guests;
use crate::format::{NONE, counted};
use crate::study::figures::{self, Measure};
use crate::text::minus;

/// The table of one chart, in a collapsed section.
pub(super) fn behind(findings: &Findings, figure: &Figure, measure: &Measure) -> Markup {
    html! {
        details {
            summary { "Table" }
            (table(findings, figure, measure))
        }
    }
}

/// A table for every figure, in a collapsed section for each workload.
pub(super) fn all(findings: &Findings) -> Markup {
    let mut workloads: Vec<&str> = Vec::new();
    for figure in &findings.figures {
        if !workloads.contains(&figure.workload.as_str()) {
            workloads.push(&figure.workload);
        }
    }
    html! {
        section {
            h2 { "All figures" }
            p.muted {
                (counted(findings.figures.len() as u64, "figure")) "; each with its values, the change from the baseline, its 95 % interval, the p "
                "value, and what may be said of it."
            }
            @for workload in workloads {
                details {
                    summary { (workload) }
                    @for figure in findings.figures.iter().filter(|figure| figure.workload == workload) {
                        h3 { (figure.name()) }
                        (table(findings, figure, &Measure::of_figure(figure)))
                    }
                }
            }
        }
    }
}

fn table(findings: &Findings, figure: &Figure, measure: &Measure) -> Markup {
    let compared = (1..findings.arms.len()).filter(|arm| has(figure, *arm)).collect::<Vec<_>>();
    let caption = format!(
        "{} in {}",
        figure.name(),
        if measure.name().is_empty() { "plain numbers" } else { measure.name() }
    );
    let several = compared.len() > 1;
    html! {
        div.wide tabindex="0" role="region" aria-label=(caption) {
            table {
                caption.hidden { (caption) }
                thead {
                    tr {
                        th scope="col" { (guests(findings)) }
                        @for arm in &findings.arms { th scope="col" { (arm.name) @if !measure.name().is_empty() { ", " (measure.name()) } } }
                        @for arm in &compared {
                            th scope="col" { "change" @if several { " " (findings.arms[*arm].name) } }
                            th scope="col" { "95 % interval" }
                            th scope="col" { "p" }
                            th scope="col" { "repeats" }
                            th.finding scope="col" { "finding" }
                        }
                    }
                }
                tbody {
                    @for point in &figure.points { (row(findings, figure, point, measure, &compared)) }
                }
                @if !figure.overall.is_empty() {
                    tfoot {
                        tr {
                            th scope="row" { "all" }
                            @for _ in &findings.arms { td {} }
                            @for arm in &compared { (compared_cells(figure, figure.overall.iter().find(|one| one.arm == *arm))) }
                        }
                    }
                }
            }
        }
    }
}

fn has(figure: &Figure, arm: usize) -> bool {
    figure.points.iter().flat_map(|point| &point.comparisons).any(|one| one.arm == arm)
}

fn row(findings: &Findings, figure: &Figure, point: &Point, measure: &Measure, compared: &[usize]) -> Markup {
    html! {
        tr {
            th scope="row" { (point.guests) }
            @for arm in 0..findings.arms.len() {
                td { (minus(&figures::level(point, arm, measure))) }
            }
            @for arm in compared { (compared_cells(figure, point.comparisons.iter().find(|one| one.arm == *arm))) }
        }
    }
}

fn compared_cells(figure: &Figure, one: Option<&Comparison>) -> Markup {
    let change = one.and_then(|one| one.change);
    let tone = one.map_or("", |one| tone(figure, one));
    html! {
        td class=[Some(tone).filter(|tone| !tone.is_empty())] { (minus(&figures::change(change, figure.unit))) }
        td { (minus(&figures::interval(change, figure.unit))) }
        td { (figures::p_value(change)) }
        td { (change.map_or_else(|| NONE.to_owned(), |change| change.repeats.to_string())) }
        td.finding {
            @if let Some(one) = one {
                (figures::finding(one.finding, figure.better))
                @if one.is_aa { " (arms are alike)" }
            }
        }
    }
}

/// The class of a comparison's colour.
pub(super) fn tone(figure: &Figure, one: &Comparison) -> &'static str {
    match one.finding.is_good(figure.better) {
        Some(true) => "found good",
        Some(false) => "found bad",
        None if one.finding.is_found() => "found",
        None => "quiet",
    }
}
