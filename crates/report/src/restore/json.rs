//! Changes of the journal, for programs.

use knobs::{Damage, Entry, Outcome, Recorded, Restored};
use serde::Serialize;

use crate::json::FORMAT;

/// Changes of the journal.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JournalDocument<'a> {
    format: u32,
    version: &'static str,
    changes: Vec<ChangeDocument<'a>>,
    damage: &'a [Damage],
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct ChangeDocument<'a> {
    #[serde(flatten)]
    entry: &'a Entry,
    #[serde(flatten)]
    outcome: Option<&'a Outcome>,
}

/// The output of `restore --json`.
#[must_use]
pub fn restored(restored: &Restored) -> JournalDocument<'_> {
    let changes =
        restored.changes.iter().map(|(entry, outcome)| ChangeDocument { entry, outcome: Some(outcome) });
    document(changes.collect(), &restored.damage)
}

/// The output of `restore --list --json`.
#[must_use]
pub fn kept(recorded: &Recorded) -> JournalDocument<'_> {
    let changes = recorded.entries.iter().map(|entry| ChangeDocument { entry, outcome: None });
    document(changes.collect(), &recorded.damage)
}

fn document<'a>(changes: Vec<ChangeDocument<'a>>, damage: &'a [Damage]) -> JournalDocument<'a> {
    JournalDocument { format: FORMAT, version: env!("CARGO_PKG_VERSION"), changes, damage }
}
