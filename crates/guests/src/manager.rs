//! Programs that manage VMs: `virsh` and `xl`.

use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::Duration;

use rustix::process::geteuid;

/// The time limit of a command: starting or destroying a domain with much memory takes minutes, and with a daemon that
/// hangs (libvirtd, xenstored) the command would never return.
const PATIENCE: Duration = Duration::from_secs(600);
/// The most bytes of a command's output.
const LARGEST_ANSWER: usize = 1 << 20;

/// Runs a command and returns its output without the empty lines around it; names of domains may begin and end with
/// spaces. Messages show it as `line`; `lacking` is the advice if the program is missing.
///
/// # Errors
/// The program's message, or the reason why it could not be run.
pub(super) fn ask(line: &str, command: &mut Command, lacking: &str) -> Result<String, String> {
    // A process group of its own: Ctrl-C must not interrupt the start of a domain, which nobody would end then. Other
    // users may have to give polkit a password on the terminal, from which a background group must not read.
    if geteuid().is_root() {
        command.process_group(0);
    }
    let answer =
        programs::answer(command, PATIENCE, LARGEST_ANSWER).map_err(|error| match error.is_missing() {
            true => format!("Could not run `{line}`: {error}; {lacking}"),
            false => format!("`{line}`: {error}; try it by hand"),
        })?;
    let output = answer.output().map_err(|said| format!("`{line}` failed: {said}"))?;
    Ok(String::from_utf8_lossy(&output).trim_matches('\n').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_keeps_its_spaces() {
        assert_eq!(
            ask("sh", Command::new("sh").args(["-c", "printf ' 2 \\n\\n'"]), "").as_deref(),
            Ok(" 2 ")
        );
    }

    #[test]
    fn a_signal_of_the_terminal_does_not_reach_a_program_of_root() {
        // proc_pid_stat(5): the ID, the command's name, the state, the parent, the process group.
        let script = "read -r _ _ _ _ group _ </proc/$$/stat; [ $group = $$ ] && echo own || echo shared";
        let said = ask("sh", Command::new("sh").args(["-c", script]), "").unwrap();
        assert_eq!(said, if geteuid().is_root() { "own" } else { "shared" });
    }
}
