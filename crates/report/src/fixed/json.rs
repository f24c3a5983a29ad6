//! The output of `exitless vm fix --json`.

use doctor::Tally;
use doctor::fix::{Fixed, LeftFinding, RuleChanges};
use domain::Refusal;
use serde::Serialize;

use crate::fixed::lines::{arguments, in_lines, unified_diff};
use crate::json::Document;

/// A fixed definition.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Fields<'a> {
    subject: &'a str,
    /// The reason why the definition was not judged, so that nothing is changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_judged: Option<&'a str>,
    /// True if the new text was written.
    applied: bool,
    rules: &'a [RuleChanges],
    left: &'a [LeftFinding],
    refused: &'a [Refusal],
    notes: &'a [String],
    /// A unified diff; empty if nothing changes.
    diff: String,
    /// The whole new text; for a process, a shell command.
    text: String,
    /// The arguments, for a process only.
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<Vec<String>>,
    before: Tally,
    after: Tally,
}

/// The document of a definition whose text was `old`.
#[must_use]
pub fn json<'a>(subject: &'a str, old: &[u8], fixed: &'a Fixed, applied: bool) -> impl Serialize {
    let (before, text) = (in_lines(old), in_lines(&fixed.bytes));
    let tally =
        |sections: &[doctor::Section]| Tally::of(sections.iter().flat_map(|section| &section.findings));
    Document::new(Fields {
        subject,
        not_judged: doctor::not_judged(&fixed.before),
        applied,
        rules: &fixed.plan.rules,
        left: &fixed.plan.left,
        refused: &fixed.refused,
        notes: &fixed.notes,
        diff: unified_diff(subject, &before, &text),
        text,
        arguments: old.contains(&0).then(|| arguments(&fixed.bytes)),
        before: tally(&fixed.before),
        after: tally(&fixed.after),
    })
}
