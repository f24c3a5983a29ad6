//! A command during which exits are observed.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::process::{Pid, Signal, getpgid, getpgrp, kill_process};
use rustix::termios::tcgetpgrp;

use crate::{interrupt, status};

/// The interval at which the command's end is checked for.
const LOOK: Duration = Duration::from_millis(10);

/// A SIGTERM that comes sooner after the first may be its copy: sudo and supervisors send it twice.
const AGAIN: Duration = Duration::from_secs(1);

/// A running command. Dropping it terminates the command.
pub(crate) struct Workload {
    child: Child,
    /// Set by signals that a terminal's keys do not send.
    sent: Arc<AtomicBool>,
    /// Once there is a signal: whether the terminal's keys reach the command, too.
    hears_keys: Option<bool>,
    /// The time of SIGTERM to the command.
    asked: Option<Instant>,
}

impl Workload {
    /// Starts the command, with this process's standard input and outputs. `None` without a command.
    pub(crate) fn start(command: &[OsString], stop: &AtomicBool) -> anyhow::Result<Option<Self>> {
        let Some((program, arguments)) = command.split_first() else { return Ok(None) };
        let sent = interrupt::sent()?;
        // A signal from before did not reach the command.
        let hears_keys = stop.load(Ordering::Relaxed).then_some(false);
        let child = Command::new(program).args(arguments).spawn();
        let child = child.with_context(|| format!("Could not run {}", program.display()))?;
        Ok(Some(Self { child, sent, hears_keys, asked: None }))
    }

    /// The command's status once it has ended. Sends SIGTERM when `stop` is set, but not for Ctrl-C, which reaches the
    /// command directly: SIGTERM would end it while it cleans up. A later SIGTERM ends the wait for a command that ignores
    /// the first.
    pub(crate) fn ended(&mut self, stop: &AtomicBool) -> anyhow::Result<Option<ExitCode>> {
        let ended = self.child.try_wait().context("Could not wait for the command")?;
        if ended.is_some() || !stop.load(Ordering::Relaxed) {
            return Ok(ended.map(as_a_shell_says));
        }
        let was_sent = self.sent.swap(false, Ordering::Relaxed);
        let Some(asked) = self.asked else {
            if was_sent || !self.hears_keys() {
                self.asked = Some(Instant::now());
                // If it has ended meanwhile, the next look says so.
                let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
            }
            return Ok(None);
        };
        let is_over = was_sent && asked.elapsed() >= AGAIN;
        Ok(is_over.then_some(ExitCode::from(status::INTERRUPTED)))
    }

    /// Tests whether the terminal's keys send signals to this process's group, and the command is in it. timeout(1), for one,
    /// makes a group of its own.
    fn hears_keys(&mut self) -> bool {
        let command = Pid::from_child(&self.child);
        *self.hears_keys.get_or_insert_with(|| getpgid(Some(command)) == Ok(getpgrp()) && is_in_foreground())
    }

    /// Waits for the command, and calls `meanwhile` a hundred times a second.
    pub(crate) fn wait(mut self, stop: &AtomicBool, mut meanwhile: impl FnMut()) -> anyhow::Result<ExitCode> {
        loop {
            if let Some(status) = self.ended(stop)? {
                return Ok(status);
            }
            meanwhile();
            std::thread::sleep(LOOK);
        }
    }
}

impl Drop for Workload {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
            let _ = programs::ended_within(&mut self.child, Duration::from_secs(2));
        }
    }
}

/// Tests whether the terminal's keys send signals to this process's group.
fn is_in_foreground() -> bool {
    File::open("/dev/tty").is_ok_and(|terminal| tcgetpgrp(terminal) == Ok(getpgrp()))
}

fn as_a_shell_says(status: ExitStatus) -> ExitCode {
    let by_signal = || status.signal().map(|signal| 128 + signal);
    ExitCode::from(status.code().or_else(by_signal).and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;
    use std::process::Stdio;

    use super::*;

    /// The folder for the files of a command that this test runs for another one, on a terminal.
    const FOLDER: &str = "TEST_OF_WORKLOAD_IN";
    /// The words before that command.
    const BELOW: &str = "TEST_OF_WORKLOAD_BELOW";

    /// Runs a command that says in `how` by which signal it ended. Cleaning up after SIGINT takes longer than it takes to
    /// notice the signal.
    fn work(folder: &str) {
        let below = std::env::var(BELOW).unwrap();
        let script = format!(
            "cd {folder}; trap 'sleep 0.1; echo INT > how; exit' INT; trap 'echo TERM > how; exit' TERM; \
             echo $PPID > begun.new; mv begun.new begun; while :; do sleep 0.01; done"
        );
        let stop = interrupt::flag().unwrap();
        let command: Vec<_> =
            below.split_whitespace().chain(["sh", "-c", script.as_str()]).map(OsString::from).collect();
        Workload::start(&command, &stop).unwrap().unwrap().wait(&stop, || ()).unwrap();
    }

    #[test]
    fn a_command_gets_ctrl_c_once_and_sigterm_is_passed_on() {
        if let Ok(folder) = std::env::var(FOLDER) {
            return work(&folder);
        }
        let name = "commands::workload::tests::a_command_gets_ctrl_c_once_and_sigterm_is_passed_on";
        let own = std::env::current_exe().unwrap();
        // timeout(1) makes a group of its own, which the terminal's keys do not reach.
        for (ctrl_c, below, expected) in
            [(true, "", "INT\n"), (true, "timeout 600", "TERM\n"), (false, "", "TERM\n")]
        {
            let folder = tempfile::tempdir().unwrap();
            let mut script = Command::new("script")
                .args(["-qec", &format!("exec '{}' --exact {name}", own.display()), "/dev/null"])
                .env(FOLDER, folder.path())
                .env(BELOW, below)
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .spawn()
                .unwrap();
            let mut keys = script.stdin.take().unwrap();
            let begun = folder.path().join("begun");
            while !begun.exists() {
                assert_eq!(script.try_wait().unwrap(), None, "the command did not begin");
                std::thread::sleep(LOOK);
            }
            if ctrl_c {
                keys.write_all(b"\x03").unwrap();
            } else {
                let process = fs::read_to_string(begun).unwrap();
                assert!(Command::new("kill").arg(process.trim()).status().unwrap().success());
            }
            script.wait().unwrap();
            let how = fs::read_to_string(folder.path().join("how")).unwrap();
            assert_eq!(how, expected, "Ctrl-C: {ctrl_c}, {below}");
        }
    }

    #[test]
    fn a_later_sigterm_ends_the_wait_for_a_command_that_ignores_the_first() {
        let stop = AtomicBool::new(true);
        let mut workload = Workload::start(&["sleep", "60"].map(OsString::from), &stop).unwrap().unwrap();
        // It has been asked, and goes on.
        workload.asked = Some(Instant::now() + Duration::from_secs(60));
        workload.sent.store(true, Ordering::Relaxed);
        assert_eq!(workload.ended(&stop).unwrap(), None);
        workload.asked = Instant::now().checked_sub(AGAIN);
        assert_eq!(workload.ended(&stop).unwrap(), None, "what came at once was a copy");
        workload.sent.store(true, Ordering::Relaxed);
        assert_eq!(workload.ended(&stop).unwrap(), Some(ExitCode::from(status::INTERRUPTED)));
    }
}
