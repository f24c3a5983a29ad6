//! The page of a study: the question, the answer, charts with their tables, and the method.

mod bars;
mod charts;
mod gains;
mod head;
mod lines;
mod method;
mod requested;
mod tables;

use maud::{Markup, html};
use study::analysis::Findings;

use super::document::styled;

const STYLE: &str = include_str!("study.css");

/// Shapes in addition to colours, because not everyone can distinguish the colours.
const SHAPES: [&str; 4] = [
    "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z",
    "M-3.5 -3.5h7v7h-7z",
    "M0 -4.5l4.5 8h-9z",
    "M0 -5l5 5l-5 5l-5 -5z",
];
/// The number of colours; further arms repeat them.
const COLOURS: usize = 7;

/// The findings as one page that opens offline, follows the reader's dark mode, fits a phone and prints.
/// `runs` is the prefix of links to runs: empty, or the path from the page to the result's folder with a
/// slash at its end; `None` if there is no such path, and no links.
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

/// An arm's mark, centred at its position.
fn mark(arm: usize) -> Markup {
    html! { path.mark d=(SHAPES[arm % SHAPES.len()]) {} }
}

/// The legend of the arms' marks.
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

/// "VMs" or "guests".
fn guests(findings: &Findings) -> &'static str {
    if findings.study.are_vms { "VMs" } else { "guests" }
}

/// Keeps a figure and its unit on one line.
fn unbroken(text: &str) -> String {
    text.replace(" %", "\u{a0}%")
}
