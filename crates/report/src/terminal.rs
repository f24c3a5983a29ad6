//! Tables for the terminal.

mod advice;
mod columns;
mod comparison;
mod converted;
mod cost;
mod empty;
mod enable;
mod evidence;
mod examination;
mod findings;
mod fixed;
mod hot_advice;
mod hot_spots;
mod io_rates;
mod load;
mod monitor;
mod prediction;
mod probe;
mod profile;
mod recordings;
mod restore;
mod simulated;
mod study;
mod tables;
mod timeline;
mod trace;
mod verify;
mod vms;

pub use self::advice::{AdviceView, advice, idle};
pub use self::comparison::comparison;
pub use self::converted::converted;
pub use self::cost::cost;
pub use self::enable::{applied, plan};
pub use self::examination::examination;
pub use self::findings::{FindingsView, change_in_words, findings, findings_summary, linted};
pub use self::fixed::{FixedView, fixed};
pub use self::hot_advice::hot_advice;
#[cfg(test)]
pub(crate) use self::hot_spots::tests::hot_spots_sample;
pub use self::hot_spots::{HotSpotsView, hot_spots};
pub use self::io_rates::io_rates;
pub use self::load::load;
pub use self::monitor::{decided, monitor_state};
pub use self::prediction::prediction;
pub use self::probe::probe;
pub use self::profile::profile;
pub use self::recordings::doubts;
pub(crate) use self::recordings::{notes, window};
pub use self::restore::{kept, restored};
pub use self::simulated::simulated;
pub use self::study::{study, study_difference};
pub use self::timeline::{Screen, timeline};
pub(crate) use self::timeline::{curve, levels, to_ascii};
pub use self::trace::{TraceLines, trace_beginning, trace_summary};
pub use self::verify::verification;
pub use self::vms::vms;

use prove::{Judgement, Outcome};
use textwrap::Options;

use crate::format;
use crate::proved;
use crate::text;

/// The least width of tables, however narrow the terminal.
pub(crate) const NARROWEST: usize = 72;

/// The outcome of a proof: costs, exits by reason, doubts, and the verdict last, next to the prompt.
///
/// No line is wider than `width` columns if `width` is at least 80. Without `colour` it has no escape
/// sequences.
pub fn prove(outcome: &Outcome, width: usize, colour: bool) -> String {
    let width = width.max(NARROWEST);
    let mut text = String::new();
    let title = match proved::only_arm(&outcome.arms) {
        None => "Median cost of one operation in TSC cycles, interrupt virtualization off and on".to_owned(),
        Some(arm) => format!("Cost of one operation, interrupt virtualization {}", proved::arm(arm)),
    };
    text.push_str(&wrapped(&title, width, "", ""));
    text.push('\n');
    text.push_str(&tables::costs(outcome, width, colour));
    text.push('\n');
    text.push_str(&over_costs(outcome, width, colour));
    text.push_str(&exits(outcome, width, colour));
    text.push('\n');
    text.push_str(&wrapped(&evidence::evidence(outcome), width, "", ""));
    if !outcome.warnings.is_empty() {
        text.push_str("\nWarnings\n\n");
        for warning in &outcome.warnings {
            text.push_str(&wrapped(&warning.to_string(), width, "  - ", "    "));
        }
    }
    text.push('\n');
    let verdict = wrapped(&outcome.verdict, width, "", "");
    text.push_str(&emphasised(&verdict, outcome.judgement, colour));
    text
}

/// The changes at higher costs of a switch between guest and host; empty if only one cost was measured.
fn over_costs(outcome: &Outcome, width: usize, colour: bool) -> String {
    let Some(table) = tables::over_costs(outcome, width, colour) else { return String::new() };
    let title = "Change of the median by what a switch between guest and host costs, in cycles for each VM exit with the \
                 entry after it";
    format!("{}\n{table}\n", wrapped(title, width, "", ""))
}

fn exits(outcome: &Outcome, width: usize, colour: bool) -> String {
    let Some(table) = tables::exits(outcome, width, colour) else {
        return "No exits were counted.\n".to_owned();
    };
    let totals = &outcome.exits;
    let operations = match proved::only_arm(&outcome.arms) {
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
    let title = format!(
        "VM exits over all operations ({operations}; {} lost)",
        crate::format::counted(lost, "event")
    );
    format!("{}\n{table}", wrapped(&title, width, "", ""))
}

pub(crate) fn wrapped(text: &str, width: usize, first: &str, rest: &str) -> String {
    let options = Options::new(width).initial_indent(first).subsequent_indent(rest);
    let mut text = textwrap::fill(&text::printable(text), options);
    text.push('\n');
    text
}

fn emphasised(text: &str, judgement: Judgement, colour: bool) -> String {
    if !colour {
        return text.to_owned();
    }
    let code = match judgement {
        Judgement::WorthIt => "1;32",
        Judgement::Worse | Judgement::Contradicted => "1;31",
        _ => "1",
    };
    format!("\u{1b}[{code}m{}\u{1b}[0m\n", text.trim_end())
}
