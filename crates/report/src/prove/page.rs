//! The outcome of a proof as a page.

mod costs;
mod distributions;
mod exits;
mod host;
mod legend;
mod method;
mod order;
mod summary;

use maud::html;
use prove::{Proof, Recording};

use super::words;
use crate::page::document::framed;

/// A content security policy that blocks all loading, even if a text gets into the page as markup.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// The outcome of a proof as one page that opens offline, follows the reader's dark mode, fits a phone and prints.
///
/// `recording` is the source of `outcome`: the distributions and the order of the runs are drawn from it. The
/// page links to `result.json`, `recording.json` and `samples.parquet` in its folder.
pub fn page(outcome: &Proof, recording: &Recording) -> String {
    let body = html! {
        main {
            (summary::render(outcome))
            (costs::render(outcome))
            (costs::over_costs(outcome))
            (exits::render(outcome))
            (distributions::render(outcome, recording))
            (order::render(outcome, recording))
            (method::render(outcome))
            (host::render(outcome))
        }
        footer {
            p {
                "Made by exitless " (outcome.version) ". Beside this page: "
                a href="result.json" { "result.json" } " (every figure), "
                a href="recording.json" { "recording.json" } " (every run) and "
                a href="samples.parquet" { "samples.parquet" } " (every sample)."
            }
        }
    };
    let title = format!("Interrupt virtualization: {}", words::judgement(outcome.judgement));
    framed(&title, POLICY, &[], &body)
}
