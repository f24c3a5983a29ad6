//! Findings in a definition on the terminal.

use doctor::{Section, Tally};

use super::tree::{FindingsView, findings, findings_summary};
use crate::terminal::labels::itemized;
use crate::terminal::{NARROWEST, wrapped};
use crate::text::printable;

/// The findings in a definition, the parts that were not understood, and the tally.
#[must_use]
pub fn terminal(sections: &[Section], doubts: &[String], tally: Tally, view: FindingsView) -> String {
    let mut text = findings(sections, view);
    let width = view.width.max(NARROWEST);
    let mut part = |heading: &str, lines: String| {
        if !text.is_empty() {
            text.push('\n');
        }
        text += heading;
        text += &lines;
    };
    if !doubts.is_empty() {
        part("Not understood\n\n", itemized(doubts, width));
    }
    let sum = findings_summary(tally);
    let sentence = match doctor::not_judged(sections) {
        Some(why) => format!("Not judged: {}.", printable(why)),
        None if tally.to_fix() => format!("{sum}."),
        None => format!("Nothing to fix: {sum}."),
    };
    part("", wrapped(&sentence, width, "", ""));
    text
}
