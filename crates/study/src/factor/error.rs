//! Errors of applying levels.

use std::path::PathBuf;

use super::CommandPair;
use crate::Span;

/// The reason why levels could not be applied. The changes made until then are undone.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApplyError {
    /// Two levels of one arm set different values.
    #[error("Two levels of one arm set {what}, to {one} and to {other}; vary it by one factor only")]
    Conflict {
        /// The setting that both set.
        what: String,
        /// The value of the first level.
        one: String,
        /// The value of the second level.
        other: String,
    },
    /// The module is not loaded.
    #[error(
        "The module {module} is not loaded, so its parameters cannot be set; run `modprobe {module}` first"
    )]
    NoModule {
        /// The module.
        module: String,
    },
    /// The module has no such parameter.
    #[error(
        "The module {module} has no parameter {parameter}: {path} does not exist; this kernel may lack it"
    )]
    NoParameter {
        /// The module.
        module: String,
        /// The parameter.
        parameter: String,
        /// The path of the parameter's file.
        path: PathBuf,
    },
    /// The module is in use.
    #[error(
        "The module {module} must be reloaded, but is in use by {users}; end them, then continue the study"
    )]
    InUse {
        /// The module.
        module: String,
        /// VMs by name and process, or the module's use count.
        users: String,
    },
    /// The kernel reports another value than the one that was set.
    #[error("{what} is {found} after it was set to {asked}: this host does not accept the value")]
    NotTaken {
        /// A parameter or a file.
        what: String,
        /// The value that was set.
        asked: String,
        /// The value that the kernel reports.
        found: String,
    },
    /// Frequencies cannot be set on this host.
    #[error("The frequency of CPUs cannot be set: {why}")]
    Frequency {
        /// The missing part, and what to do.
        why: String,
    },
    /// A command took longer than its limit.
    #[error(
        "The command {command:?} of a level was still running after {limit} and was ended; see why, or give it a longer limit"
    )]
    Limit {
        /// The command.
        command: String,
        /// Its limit.
        limit: Span,
    },
    /// A change failed.
    #[error(transparent)]
    Change(#[from] knobs::Error),
}

impl ApplyError {
    /// The error of a command that ran under timeout(1), which exits with status 124 if the time expired, and 137 if it
    /// had to send SIGKILL.
    pub(super) fn of_command(pair: &CommandPair, error: knobs::Error) -> Self {
        match &error {
            knobs::Error::Command { status, .. }
                if ["exit status: 124", "exit status: 137"].contains(&status.as_str()) =>
            {
                Self::Limit { command: pair.before.clone(), limit: pair.limit }
            }
            _ => error.into(),
        }
    }
}
