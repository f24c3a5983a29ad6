//! The changes that `exitless restore` reverted, and the changes in the journal.

use std::time::{Duration, UNIX_EPOCH};

use knobs::{Change, Damage, Entry, Outcome, Progress, Recorded, Restored, RestoredChange};

use crate::terminal::{NARROWEST, wrapped};

/// The result for each change, the newest first.
#[must_use]
pub fn restored(restored: &Restored, width: usize) -> String {
    let width = width.max(NARROWEST);
    let mut text = String::new();
    if restored.changes.is_empty() {
        text.push_str("Nothing to restore.\n");
    }
    for RestoredChange { entry, outcome } in &restored.changes {
        let what = what(&entry.change);
        let said = match outcome {
            Outcome::Undone => format!("Undone: {what}"),
            Outcome::WouldUndo => format!("Would be undone: {what}"),
            Outcome::Already { why } => format!("Nothing to undo: {what}; {why}"),
            Outcome::ChangedSince { what: now } => {
                format!("Left, because others changed it since (--force undoes it): {what}; {now}")
            }
            Outcome::Held { pid } => format!("Left to process {pid}, which made it and still runs: {what}"),
            Outcome::Script { script } => {
                format!("Left, because a script undoes it (--run-scripts runs it): {what}; `{script}`")
            }
            Outcome::Failed { why } => format!("Failed: {what}; {why}"),
        };
        text += &wrapped(&said, width, "", "  ");
    }
    text + &damage(&restored.damage, width)
}

/// All changes in the journal, the oldest first.
#[must_use]
pub fn kept(recorded: &Recorded, width: usize) -> String {
    let width = width.max(NARROWEST);
    let mut text = String::new();
    if recorded.entries.is_empty() {
        text.push_str("The journal is empty.\n");
    }
    for entry in &recorded.entries {
        let state = match &entry.progress {
            Progress::Intended => "begun",
            Progress::Done { .. } => "made",
            Progress::Undoing => "half undone",
            Progress::Undone { how } if how == "failed" => "failed",
            Progress::Undone { how } if how == "left" => "left to others",
            Progress::Undone { .. } => "undone",
        };
        let said = format!("{} {} ({state}): {}", entry.id, time(entry), what(&entry.change));
        text += &wrapped(&said, width, "", "  ");
        text += &wrapped(
            &format!("by {}, process {}", entry.command.join(" "), entry.owner.pid),
            width,
            "  ",
            "    ",
        );
    }
    text + &damage(&recorded.damage, width)
}

fn damage(damage: &[Damage], width: usize) -> String {
    let lines = damage.iter().map(|one| wrapped(&format!("Damaged: {one}"), width, "", "  "));
    lines.collect()
}

fn time(entry: &Entry) -> String {
    let at = UNIX_EPOCH.checked_add(Duration::from_secs(entry.time)).unwrap_or(UNIX_EPOCH);
    humantime::format_rfc3339_seconds(at).to_string()
}

fn what(change: &Change) -> String {
    match change {
        Change::File { path, .. } => format!("{path} written"),
        Change::Value { path, value } => format!("{value} written to {path}"),
        Change::Load { module, parameters } => {
            let given: Vec<_> = parameters.iter().map(|(name, value)| format!(" {name}={value}")).collect();
            format!("{module} loaded{}{}", if given.is_empty() { "" } else { " with" }, given.concat())
        }
        Change::Command { run: Some(words), .. } => format!("`{}` run", words.join(" ")),
        Change::Command { run: None, undo: Some(words) } => {
            format!("`{}` to be run after all is as it was", words.join(" "))
        }
        Change::Command { run: None, undo: None } => "nothing run".to_owned(),
        Change::Affinity { tid, cpus, .. } => format!("thread {tid} bound to CPUs {cpus}"),
    }
}

#[cfg(test)]
#[path = "terminal_tests.rs"]
mod tests;
