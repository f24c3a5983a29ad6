//! The child processes of a build, which end with it.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};

use crate::error::Error;

/// The interval at which a wait checks the stop flag.
pub(crate) const TURN: Duration = Duration::from_millis(100);
/// The time that a program and its children have to end on SIGTERM.
const PATIENCE: Duration = Duration::from_secs(2);

/// A program in a process group of its own. The kernel sends it SIGTERM if this process is killed; make,
/// ninja and apt then end their children.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "TERM", "--"]).arg(program).process_group(0);
    command
}

/// Ends a program of [`command`] and its children.
pub(crate) fn end(child: &mut Child) {
    signal(child.id(), Signal::TERM);
    let _ = programs::ended_within(child, PATIENCE);
    signal(child.id(), Signal::KILL);
    let _ = child.wait();
}

/// Ignores errors: there may be no process left in the group.
fn signal(group: u32, signal: Signal) {
    if let Some(group) = i32::try_from(group).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(group, signal);
    }
}

/// Runs a program of [`command`] and returns its output. Ends it if `stop` is set.
///
/// # Errors
/// [`Error::Interrupted`], and if it cannot be started.
pub(crate) fn output(mut command: Command, stop: &AtomicBool) -> Result<Output, Error> {
    let name = command.get_args().nth(3).unwrap_or_default().to_owned();
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(Error::file("Could not start", &name))?;
    let group = child.id();
    let (sender, ended) = sync_channel(1);
    std::thread::spawn(move || sender.send(child.wait_with_output()));
    loop {
        match ended.recv_timeout(TURN) {
            Ok(output) => return output.map_err(Error::file("Could not wait for", &name)),
            Err(RecvTimeoutError::Timeout) if !stop.load(Ordering::Relaxed) => {}
            Err(_) => {
                signal(group, Signal::TERM);
                if ended.recv_timeout(PATIENCE).is_err() {
                    signal(group, Signal::KILL);
                }
                return Err(Error::Interrupted);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn a_program_ends_when_the_build_stops() {
        let mut echo = command("echo");
        echo.arg("said");
        assert_eq!(output(echo, &AtomicBool::new(false)).unwrap().stdout, b"said\n");
        let begun = Instant::now();
        let mut sh = command("sh");
        sh.args(["-c", "sleep 60; true"]);
        assert!(matches!(output(sh, &AtomicBool::new(true)), Err(Error::Interrupted)));
        assert!(begun.elapsed() < Duration::from_secs(20));
    }
}
