//! One change in the journal.

use crate::{After, Before, Change, Error, Owner, change};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The format number. Within one number fields are added, never changed.
pub(crate) const FORMAT: u32 = 1;

/// One line of a journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Line {
    pub(crate) format: u32,
    #[serde(flatten)]
    pub(crate) said: Said,
}

/// The meaning of a line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Said {
    /// A change will be made. This line is on the disk before the change.
    Intend(Box<Intent>),
    /// It was made.
    Done { id: u64, after: After },
    /// A change of more than one step is about to be undone.
    Undoing { id: u64 },
    /// It was undone, or no longer needs to be.
    Undone { id: u64, how: String },
}

/// The record of a change before it is made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Intent {
    pub(crate) id: u64,
    pub(crate) time: u64,
    pub(crate) owner: Owner,
    pub(crate) command: Vec<String>,
    pub(crate) temporary: bool,
    pub(crate) change: Change,
    pub(crate) before: Before,
}

impl Intent {
    /// Tests whether exitless supports the change; `Err` is the reason why not.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.change.check()?;
        let fits = matches!(
            (&self.change, &self.before),
            (Change::File { .. }, Before::File { .. })
                | (Change::Value { .. }, Before::Value { .. })
                | (Change::Load { .. }, Before::Module { .. })
                | (Change::Affinity { .. }, Before::Affinity { .. })
                | (Change::Command { .. }, Before::Unknown | Before::Shown { .. })
        );
        let directories = match &self.before {
            Before::File { missing, .. } => &missing[..],
            Before::Module { parameters: Some(parameters) } => {
                change::check_parameters(parameters)?;
                &[]
            }
            _ => &[],
        };
        let paths = directories.iter().all(|path| change::is_path(path));
        if fits && paths {
            Ok(())
        } else {
            Err("what was there before does not go with the change".to_owned())
        }
    }
}

/// The progress of a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "progress")]
pub enum Progress {
    /// It was announced; whether it was made is not known.
    Intended,
    /// It was made.
    Done {
        /// Its result.
        after: After,
    },
    /// Its undoing was announced; how far that went is not known.
    Undoing,
    /// It was undone.
    Undone {
        /// The journal's word for the way in which it was undone: `undone`, `already`, `boot`, `failed`; `left` if others
        /// have changed its object since.
        how: String,
    },
}

/// A change that was made, with the facts that undoing it needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// Its number; later changes have higher ones.
    pub id: u64,
    /// The time, in seconds since 1970.
    pub time: u64,
    /// The process that made it.
    pub owner: Owner,
    /// The command line of exitless.
    pub command: Vec<String>,
    /// True if the change ends with its process.
    pub temporary: bool,
    /// The change.
    pub change: Change,
    /// The state before.
    pub before: Before,
    /// Its progress.
    #[serde(flatten)]
    pub progress: Progress,
}

impl Entry {
    pub(crate) fn new(intent: Intent) -> Self {
        let Intent { id, time, owner, command, temporary, change, before } = intent;
        Self { id, time, owner, command, temporary, change, before, progress: Progress::Intended }
    }

    /// The journal's lines for this change.
    pub(crate) fn said(self) -> impl Iterator<Item = Said> {
        let Self { id, time, owner, command, temporary, change, before, progress } = self;
        let intent = Intent { id, time, owner, command, temporary, change, before };
        let then = match progress {
            Progress::Intended => None,
            Progress::Done { after } => Some(Said::Done { id, after }),
            Progress::Undoing => Some(Said::Undoing { id }),
            Progress::Undone { how } => Some(Said::Undone { id, how }),
        };
        [Said::Intend(Box::new(intent))].into_iter().chain(then)
    }

    /// Tests whether the change is not undone yet.
    #[must_use]
    pub fn open(&self) -> bool {
        !matches!(self.progress, Progress::Undone { .. })
    }

    /// A line about the error with which undoing this change ended.
    #[must_use]
    pub fn left_by(&self, error: &Error) -> String {
        match error {
            // It says itself that the change is undone.
            Error::JournalUndone { .. } => error.told(),
            _ => format!("Change {} is left; run `exitless restore`: {}", self.id, error.told()),
        }
    }

    /// Tests whether this change depends on the earlier one: its state before is the other's result, so this one must
    /// be undone first.
    pub(crate) fn rests_on(&self, earlier: &Self) -> bool {
        let needs = match (&self.change, &earlier.change) {
            (Change::File { path, .. }, Change::File { .. }) => {
                let in_its_directory =
                    |made: &Vec<String>| made.iter().any(|directory| Path::new(path).starts_with(directory));
                matches!(&earlier.before, Before::File { missing, .. } if in_its_directory(missing))
            }
            // The command needs the file to undo its change.
            (Change::Command { undo: Some(undo), .. }, Change::File { path, .. }) => undo.contains(path),
            _ => false,
        };
        needs || self.has_object_of(earlier)
    }

    /// Tests whether the earlier change must wait for this one, which is open in the journal. `undone` has the changes that
    /// are undone, but about which the journal took no line.
    pub(crate) fn holds_up(&self, earlier: &Self, undone: &[u64]) -> bool {
        // Once the earlier one is undone too, one of the same object looks like a change by others. A command may have
        // to run again, with the file on which it rests.
        let needs_line = matches!(self.change, Change::Command { .. }) || self.has_object_of(earlier);
        self.rests_on(earlier) && (needs_line || !undone.contains(&self.id))
    }

    /// Tests whether both changes are of the same object: undoing the later one leads back to the result of the earlier.
    #[must_use]
    pub fn has_object_of(&self, other: &Self) -> bool {
        match (&self.change, &other.change) {
            (Change::File { path, .. }, Change::File { path: other, .. })
            | (Change::Value { path, .. }, Change::Value { path: other, .. }) => path == other,
            (Change::Load { module, .. }, Change::Load { module: other, .. }) => module == other,
            (
                Change::Affinity { tid, start_ticks, .. },
                Change::Affinity { tid: other, start_ticks: start, .. },
            ) => (tid, start_ticks) == (other, start),
            (Change::Command { undo: Some(undo), .. }, Change::Command { undo: Some(other), .. }) => {
                undo == other
            }
            _ => false,
        }
    }

    /// The result of the change, if it is known.
    #[must_use]
    pub fn after(&self) -> Option<&After> {
        match &self.progress {
            Progress::Done { after } => Some(after),
            _ => None,
        }
    }
}
