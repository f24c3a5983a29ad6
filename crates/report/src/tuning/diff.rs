//! The kept changes of a tuning as diffs.

use similar::TextDiff;
use study::tuning::TunedDefinition;

use crate::fixed::lines::{in_lines, unified_diff};

/// The kept changes as a unified diff of the guest's definition, one option per line; empty if no change was kept.
pub fn guest(before: &[String], after: &[String]) -> String {
    let text = |lines: &[String]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
    let (before, after) = (text(before), text(after));
    if before == after {
        return String::new();
    }
    TextDiff::from_lines(&before, &after)
        .unified_diff()
        .context_radius(3)
        .header("guest (before)", "guest (tuned)")
        .to_string()
}

/// The kept changes as a unified diff of the definition of the VM that the guests represent; empty without changes.
pub fn definition(tuned: &TunedDefinition) -> String {
    unified_diff(&tuned.name, &in_lines(tuned.before.as_bytes()), &in_lines(tuned.carried.text.as_bytes()))
}
