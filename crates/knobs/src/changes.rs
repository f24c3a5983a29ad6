//! Makes changes, and undoes the temporary ones when their process ends.

use crate::change::numbers;
use crate::journal::Lock;
use crate::present::{digest, present};
use crate::undo::{self, Outcome};
use crate::{
    Actions, After, Before, Change, Content, Entry, Error, Journal, Owner, Progress, file, module, value,
};
use rustix::thread::CpuSet;
use std::path::Path;
use std::sync::Arc;

/// The duration of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lasting {
    /// Until its [`Changes`] is dropped: at the end, on an error, on a panic.
    WhileHeld,
    /// Until [`restore()`](crate::restore()).
    UntilRestored,
}

/// The result of a requested change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Made {
    /// The change was made.
    Changed(Box<Entry>),
    /// The host was already in the requested state; nothing was written.
    AlreadySo,
}

/// Changes of one process. Those made [`Lasting::WhileHeld`] are undone when this is dropped, the newest first.
///
/// On a signal the process must end its work and drop this, for instance by the flag of `signal-hook`.
/// [`restore()`](crate::restore()) undoes the changes that a `kill -9` leaves.
#[derive(Debug)]
pub struct Changes<A: Actions> {
    journal: Journal,
    actions: A,
    owner: Owner,
    command: Vec<String>,
    held: Vec<Entry>,
    /// Changes that are undone, but open in the journal, which took no line about that.
    undone: Vec<u64>,
}

impl<A: Actions> Changes<A> {
    /// Prepares changes of the host below `root`. `command` is the command line that the journal shows.
    ///
    /// # Errors
    /// [`Error::JournalWrite`] if no journal can be written; [`Error::Access`] if this process's start time cannot be
    /// read.
    pub fn begin(root: &Path, actions: A, command: Vec<String>) -> Result<Self, Error> {
        let journal = Journal::open(root)?;
        let owner = Owner::current(root)?;
        Ok(Self { owner, journal, actions, command, held: Vec::new(), undone: Vec::new() })
    }

    /// Makes a change: it is announced in the journal, made, and read back.
    ///
    /// # Errors
    /// Errors of all kinds. The host is then unchanged, unless the error is [`Error::HalfMade`].
    pub fn make(&mut self, change: Change, lasting: Lasting) -> Result<Made, Error> {
        let lock = self.journal.lock()?;
        self.make_if(&lock, change, lasting, |_| true)
    }

    /// Changes a file whose new content was derived from `old`, unless its content is no longer `old`.
    ///
    /// # Errors
    /// Those of [`Self::make`], and [`Error::Outdated`].
    pub fn make_from(
        &mut self,
        old: Option<&Content>,
        change: Change,
        lasting: Lasting,
    ) -> Result<Made, Error> {
        let lock = self.journal.lock()?;
        self.make_if(&lock, change, lasting, |before| match before {
            Before::File { file, .. } => file.as_ref().map(|file| &file.content) == old,
            _ => true,
        })
    }

    /// Makes changes that were derived from a program's output: either all or none. A command among them is run only if
    /// the program's output is still the same. Holds the lock, so no other exitless changes the host meanwhile.
    ///
    /// # Errors
    /// Those of [`Self::make`], and [`Error::Outdated`].
    pub fn make_together_from(
        &mut self,
        shown: &[u8],
        changes: Vec<Change>,
        lasting: Lasting,
    ) -> Result<(), Error> {
        let lock = self.journal.lock()?;
        let old = digest(shown);
        let fits = |before: &Before| match before {
            Before::Shown { sha256 } => *sha256 == old,
            before => *before != Before::Unknown,
        };
        let mut made = Vec::new();
        for change in changes {
            match self.make_if(&lock, change, lasting, fits) {
                Ok(Made::AlreadySo) => {}
                Ok(Made::Changed(entry)) => made.push(*entry),
                Err(error) => {
                    let mut left = None;
                    for entry in made.iter().rev() {
                        match self.undo_if_last(&lock, entry, false) {
                            Ok(_) => {}
                            Err(undone @ Error::JournalUndone { .. }) => tracing::warn!("{}", undone.told()),
                            Err(failure) => left = left.or(Some(failure)),
                        }
                    }
                    return Err(match left {
                        Some(failure) => Error::HalfMade { failure: failure.told(), source: Box::new(error) },
                        None => error,
                    });
                }
            }
        }
        Ok(())
    }

    fn make_if(
        &mut self,
        lock: &Lock,
        change: Change,
        lasting: Lasting,
        fits: impl Fn(&Before) -> bool,
    ) -> Result<Made, Error> {
        let root = self.journal.root().to_owned();
        let before = look(&root, &self.actions, &change)?;
        if is_so(&change, &before) {
            return Ok(Made::AlreadySo);
        }
        if !fits(&before) {
            return Err(Error::Outdated { what: subject(&change) });
        }
        let temporary = lasting == Lasting::WhileHeld;
        let who = (&self.owner, &self.command[..]);
        let mut entry = self.journal.intend(lock, who, temporary, change, before)?;
        let made = perform(&root, &mut self.actions, &entry)
            .and_then(|()| after(&root, &self.actions, &entry.change))
            .and_then(|after| self.record_done(&entry, after, "it has to be taken back"));
        match made {
            Ok(after) => entry.progress = Progress::Done { after },
            Err(error) => return Err(self.take_back(&entry, error)),
        }
        if temporary {
            self.held.push(entry.clone());
        }
        Ok(Made::Changed(Box::new(entry)))
    }

    /// Changes the same value, or the CPUs of the same thread, once more. Undoing still restores the state before the
    /// first change, and the journal does not grow by a change each time.
    ///
    /// # Errors
    /// Errors of all kinds. The change stays in the journal, and will be undone. [`Error::ChangedSince`] if others changed
    /// the value since; it is then left alone.
    pub fn make_again(&mut self, entry: &mut Entry, change: Change) -> Result<(), Error> {
        let is_same = match (&entry.change, &change) {
            (
                Change::Affinity { tid, start_ticks, .. },
                Change::Affinity { tid: other, start_ticks: start, .. },
            ) => tid == other && start_ticks == start,
            (Change::Value { path, .. }, Change::Value { path: other, .. }) => path == other,
            _ => false,
        };
        if !is_same || !entry.open() {
            return Err(Error::Another { id: entry.id });
        }
        let lock = self.journal.lock()?;
        let root = self.journal.root().to_owned();
        if let Change::Affinity { tid, start_ticks, .. } = &change
            && !crate::owner::is_thread(&root, *tid, *start_ticks)?
        {
            return Err(Error::ThreadGone { tid: *tid });
        }
        if let Outcome::ChangedSince { what } = undo::examine(&root, &self.actions, entry)? {
            return Err(Error::ChangedSince { id: entry.id, what });
        }
        self.journal.turn(&lock)?;
        // From here on any value counts as ours, so an interrupted change can still be undone.
        self.journal.undoing(entry)?;
        self.undone.retain(|&id| id != entry.id);
        let before = std::mem::replace(entry, Entry { progress: Progress::Undoing, change, ..entry.clone() });
        let made = perform(&root, &mut self.actions, entry)
            .and_then(|()| after(&root, &self.actions, &entry.change))
            .and_then(|after| self.record_done(entry, after, "it will still be undone"));
        match (&made, before.after()) {
            (Ok(after), _) => entry.progress = Progress::Done { after: after.clone() },
            // The value did not change: restore the old record, so that later changes by others are
            // recognized as theirs.
            (Err(_), Some(old))
                if matches!(undo::examine(&root, &self.actions, &before), Ok(Outcome::WouldUndo))
                    && self.journal.done(&before, old).is_ok() =>
            {
                *entry = before;
            }
            (Err(_), _) => {}
        }
        if let Some(held) = self.held.iter_mut().find(|held| held.id == entry.id) {
            *held = entry.clone();
        }
        made.map(drop)
    }

    /// Undoes one change now.
    ///
    /// # Errors
    /// The change cannot be undone. It then stays in the journal.
    pub fn undo(&mut self, entry: &Entry) -> Result<Outcome, Error> {
        let lock = self.journal.lock()?;
        self.undo_if_last(&lock, entry, false)
    }

    /// Undoes one change now. If others have changed its object since, that stays as it is, and the journal forgets the
    /// change.
    ///
    /// # Errors
    /// Those of [`Self::undo`].
    pub fn undo_or_forget(&mut self, entry: &Entry) -> Result<Outcome, Error> {
        let lock = self.journal.lock()?;
        let outcome = self.undo_if_last(&lock, entry, false)?;
        if matches!(outcome, Outcome::ChangedSince { .. }) {
            self.journal.undone(entry, "left")?;
            self.held.retain(|held| held.id != entry.id);
        }
        Ok(outcome)
    }

    /// Undoes changes that belong together, the last one first, and returns the outcome of each. A command that generates
    /// files from others is run, but stays in the journal if a change after it could not be undone.
    pub fn undo_together(&mut self, entries: &[Entry]) -> Vec<Result<Outcome, Error>> {
        if entries.is_empty() {
            return Vec::new();
        }
        let lock = self.journal.lock_to_undo().map_err(Arc::new);
        let mut left = false;
        entries.iter().rev().map(|entry| self.undo_next(&lock, entry, &mut left)).collect()
    }

    /// Undoes one of several changes under one lock. `left` becomes true if it stays.
    fn undo_next(
        &mut self,
        lock: &Result<Lock, Arc<Error>>,
        entry: &Entry,
        left: &mut bool,
    ) -> Result<Outcome, Error> {
        let outcome = match lock {
            Ok(lock) => self.undo_if_last(lock, entry, *left),
            Err(error) => Err(Error::OfSeveral(Arc::clone(error))),
        };
        *left |= outcome.as_ref().map_or(true, Outcome::left);
        outcome
    }

    /// Undoes a change, unless a later open one depends on it.
    fn undo_if_last(&mut self, lock: &Lock, entry: &Entry, something_left: bool) -> Result<Outcome, Error> {
        for later in self.journal.holding_up(lock, entry, &self.undone)? {
            // Only its line may be missing, and the journal may take that by now.
            if !self.undone.contains(&later.id) || self.record_undone(&later, "undone").is_err() {
                return Err(Error::RestedOn { id: entry.id, later: later.id });
            }
        }
        let outcome = undo::undo_recorded(&self.journal, &mut self.actions, entry, false)?;
        if let Some(how) = outcome.settled().filter(|_| undo::forget(entry, something_left)) {
            self.record_undone(entry, how)?;
            self.held.retain(|held| held.id != entry.id);
        }
        Ok(outcome)
    }

    /// Records the result of a change. `outcome` is what becomes of a change without this line.
    fn record_done(&self, entry: &Entry, after: After, outcome: &'static str) -> Result<After, Error> {
        match self.journal.done(entry, &after) {
            Ok(()) => Ok(after),
            Err(Error::JournalWrite { path, source }) => Err(Error::JournalDone { path, outcome, source }),
            Err(error) => Err(error),
        }
    }

    fn record_undone(&mut self, entry: &Entry, how: &str) -> Result<(), Error> {
        let recorded = self.journal.undone(entry, how);
        self.undone.retain(|&id| id != entry.id);
        if recorded.is_err() {
            self.undone.push(entry.id);
        }
        recorded
    }

    /// Undoes now what a drop would undo, the newest first, and returns the outcome of each.
    pub fn release(&mut self) -> Vec<(Entry, Result<Outcome, Error>)> {
        if self.held.is_empty() {
            return Vec::new();
        }
        let lock = self.journal.lock_to_undo().map_err(Arc::new);
        let mut released = Vec::new();
        let mut left = false;
        while let Some(entry) = self.held.pop() {
            let outcome = self.undo_next(&lock, &entry, &mut left);
            released.push((entry, outcome));
        }
        released
    }

    fn take_back(&mut self, entry: &Entry, error: Error) -> Error {
        if let Err(failure) = undo::undo(self.journal.root(), &mut self.actions, entry, true) {
            return Error::HalfMade { failure: failure.told(), source: Box::new(error) };
        }
        if let Err(undone) = self.record_undone(entry, "failed") {
            tracing::warn!("{}", undone.told());
        }
        error
    }
}

impl<A: Actions> Drop for Changes<A> {
    fn drop(&mut self) {
        for (entry, outcome) in self.release() {
            match outcome {
                Ok(Outcome::ChangedSince { what }) => {
                    tracing::warn!("A temporary change stays, for others changed it since: {what}");
                }
                Err(error) => tracing::warn!("{}", entry.left_by(&error)),
                Ok(_) => {}
            }
        }
    }
}

/// The name, for messages, of the state from which a change was derived.
fn subject(change: &Change) -> String {
    match change {
        Change::File { path, .. } => path.clone(),
        Change::Command { undo: Some(undo), .. } => match crate::program::that_shows(undo) {
            Some(show) => format!("The output of `{}`", show.join(" ")),
            None => undo.join(" "),
        },
        other => format!("{other:?}"),
    }
}

/// The state before a change.
fn look(root: &Path, actions: &impl Actions, change: &Change) -> Result<Before, Error> {
    match (change, present(root, actions, change)) {
        // The program that shows it is missing, or does not know the object yet.
        (Change::Command { .. }, Err(_)) => Ok(Before::Unknown),
        // Undoing has to set them.
        (Change::Affinity { tid, .. }, Ok(Before::Affinity { cpus, .. })) if numbers(&cpus).is_none() => {
            Err(Error::ManyCpus { tid: *tid, cpus, limit: CpuSet::MAX_CPU })
        }
        (_, found) => found,
    }
}

fn is_so(change: &Change, before: &Before) -> bool {
    match (change, before) {
        (Change::File { content, .. }, Before::File { file, .. }) => {
            Some(content) == file.as_ref().map(|file| &file.content)
        }
        (Change::Value { value, .. }, Before::Value { value: old }) => value.trim() == old,
        (Change::Affinity { cpus, .. }, Before::Affinity { cpus: old, .. }) => cpus == old,
        _ => false,
    }
}

fn perform(root: &Path, actions: &mut impl Actions, entry: &Entry) -> Result<(), Error> {
    match (&entry.change, &entry.before) {
        (Change::File { path, content }, Before::File { file: old, missing }) => {
            file::make_directories(root, missing)?;
            file::replace(&file::place(root, path)?, content, old.as_ref(), entry.id)
        }
        (Change::Value { path, value }, _) => value::write(&file::path(root, path)?, value),
        (Change::Load { module, parameters }, _) => module::reload(root, actions, module, parameters),
        (Change::Command { run: Some(command), .. }, _) => module::run(root, actions, command),
        (Change::Affinity { tid, cpus, .. }, _) => actions.set_affinity(*tid, cpus),
        _ => Ok(()),
    }
}

/// The result of a change, read back. That of a file needs no look: it is what was asked for, or the change has failed.
fn after(root: &Path, actions: &impl Actions, change: &Change) -> Result<After, Error> {
    if matches!(change, Change::File { .. }) {
        return Ok(After::AsAsked);
    }
    Ok(match present(root, actions, change)? {
        Before::Value { value } | Before::Affinity { cpus: value, .. } => After::Value { value },
        Before::Module { parameters } => After::Module { parameters },
        Before::Shown { sha256 } => After::Shown { sha256 },
        Before::File { .. } | Before::Unknown => After::AsAsked,
    })
}

#[cfg(test)]
#[path = "changes_tests.rs"]
mod tests;
