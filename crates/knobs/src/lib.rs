//! Changes of a host's settings: each is written to a journal before it is made, and undone from it.
//!
//! [`Changes`] makes changes and undoes the temporary ones when it is dropped; [`restore()`] undoes what earlier processes
//! left. Both take the directory that stands for `/`, and an [`Actions`] for changes that need more than writing a file,
//! so a tree of plain files can simulate any machine.

mod actions;
mod change;
mod changes;
mod content;
mod cut_short;
mod entry;
mod error;
mod file;
mod journal;
mod kernel_install;
mod module;
mod owner;
mod present;
mod program;
mod restore;
mod undo;
mod value;

#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod fake;

pub use actions::{Actions, RunningHost};
pub use change::{After, Before, Change, FileState, Parameters};
pub use changes::{Changes, Lasting, Made};
pub use content::Content;
pub use entry::{Entry, Progress};
pub use error::Error;
pub use journal::{Damage, Journal, Recorded};
pub use kernel_install::{ADD_ALL, boot_entries, commands};
pub use owner::Owner;
pub use restore::{Restore, Restored, RestoredChange, restore};
pub use undo::Outcome;

use std::path::{Path, PathBuf};

/// The path below `root` of a running host's `path`.
pub(crate) fn under(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}
