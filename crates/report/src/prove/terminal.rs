//! The outcome of a proof on the terminal: tables first, the verdict last, next to the prompt.

use prove::{Judgement, Proof};

use super::{evidence, tables, words};
use crate::format;
use crate::terminal::labels::listed;
use crate::terminal::{NARROWEST, emphasised, wrapped};

/// The outcome of a proof: costs, exits by reason, doubts, and the verdict last, next to the prompt.
///
/// No line is wider than `width` columns if `width` is at least 80. Without `colour` it has no escape
/// sequences.
pub fn terminal(outcome: &Proof, width: usize, colour: bool) -> String {
    let width = width.max(NARROWEST);
    let mut text = String::new();
    let title = match words::only_arm(&outcome.arms) {
        None => "Median cost of one operation in TSC cycles, interrupt virtualization off and on".to_owned(),
        Some(arm) => format!("Cost of one operation, interrupt virtualization {}", words::arm(arm)),
    };
    text.push_str(&wrapped(&title, width, "", ""));
    text.push('\n');
    text.push_str(&tables::costs(outcome, width, colour));
    text.push('\n');
    text.push_str(&over_costs(outcome, width, colour));
    text.push_str(&exits(outcome, width, colour));
    text.push('\n');
    text.push_str(&wrapped(&evidence::evidence(outcome), width, "", ""));
    text += &listed("Warnings", outcome.warnings.iter().map(ToString::to_string), width);
    text.push('\n');
    let verdict = wrapped(&outcome.verdict, width, "", "");
    text.push_str(&emphasised(&verdict, tone(outcome.judgement), colour));
    text
}

/// The changes at higher costs of a switch between guest and host; empty if only one cost was measured.
fn over_costs(outcome: &Proof, width: usize, colour: bool) -> String {
    let Some(table) = tables::over_costs(outcome, width, colour) else { return String::new() };
    let title = "Change of the median by what a switch between guest and host costs, in instructions for each VM exit with \
                 the entry after it";
    format!("{}\n{table}\n", wrapped(title, width, "", ""))
}

fn exits(outcome: &Proof, width: usize, colour: bool) -> String {
    let Some(table) = tables::exits(outcome, width, colour) else {
        return "No exits were counted.\n".to_owned();
    };
    let totals = &outcome.exits;
    let operations = match words::only_arm(&outcome.arms) {
        Some(arm) => format::count(*totals.operations.of(arm)),
        None if totals.operations.off == totals.operations.on => {
            format!("{} an arm", format::count(totals.operations.off))
        }
        None => format!(
            "{} off, {} on",
            format::count(totals.operations.off),
            format::count(totals.operations.on)
        ),
    };
    let lost = totals.lost.off + totals.lost.on;
    let title =
        format!("VM exits over all operations ({operations}; {} lost)", format::counted(lost, "event"));
    format!("{}\n{table}", wrapped(&title, width, "", ""))
}

/// The escape code of a verdict.
const fn tone(judgement: Judgement) -> &'static str {
    match judgement {
        Judgement::WorthIt => "1;32",
        Judgement::Worse | Judgement::Contradicted => "1;31",
        _ => "1",
    }
}
