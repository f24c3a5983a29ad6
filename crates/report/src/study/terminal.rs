//! Studies on the terminal: tables first, the answer last, next to the prompt.

use study::analysis::{Findings, Judgement};

use super::figures::below_by_chance;
use super::tables;
use crate::format::counted;
use crate::terminal::{NARROWEST, wrapped};

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
    if !findings.method.failed.is_empty() {
        text.push_str("\nAttempts that failed\n\n");
        for run in &findings.method.failed {
            let again = if run.was_repeated { " (repeated with success)" } else { "" };
            let line = format!("{}: {}{again}", run.folder, run.why);
            text.push_str(&wrapped(&line, width, "  - ", "    "));
        }
    }
    if !findings.warnings.is_empty() {
        text.push_str("\nWarnings\n\n");
        for warning in &findings.warnings {
            text.push_str(&wrapped(&warning.to_string(), width, "  - ", "    "));
        }
    }
    text.push('\n');
    if findings.multiplicity.made > 0 {
        text.push_str(&wrapped(&chance(findings), width, "", ""));
        text.push('\n');
    }
    for sentence in &findings.verdict.sentences {
        text.push_str(&wrapped(sentence, width, "  - ", "    "));
    }
    if !findings.verdict.sentences.is_empty() {
        text.push('\n');
    }
    text.push_str(&emphasised(
        &wrapped(&findings.verdict.sentence, width, "", ""),
        findings.verdict.judgement,
        colour,
    ));
    text
}

/// The number of comparisons, and the number expected to look like differences by chance.
fn chance(findings: &Findings) -> String {
    let made = &findings.multiplicity;
    let mut text = format!(
        "{}, {} passed all gates, {} of them also by Holm's method.",
        below_by_chance(made),
        made.found,
        made.found_by_holm
    );
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

fn emphasised(text: &str, judgement: Judgement, colour: bool) -> String {
    if !colour {
        return text.to_owned();
    }
    let code = match judgement {
        Judgement::Better => "1;32",
        Judgement::Worse => "1;31",
        _ => "1",
    };
    format!("\u{1b}[{code}m{}\u{1b}[0m\n", text.trim_end())
}
