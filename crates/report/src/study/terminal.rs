//! Studies on the terminal: tables first, the answer last, next to the prompt.

use study::analysis::{Findings, Judgement};

use super::{figures, tables};
use crate::format::counted;
use crate::terminal::labels::{itemized, listed};
use crate::terminal::{NARROWEST, emphasised, wrapped};

/// The findings: main figures, gains, CPU, exits by reason, doubts, and the verdict last.
///
/// No line is wider than `width` columns if `width` is at least 80. Without `colour` it has no escape
/// sequences.
pub fn terminal(findings: &Findings, width: usize, colour: bool) -> String {
    let width = width.max(NARROWEST);
    let mut text = wrapped(&format!("{}: {}", findings.study.title, findings.study.question), width, "", "");
    for (title, table) in tables::all(findings, width, colour) {
        text.push('\n');
        text.push_str(&wrapped(&title, width, "", ""));
        text.push('\n');
        text.push_str(&table);
    }
    let failed = findings.method.failed.iter().map(|run| {
        let again = if run.was_repeated { " (repeated with success)" } else { "" };
        format!("{}: {}{again}", run.folder, run.why)
    });
    text += &listed("Attempts that failed", failed, width);
    text += &listed("Warnings", findings.warnings.iter().map(ToString::to_string), width);
    text.push('\n');
    if findings.multiplicity.made > 0 {
        text.push_str(&wrapped(&chance(findings), width, "", ""));
        text.push('\n');
    }
    text += &itemized(&findings.verdict.sentences, width);
    if !findings.verdict.sentences.is_empty() {
        text.push('\n');
    }
    text.push_str(&emphasised(
        &wrapped(&findings.verdict.sentence, width, "", ""),
        tone(findings.verdict.judgement),
        colour,
    ));
    text
}

/// The comparisons, and the comparisons of equal arms.
fn chance(findings: &Findings) -> String {
    let mut text = figures::chance(&findings.multiplicity);
    if let Some(alarms) = findings.false_alarms {
        text += &format!(
            " Of {} of arms that are alike {} ({:.1} %) had one and {} ({:.1} %) passed all gates.",
            counted(alarms.comparisons as u64, "comparison"),
            alarms.below,
            alarms.below_percent,
            alarms.found,
            alarms.found_percent
        );
    }
    text
}

/// The escape code of a verdict.
const fn tone(judgement: Judgement) -> &'static str {
    match judgement {
        Judgement::Better => "1;32",
        Judgement::Worse => "1;31",
        _ => "1",
    }
}
