//! Programs that manage VMs: `virsh` and `xl`.

use std::process::Command;
use std::time::Duration;

/// The time limit of a command: starting or destroying a domain with much memory takes minutes, and with a daemon that
/// hangs (libvirtd, xenstored) the command would never return.
const PATIENCE: Duration = Duration::from_secs(600);
/// The most bytes of a command's output.
const LARGEST_ANSWER: usize = 1 << 20;

/// Runs a command and returns its output. Messages show it as `line`; `lacking` is the advice if the program is
/// missing.
///
/// # Errors
/// The program's message, or the reason why it could not be run.
pub(super) fn ask(line: &str, command: &mut Command, lacking: &str) -> Result<String, String> {
    let answer =
        programs::answer(command, PATIENCE, LARGEST_ANSWER).map_err(|error| match error.is_missing() {
            true => format!("Could not run `{line}`: {error}; {lacking}"),
            false => format!("`{line}`: {error}; try it by hand"),
        })?;
    answer.text().map_err(|said| format!("`{line}` failed: {said}"))
}
