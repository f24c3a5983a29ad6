//! The page of a study: the question, the answer, charts with their tables, and the method.

mod bars;
mod charts;
mod gains;
mod head;
mod lines;
mod marks;
mod method;
mod requested;
mod tables;

use maud::html;
use study::analysis::Findings;

use crate::page::document::{ARMS, styled};

/// The findings as one page that opens offline, follows the reader's dark mode, fits a phone and prints. `runs` is the
/// prefix of links to runs: empty, or the relative path from the page to the result's folder with a slash at its end.
/// Without it there are no links.
pub fn page(findings: &Findings, runs: Option<&str>) -> String {
    let sections = html! {
        (head::render(findings))
        (gains::render(findings))
        (charts::render(findings))
        (tables::all(findings))
        (method::render(findings, runs))
    };
    styled(&findings.study.title, &[ARMS], &sections)
}
