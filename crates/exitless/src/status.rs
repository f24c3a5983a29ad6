//! Exit statuses, and the printing of errors.

use std::error::Error;
use std::io;
use std::process::ExitCode;

use exits::{BadGrouping, NotThere};
use host::snapshot::SnapshotError;
use host::vms::NoSuchVm;
use iocm::config::ConfigError;
use iocm::control::Errno;
use iocm::control::client::ClientError;
use iocm::daemon::DaemonError;
use iocm::running::StartError;
use iocm::safety::SafetyError;
use load::LoadError;
use prove::{BadPlan, CollectError};
use study::store::StoreError;
use study::target::CoordinateError;
use tracing::Level;

use crate::console;

/// The host has only one arm of the comparison.
pub(crate) const ONE_ARM: u8 = 1;
/// Some measurements or reads failed.
pub(crate) const SOME_FAILED: u8 = 1;
/// There is something to fix.
pub(crate) const TO_FIX: u8 = 1;
/// The requested change of the host is refused, blocked, or failed.
pub(crate) const REFUSED: u8 = 1;
/// The connection of a device's only front-end failed.
pub(crate) const BROKEN: u8 = 1;
/// A VM that should be idle has more exits than its budget.
pub(crate) const ABOVE_BUDGET: u8 = 1;
/// An aim of an evaluation was missed.
pub(crate) const AIM_MISSED: u8 = 1;
/// Interrupt virtualization is not active for some VM.
pub(crate) const INHIBITED: u8 = 1;
/// The state is unknown.
pub(crate) const CANNOT_TELL: u8 = 2;
/// The kernel's evidence contradicts the host's settings.
pub(crate) const CONTRADICTED: u8 = 3;
/// A recording is damaged; its undamaged part was used.
pub(crate) const DAMAGED: u8 = 4;
/// The command line was wrong, or an input was missing.
pub(crate) const USAGE: u8 = 2;
/// The tool itself failed. Different from the statuses of commands run in a laboratory.
pub(crate) const FAILED: u8 = 125;
/// Ctrl-C or a termination signal.
pub(crate) const INTERRUPTED: u8 = 130;

/// Prints the error with its causes, once, and returns the exit status.
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    if is_broken_pipe(error) {
        return ExitCode::SUCCESS;
    }
    console::say_at(Level::ERROR, format_args!("exitless: {error}"));
    let mut shown = error.to_string();
    for cause in error.chain().skip(1) {
        // Some libraries repeat the cause in their message.
        let text = cause.to_string();
        if !shown.contains(&text) {
            console::say_at(Level::ERROR, format_args!("  because: {text}"));
            shown = text;
        }
    }
    ExitCode::from(code(error))
}

/// The request is not valid: the command line names something that does not exist.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Usage(pub(crate) String);

fn code(error: &anyhow::Error) -> u8 {
    if error.is::<Usage>()
        || error.downcast_ref().is_some_and(is_no_configuration)
        || error.is::<iocm::inherited::BadInheritance>()
        || matches!(
            error.downcast_ref(),
            Some(
                StartError::Safety(SafetyError::Account(_) | SafetyError::Capability(_))
                    | StartError::Daemon(DaemonError::Account(_))
            )
        )
        || error.is::<BadPlan>()
        || error.is::<study::plan::BadPlan>()
        || matches!(store(error), Some(failed) if failed.is_usage())
        || error.is::<BadGrouping>()
        || error.is::<NotThere>()
        || error.is::<NoSuchVm>()
        || matches!(error.downcast_ref(), Some(host::Error::Root { .. } | host::Error::NoHost { .. }))
        || error.downcast_ref().is_some_and(is_no_snapshot)
        || matches!(error.downcast_ref(), Some(CollectError::Plan(_)))
        || matches!(error.downcast_ref(), Some(LoadError::Settings { .. } | LoadError::Ports { .. }))
    {
        return USAGE;
    }
    if let Some(ClientError::Refused(refusal)) = error.downcast_ref() {
        return match refusal.errno {
            Errno::Invalid | Errno::Missing | Errno::IsDirectory | Errno::NotDirectory | Errno::TooLarge => {
                USAGE
            }
            _ => REFUSED,
        };
    }
    match error.downcast_ref::<lab::Error>() {
        Some(lab::Error::Interrupted) => INTERRUPTED,
        Some(error) if error.is_usage() => USAGE,
        _ => FAILED,
    }
}

/// Tests whether a file that the command line names is missing, a directory or no text. That it may not be read is no
/// fault of the command line.
pub(crate) fn is_unsuitable(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidData, IsADirectory, NotFound};
    matches!(error.kind(), NotFound | IsADirectory | InvalidData)
}

/// Tests whether the configuration of a daemon is missing or wrong.
fn is_no_configuration(error: &ConfigError) -> bool {
    match error {
        ConfigError::Read { source, .. } => is_unsuitable(source),
        _ => true,
    }
}

/// Tests whether the path given as a host is not a snapshot.
fn is_no_snapshot(error: &SnapshotError) -> bool {
    match error {
        SnapshotError::Read { source, .. } => source.kind() == io::ErrorKind::NotFound,
        SnapshotError::Format { .. } | SnapshotError::NoSnapshot { .. } | SnapshotError::Root(_) => true,
        _ => false,
    }
}

/// The error of a result folder, if that is the cause.
fn store(error: &anyhow::Error) -> Option<&StoreError> {
    match error.downcast_ref() {
        Some(CoordinateError::Store(failed)) => Some(failed),
        _ => error.downcast_ref(),
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let kind = |cause: &(dyn Error + 'static)| {
        let json = cause.downcast_ref::<serde_json::Error>().and_then(serde_json::Error::io_error_kind);
        cause.downcast_ref::<io::Error>().map(io::Error::kind).or(json)
    };
    error.chain().any(|cause| kind(cause) == Some(io::ErrorKind::BrokenPipe))
}
