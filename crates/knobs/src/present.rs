//! The present state of what a change is of.

use crate::{Actions, Before, Change, Error, file, module, owner, program, undo, value};
use sha2::{Digest as _, Sha256};
use std::path::Path;

/// The present state of a change's object, as it would be kept to undo a change that is made now.
///
/// # Errors
/// [`Error::ThreadGone`] for a thread that has ended; [`Error::Start`] or [`Error::Command`] of the program that prints a
/// command's result; or the object cannot be read.
pub(crate) fn present(root: &Path, actions: &impl Actions, change: &Change) -> Result<Before, Error> {
    Ok(match change {
        Change::File { path, .. } => Before::File {
            file: file::look(&file::place(root, path)?)?,
            missing: file::missing_directories(root, path),
        },
        Change::Value { path, .. } => Before::Value { value: value::read(&file::path(root, path)?)? },
        Change::Load { module, .. } => Before::Module { parameters: module::parameters(root, module) },
        Change::Command { undo, .. } => match undo.as_deref().and_then(program::that_shows) {
            Some(show) => Before::Shown { sha256: digest(&actions.shown(&show)?) },
            None => Before::Unknown,
        },
        Change::Affinity { tid, start_ticks, .. } => {
            if !owner::is_thread(root, *tid, *start_ticks)? {
                return Err(Error::ThreadGone { tid: *tid });
            }
            let cpus = actions.affinity(*tid)?;
            Before::Affinity { unlimited: undo::is_unlimited(root, *tid, &cpus), cpus }
        }
    })
}

/// The SHA-256 of a program's output.
pub(crate) fn digest(shown: &[u8]) -> String {
    Sha256::digest(shown).iter().map(|byte| format!("{byte:02x}")).collect()
}
