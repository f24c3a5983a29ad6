//! Programs that manage VMs: `virsh` and `xl`.

use std::process::Command;
use std::time::Duration;

/// The time limit of a command: a domain with much memory takes minutes to start or to destroy, and a daemon that hangs
/// (libvirt's, xenstored) holds them for ever.
const PATIENCE: Duration = Duration::from_secs(600);
/// The most bytes of their output.
const LARGEST_ANSWER: usize = 1 << 20;

/// The text that a command prints. In messages it is `line`, and `lacking` says what to do without the program.
///
/// # Errors
/// Its message, or the reason why it could not be run.
pub(super) fn ask(line: &str, command: &mut Command, lacking: &str) -> Result<String, String> {
    let answer =
        programs::answer(command, PATIENCE, LARGEST_ANSWER).map_err(|error| match error.is_missing() {
            true => format!("Could not run `{line}`: {error}; {lacking}"),
            false => format!("`{line}`: {error}; try it by hand"),
        })?;
    answer.text().map_err(|said| format!("`{line}` failed: {said}"))
}
