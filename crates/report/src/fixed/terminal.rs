//! A definition fixed by rules: the diff, the rules of its changes, and the remaining findings.

use std::fmt::Write as _;

use doctor::Tally;
use doctor::fix::{Fixed, Left};
use domain::Form;

use crate::findings::change::change_in_words;
use crate::findings::tree::findings_summary;
use crate::fixed::lines::{in_lines, readable, unified_diff};
use crate::terminal::labels::listed;
use crate::terminal::{NARROWEST, wrapped};
use crate::text::printable;

/// A fixed definition and display settings.
#[derive(Debug, Clone, Copy)]
pub struct FixedView<'a> {
    /// The name of the definition.
    pub name: &'a str,
    /// Its form.
    pub form: Form,
    /// The old text.
    pub old: &'a [u8],
    /// The fixed definition.
    pub fixed: &'a Fixed,
    /// A sentence on the state of the new text, or the next step for the reader. Further lines are commands.
    pub ending: &'a str,
    /// Columns of the terminal. The diff's lines are not wrapped.
    pub width: usize,
    /// Escape sequences colour the diff.
    pub colour: bool,
}

/// The diff, the rules with their changes, the remaining findings with reasons, and the ending.
#[must_use]
pub fn terminal(view: FixedView<'_>) -> String {
    let width = view.width.max(NARROWEST);
    let FixedView { form, fixed, .. } = view;
    let mut text = diff(&view);
    let name_width = fixed.plan.rules.iter().map(|rule| rule.rule.len()).max().unwrap_or(0);
    if !fixed.plan.rules.is_empty() {
        text += "\nChanges\n\n";
        for rule in &fixed.plan.rules {
            for (number, change) in rule.changes.iter().enumerate() {
                let name = if number == 0 { rule.rule.as_str() } else { "" };
                let first = format!("  {name:<name_width$}  ");
                let rest = " ".repeat(first.len());
                text += &wrapped(&change_in_words(change, form), width, &first, &rest);
            }
        }
    }
    if view.old.contains(&0) && !fixed.plan.changes.is_empty() {
        let _ = write!(text, "\nCommand line\n\n{}", readable(&in_lines(&fixed.bytes)));
    }
    text += &left(fixed, width);
    text += &listed("Refused", fixed.refused.iter().map(|refusal| &refusal.reason), width);
    text += &listed("Notes", &fixed.notes, width);
    if !text.is_empty() {
        text.push('\n');
    }
    let (sentence, commands) = view.ending.split_once('\n').unwrap_or((view.ending, ""));
    text += &wrapped(sentence, width, "", "");
    // Not wrapped: paths in them may have spaces.
    text += &readable(commands);
    if let Some(why) = doctor::not_judged(&fixed.before) {
        text += &wrapped(&format!("Not judged: {}.", printable(why)), width, "", "");
        return text;
    }
    let tally = Tally::of(fixed.after.iter().flat_map(|section| &section.findings));
    let remain = format!("What remains: {}.", findings_summary(tally));
    text += &wrapped(&remain, width, "", "");
    text
}

fn left(fixed: &Fixed, width: usize) -> String {
    let sentences = [
        (Left::GuestFollows, "needs a change in the guest first; apply with --rule NAME or --all"),
        (Left::PreventsMigration, "prevents migration; apply with --rule NAME or --all"),
        (Left::Contradicts, "another rule's change contradicts"),
        (Left::Advice, "for people; see `exitless vm lint`"),
    ]
    .into_iter()
    .filter_map(|(why, words)| {
        let left = fixed.plan.left.iter().filter(|left| left.why == why);
        let rules: Vec<_> = left.map(|left| left.rule.as_str()).collect();
        (!rules.is_empty()).then(|| format!("{}: {words}", rules.join(", ")))
    });
    listed("Left", sentences, width)
}

fn diff(view: &FixedView<'_>) -> String {
    let diff = unified_diff(view.name, &in_lines(view.old), &in_lines(&view.fixed.bytes));
    let diff = readable(&diff);
    if !view.colour {
        return diff;
    }
    let coloured = |line: &str| {
        let code = match line.as_bytes().first() {
            Some(b'+') => "32",
            Some(b'-') => "31",
            Some(b'@') => "36",
            _ => return format!("{line}\n"),
        };
        format!("\u{1b}[{code}m{line}\u{1b}[0m\n")
    };
    diff.lines().map(coloured).collect()
}

#[cfg(test)]
#[path = "terminal_tests.rs"]
mod tests;
