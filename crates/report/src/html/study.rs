//! The page of a study: the question, the answer, charts with the tables behind them, and how it was run.

mod bars;
mod charts;
mod gains;
mod head;
mod lines;
mod method;
mod requested;
mod tables;

use experiment::study::analysis::Findings;
use maud::{Markup, html};

use super::document::styled;

const STYLE: &str = include_str!("study.css");

/// Shapes beside colours: colour alone tells not everyone.
const SHAPES: [&str; 4] = [
    "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z",
    "M-3.5 -3.5h7v7h-7z",
    "M0 -4.5l4.5 8h-9z",
    "M0 -5l5 5l-5 5l-5 -5z",
];
/// Arms beyond these have the colours of the first again.
const COLOURS: usize = 7;

/// The findings as one page that opens offline, follows the reader's dark mode, fits a phone and prints. `runs` says what
/// links to runs begin with: nothing, or the way from the page to the result's folder with a slash at its end; `None`
/// where there is no such way, and nothing is linked.
pub fn study(findings: &Findings, runs: Option<&str>) -> String {
    let sections = html! {
        (head::render(findings))
        (gains::render(findings))
        (charts::render(findings))
        (tables::all(findings))
        (method::render(findings, runs))
    };
    styled(&findings.study.title, &[STYLE], &sections)
}

/// The class of an arm's colour.
fn class(arm: usize) -> String {
    format!("arm{}", arm % COLOURS)
}

/// An arm's mark about the point where it is put.
fn mark(arm: usize) -> Markup {
    html! { path.mark d=(SHAPES[arm % SHAPES.len()]) {} }
}

/// Which mark stands for which arm.
fn legend(findings: &Findings) -> Markup {
    html! {
        p.legend {
            @for (at, arm) in findings.arms.iter().enumerate() {
                span {
                    svg width="12" height="12" aria-hidden="true" {
                        g class=(class(at)) transform="translate(6 6)" { (mark(at)) }
                    }
                    (arm.full_name) @if at == 0 { " (baseline)" }
                }
            }
        }
    }
}

/// "VMs", or what else the guests are.
fn guests(findings: &Findings) -> &'static str {
    if findings.study.are_vms { "VMs" } else { "guests" }
}

/// A line must not end between a figure and its unit.
fn unbroken(text: &str) -> String {
    text.replace(" %", "\u{a0}%")
}
