//! A command during which exits are observed.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};

/// The interval at which the command's end is checked for.
const LOOK: Duration = Duration::from_millis(10);

/// A running command. Dropping it terminates the command.
pub(crate) struct Workload {
    child: Child,
    asked_to_end: bool,
}

impl Workload {
    /// Starts the command, with this process's standard input and outputs. `None` without a command.
    pub(crate) fn start(command: &[OsString]) -> anyhow::Result<Option<Self>> {
        let Some((program, arguments)) = command.split_first() else { return Ok(None) };
        let child = Command::new(program).args(arguments).spawn();
        let child = child.with_context(|| format!("Could not run {}", program.display()))?;
        Ok(Some(Self { child, asked_to_end: false }))
    }

    /// The command's status once it has ended. Sends SIGTERM when `stop` is set; signals from the terminal
    /// reach the command directly.
    pub(crate) fn ended(&mut self, stop: &AtomicBool) -> anyhow::Result<Option<ExitCode>> {
        if stop.load(Ordering::Relaxed) && !self.asked_to_end {
            self.asked_to_end = true;
            // If it has already ended, `try_wait` below says so.
            let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        }
        let status = self.child.try_wait().context("Could not wait for the command")?;
        Ok(status.map(as_a_shell_says))
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

fn as_a_shell_says(status: ExitStatus) -> ExitCode {
    let by_signal = || status.signal().map(|signal| 128 + signal);
    ExitCode::from(status.code().or_else(by_signal).and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}
