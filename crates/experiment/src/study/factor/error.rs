//! Why a level is not in force.

use std::path::PathBuf;

use super::CommandPair;
use crate::study::span::Span;

/// Why levels could not be put in force. What was changed until then is taken back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApplyError {
    /// Two levels of one arm want different things.
    #[error("Two levels of one arm set {what}, to {one} and to {other}; vary it by one factor only")]
    Conflict {
        /// What is set twice.
        what: String,
        /// The one's value.
        one: String,
        /// The other's.
        other: String,
    },
    /// The module is not there.
    #[error(
        "The module {module} is not loaded, so its parameters cannot be set; run `modprobe {module}` first"
    )]
    NoModule {
        /// The module.
        module: String,
    },
    /// The module has no such parameter.
    #[error("The module {module} has no parameter {parameter}: {path} is not there; this kernel may lack it")]
    NoParameter {
        /// The module.
        module: String,
        /// The parameter.
        parameter: String,
        /// Where it would be.
        path: PathBuf,
    },
    /// The module is in use.
    #[error(
        "The module {module} must be loaded again, and is in use by {users}; end them, then go on with the study"
    )]
    InUse {
        /// The module.
        module: String,
        /// VMs by name and process, or how often it is in use.
        users: String,
    },
    /// The kernel made something else of a value.
    #[error("{what} is {found} after it was set to {asked}: this host does not take the value")]
    NotTaken {
        /// A parameter or a file.
        what: String,
        /// What was asked for.
        asked: String,
        /// What the kernel says.
        found: String,
    },
    /// Frequencies cannot be set here.
    #[error("The frequency of CPUs cannot be set: {why}")]
    Frequency {
        /// What is missing, and what to do.
        why: String,
    },
    /// A command took longer than its limit.
    #[error(
        "The command {command:?} of a level was still running after {limit} and was ended; see why, or give it a longer limit"
    )]
    Limit {
        /// What was run.
        command: String,
        /// Its limit.
        limit: Span,
    },
    /// A change failed.
    #[error(transparent)]
    Change(#[from] knobs::Error),
}

impl ApplyError {
    /// Of a command that was run under timeout(1), whose status is 124 where the time was over, and 137 where it had to
    /// kill.
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
