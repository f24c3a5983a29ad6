//! A local process whose outputs and exit status go to a sink.

use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use rustix::time::{ClockId, clock_gettime};

use crate::line::{Ending, Line};

/// How long to keep reading outputs after the process has ended: its background processes may hold them open.
/// Time in which the sink is busy does not count.
const LEFTOVERS: Duration = Duration::from_secs(1);

/// The receiver of a process's outputs and exit status.
pub trait Sink: Send + Sync {
    /// The process printed this to standard output.
    fn stdout(&self, bytes: &[u8]);

    /// The process printed this to standard error.
    fn stderr(&self, bytes: &[u8]);

    /// The process ended with this status, in a shell's numbering, at this time of CLOCK_MONOTONIC in nanoseconds.
    fn ended(&self, status: i32, at_ns: u64);
}

/// A process in its own process group, which is released through its standard input.
#[derive(Debug)]
pub struct Piped {
    stdin: Option<ChildStdin>,
    group: Option<Pid>,
    /// False just before the process is reaped: its ID may be reused afterwards.
    alive: Arc<Mutex<bool>>,
}

/// Starts a command; its outputs and exit status go to the sink.
///
/// # Errors
/// If it does not start.
pub fn start(mut command: Command, sink: &Arc<impl Sink + 'static>) -> io::Result<Piped> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn()?;
    let stdin = child.stdin.take();
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let (done, all_read) = sync_channel(1);
    if let Some(stdout) = child.stdout.take() {
        let (sink, done) = (Arc::clone(sink), done.clone());
        read(stdout, done, move |bytes| sink.stdout(bytes));
    }
    if let Some(stderr) = child.stderr.take() {
        let sink = Arc::clone(sink);
        read(stderr, done, move |bytes| sink.stderr(bytes));
    }
    let alive = Arc::new(Mutex::new(true));
    let (sink, still) = (Arc::clone(sink), Arc::clone(&alive));
    thread::spawn(move || {
        let (status, ended_ns) = wait(child, group, &still);
        drain(&all_read);
        // Only a process that another thread had reaped has no status, and there is none.
        sink.ended(status.map_or(125, code), ended_ns);
    });
    Ok(Piped { stdin, group, alive })
}

/// Waits for the exit before reaping, so that [`Piped::signal`] cannot hit another process with a reused ID.
fn wait(mut child: Child, pid: Option<Pid>, alive: &Mutex<bool>) -> (io::Result<ExitStatus>, u64) {
    if let Some(pid) = pid {
        let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while let Err(Errno::INTR) = waitid(WaitId::Pid(pid), ended) {}
    }
    let now = clock_gettime(ClockId::Monotonic);
    // Neither is negative: CLOCK_MONOTONIC counts from boot.
    let ended_ns = now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs();
    let mut alive = alive.lock().unwrap_or_else(PoisonError::into_inner);
    *alive = false;
    (child.wait(), ended_ns)
}

fn read(
    mut from: impl Read + Send + 'static,
    done: impl Send + 'static,
    take: impl Fn(&[u8]) + Send + 'static,
) {
    thread::spawn(move || {
        let mut buffer = vec![0; 32 << 10];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            take(&buffer[..count]);
        }
        drop(done);
    });
}

/// Waits until both readers are done and have dropped their ends.
fn drain(all_read: &Receiver<()>) {
    let _ = all_read.recv_timeout(LEFTOVERS);
}

/// The exit status as a shell gives it.
fn code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

impl Piped {
    /// Ends the process and its group.
    ///
    /// # Errors
    /// If the kernel refuses the signal.
    pub fn signal(&self, how: Ending) -> io::Result<()> {
        let alive = self.alive.lock().unwrap_or_else(PoisonError::into_inner);
        let signal = match how {
            Ending::Terminate => Signal::TERM,
            Ending::Kill => Signal::KILL,
        };
        match self.group.filter(|_| *alive) {
            Some(group) => Ok(kill_process_group(group, signal)?),
            None => Ok(()),
        }
    }
}

impl Line for Piped {
    fn release(&mut self) -> io::Result<()> {
        match self.stdin.take() {
            Some(mut stdin) => stdin.write_all(b"\n"),
            None => Ok(()),
        }
    }

    fn end(&mut self, how: Ending, _group: i32) -> io::Result<()> {
        self.signal(how)
    }
}
