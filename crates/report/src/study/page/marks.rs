//! The marks of arms, and words of the page.

use maud::{Markup, html};
use study::analysis::Findings;

/// Shapes in addition to colours: not everyone can distinguish the colours.
const SHAPES: [&str; 4] = [
    "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z",
    "M-3.5 -3.5h7v7h-7z",
    "M0 -4.5l4.5 8h-9z",
    "M0 -5l5 5l-5 5l-5 -5z",
];
/// The number of colours; further arms repeat them.
const COLOURS: usize = 7;

/// The class of an arm's colour.
pub(super) fn class(arm: usize) -> String {
    format!("arm{}", arm % COLOURS)
}

/// An arm's mark, centred at its position.
pub(super) fn mark(arm: usize) -> Markup {
    html! { path.mark d=(SHAPES[arm % SHAPES.len()]) {} }
}

/// The legend of the arms' marks.
pub(super) fn legend(findings: &Findings) -> Markup {
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
pub(super) fn guests(findings: &Findings) -> &'static str {
    if findings.study.are_vms { "VMs" } else { "guests" }
}

/// Keeps a figure and its unit on one line.
pub(super) fn unbroken(text: &str) -> String {
    text.replace(" %", "\u{a0}%")
}
