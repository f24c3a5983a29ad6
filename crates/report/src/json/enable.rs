//! Plans, their results, and restored changes, for programs.

use doctor::enable::{Applied, Plan, StepOutcome};
use knobs::{Damage, Entry, Outcome, Recorded, Restored};
use serde::Serialize;

use super::FORMAT;

/// A plan and its result.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PlanDocument<'a> {
    format: u32,
    version: &'static str,
    #[serde(flatten)]
    plan: &'a Plan,
    /// The reason why steps that are ready are not made; `null` if there is none.
    refused: Option<&'a str>,
    /// `null` if there was nothing to do.
    applied: Option<AppliedDocument<'a>>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct AppliedDocument<'a> {
    steps: Vec<StepDocument<'a>>,
    reads: Option<&'a str>,
    notes: &'a [String],
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct StepDocument<'a> {
    name: &'a str,
    #[serde(flatten)]
    outcome: &'a StepOutcome,
}

/// The output of `enable --json` and `disable --json`.
#[must_use]
pub fn plan<'a>(plan: &'a Plan, refused: Option<&'a str>, applied: Option<&'a Applied>) -> PlanDocument<'a> {
    let applied = applied.map(|applied| AppliedDocument {
        steps: applied.steps.iter().map(|(name, outcome)| StepDocument { name, outcome }).collect(),
        reads: applied.reads.as_deref(),
        notes: &applied.notes,
    });
    PlanDocument { format: FORMAT, version: env!("CARGO_PKG_VERSION"), plan, refused, applied }
}

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
