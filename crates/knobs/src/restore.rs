//! Undoes the changes that earlier processes left.

use crate::undo::{self, Outcome};
use crate::{Actions, Before, Change, Damage, Entry, Error, Journal};
use serde::Serialize;
use std::path::Path;

/// The options of a restoration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Restore {
    /// Also undo changes whose object others changed since.
    pub force: bool,
    /// Only report what would be undone.
    pub dry_run: bool,
    /// Run the scripts of plans that undo changes. They may do anything, so show them to the user first.
    pub run_scripts: bool,
    /// Only undo the temporary changes of the CPUs of threads, control groups and interrupts.
    pub only_placement: bool,
}

impl Restore {
    fn concerns(self, entry: &Entry) -> bool {
        !self.only_placement || entry.temporary && entry.change.places()
    }
}

/// A change with its outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RestoredChange {
    /// The change.
    #[serde(flatten)]
    pub entry: Entry,
    /// Its result.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// The results of undoing changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Restored {
    /// Each change with its outcome, the newest first.
    pub changes: Vec<RestoredChange>,
    /// Lines of the journal that could not be read.
    pub damage: Vec<Damage>,
}

impl Restored {
    /// Tests whether a change is left, or may be left: a damaged line may have recorded one.
    #[must_use]
    pub fn incomplete(&self) -> bool {
        self.changes.iter().any(|one| one.outcome.left()) || self.damage.iter().any(|damage| !damage.cut)
    }
}

/// Undoes all changes of the host below `root` whose processes have ended, the newest first.
///
/// A change that cannot be undone does not stop the others.
///
/// # Errors
/// The journal cannot be read, or its lock cannot be taken.
pub fn restore(root: &Path, actions: &mut impl Actions, how: Restore) -> Result<Restored, Error> {
    let recorded = Journal::read(root)?;
    // Do not wait for the lock if all processes still run.
    let may_undo = |entry: &Entry| entry.open() && how.concerns(entry) && !entry.owner.alive(root);
    if how.dry_run || !recorded.entries.iter().any(may_undo) {
        let mut changes = Vec::new();
        for entry in open(recorded.entries) {
            let outcome = settled_by_itself(root, &entry, how)
                .or_else(|| waits_for_later(&changes, &[], &entry))
                .map_or_else(
                    || {
                        let then = before_later(&changes, &entry);
                        undo::examine_after(root, actions, &entry, then).map(|found| forced(found, how))
                    },
                    Ok,
                )
                .unwrap_or_else(|error| Outcome::Failed { why: error.told() });
            changes.push(RestoredChange { entry, outcome });
        }
        changes.retain(|one| how.concerns(&one.entry));
        return Ok(Restored { changes, damage: recorded.damage });
    }
    let journal = Journal::open(root)?;
    let _lock = journal.lock()?;
    // Another process may have undone some while this one waited for the lock.
    let recorded = Journal::read(root)?;
    let mut changes = Vec::new();
    let mut undone = Vec::new();
    let mut left = false;
    for entry in open(recorded.entries) {
        let outcome = settled_by_itself(root, &entry, how)
            .or_else(|| waits_for_later(&changes, &undone, &entry))
            .map_or_else(|| undo::undo_recorded(&journal, actions, &entry, how.force), Ok)
            .unwrap_or_else(|error| Outcome::Failed { why: error.told() });
        let settled = outcome.settled().filter(|_| undo::forget(&entry, left));
        let outcome = match settled.map_or(Ok(()), |word| journal.undone(&entry, word)) {
            Ok(()) => outcome,
            // Continue with the others. The next restore finds this change already undone.
            Err(error) => {
                undone.push(entry.id);
                Outcome::Failed { why: error.told() }
            }
        };
        left |= outcome.left();
        changes.push(RestoredChange { entry, outcome });
    }
    changes.retain(|one| how.concerns(&one.entry));
    Ok(Restored { changes, damage: recorded.damage })
}

fn open(entries: Vec<Entry>) -> impl Iterator<Item = Entry> {
    entries.into_iter().rev().filter(Entry::open)
}

/// The outcome that is known without examining the host: the process still runs, a reboot has undone the change, or undoing
/// needs a script that was not allowed. A change that is not to be undone is held, and so are those that it rests on.
fn settled_by_itself(root: &Path, entry: &Entry, how: Restore) -> Option<Outcome> {
    if !how.concerns(entry) || entry.owner.alive(root) {
        return Some(Outcome::Held { pid: entry.owner.pid });
    }
    if let Some(script) = entry.change.undone_by_script().filter(|_| !how.run_scripts) {
        return Some(Outcome::Script { script: script.to_owned() });
    }
    let rebooted = entry.change.volatile() && entry.owner.rebooted(root);
    rebooted.then(|| Outcome::Already { why: "the host was booted since".to_owned() })
}

/// The outcome of a change that must wait because a later one that depends on it stays: undoing it first would pull the state
/// from under a process that still runs, or under the changes of others. Commands need not wait: they only generate files once
/// more. `undone` has the changes that are undone, but about which the journal took no line.
fn waits_for_later(later: &[RestoredChange], undone: &[u64], entry: &Entry) -> Option<Outcome> {
    if matches!(entry.change, Change::Command { .. }) {
        return None;
    }
    let stays = |later: &&RestoredChange| later.outcome.left() && later.entry.holds_up(entry, undone);
    let later = later.iter().find(stays)?;
    let error = Error::RestedOn { id: entry.id, later: later.entry.id };
    Some(Outcome::Failed { why: error.told() })
}

/// The state of the change's object when the later ones (the newest first) are undone, if that changes it.
fn before_later<'a>(later: &'a [RestoredChange], entry: &Entry) -> Option<&'a Before> {
    let next =
        |later: &&RestoredChange| later.outcome == Outcome::WouldUndo && later.entry.has_object_of(entry);
    later.iter().rev().find(next).map(|next| &next.entry.before)
}

fn forced(found: Outcome, how: Restore) -> Outcome {
    if how.force && matches!(found, Outcome::ChangedSince { .. }) { Outcome::WouldUndo } else { found }
}
