//! Xen's trace buffers while they are filled, through the `xentrace` program of Xen's tools.
//!
//! libxenctrl's interface changes with each version of Xen, but each version's own xentrace uses the right one. It
//! writes the same format to a pipe as to a file (`tools/xentrace/xentrace.c`).

use std::collections::VecDeque;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::clock::{process_time, thread_time};

/// The events to trace: exits and entries of guests with their details (`TRC_HVM`, without its events of nested
/// guests), and scheduling (`TRC_SCHED_MIN`): `xen/include/public/trace.h`.
const EVENTS: &str = "0xaf000";
/// The interval at which xentrace polls for new records, in milliseconds.
const POLL: &str = "50";
/// The size of each CPU's buffer in pages: 1 MiB, which a busy guest fills in 100 ms or more. Xen keeps the size that
/// the first caller after its boot sets.
const BUFFER_PAGES: &str = "256";
/// A read returns `WouldBlock` if nothing arrives for this time.
const QUIET: Duration = Duration::from_millis(50);
/// The time for the first records, which come with the first event on any CPU, also of the control domain.
const FIRST: Duration = Duration::from_secs(2);
/// The time that xentrace has to end after it was asked to.
const PATIENCE: Duration = Duration::from_secs(5);
const PIECE: usize = 64 << 10;
/// The most pieces that wait for the reader: 16 MiB. A slower reader blocks xentrace, and Xen counts the records that
/// it loses.
const MOST_WAITING: usize = 256;

/// The reason why xentrace provides no records.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum XentraceError {
    /// xentrace could not be started.
    #[error("Could not start {program}, which reads Xen's trace buffers; install {}", package(program), program = program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// xentrace ended by itself.
    #[error("{program} ended by itself ({status}): {said}", program = program.display())]
    Ended {
        /// The program.
        program: PathBuf,
        /// Its exit status as text.
        status: String,
        /// The last line of its standard error.
        said: String,
    },
    /// Waiting for its end failed.
    #[error("Could not wait for {program}", program = program.display())]
    Wait {
        /// The program.
        program: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

/// Debian's package of a program, with the version in the program's directory if there is one.
fn package(program: &Path) -> String {
    let mut names = program.iter().filter_map(|name| name.to_str()?.strip_prefix("xen-"));
    let version = names.find(|version| version.starts_with(|first: char| first.is_ascii_digit()));
    version.map_or_else(|| "xen-utils".to_owned(), |version| format!("xen-utils-{version}"))
}

/// A running xentrace. Dropping it terminates the program, so that Xen stops tracing.
#[derive(Debug)]
pub struct Xentrace {
    program: PathBuf,
    child: Child,
    passing: Option<JoinHandle<()>>,
    said: Option<JoinHandle<String>>,
    asked: bool,
}

/// The output of xentrace. A read returns [`io::ErrorKind::WouldBlock`] if nothing arrives for a moment, and 0 at the
/// end.
#[derive(Debug)]
pub struct XentraceOutput {
    pieces: Receiver<Vec<u8>>,
    rest: VecDeque<u8>,
}

impl Xentrace {
    /// Starts xentrace on all CPUs, discards older records, and waits for the first new ones: then Xen traces.
    ///
    /// # Errors
    /// [`XentraceError::Start`], [`XentraceError::Ended`] if it fails at once, [`XentraceError::Wait`].
    pub fn start(program: &Path) -> Result<(Self, XentraceOutput), XentraceError> {
        let failed = |source| XentraceError::Start { program: program.to_owned(), source };
        let mut child = Command::new(program)
            .args(["-D", "-e", EVENTS, "-s", POLL, "-S", BUFFER_PAGES])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let (sender, pieces) = sync_channel(MOST_WAITING);
        let passing = child
            .stdout
            .take()
            .map(|output| std::thread::spawn(move || pass_on(output, |piece| sender.send(piece).is_ok())));
        let said = child
            .stderr
            .take()
            .map(|errors| std::thread::spawn(move || String::from_utf8_lossy(&last_of(errors)).into_owned()));
        let mut running = Self { program: program.to_owned(), child, passing, said, asked: false };
        let first = pieces.recv_timeout(FIRST);
        if first == Err(RecvTimeoutError::Disconnected) {
            let status = running.wait()?;
            if !status.success() {
                return Err(running.ended(status));
            }
        }
        Ok((running, XentraceOutput { pieces, rest: first.unwrap_or_default().into() }))
    }

    /// The CPU time so far of xentrace and of the thread that reads its output.
    #[must_use]
    pub fn cpu_time(&self) -> Duration {
        process_time(&self.child) + self.passing.as_ref().map(thread_time).unwrap_or_default()
    }

    /// Asks xentrace to write the rest and to end; Xen stops tracing.
    pub fn stop(&mut self) {
        self.asked = true;
        // Fails if it has already ended, which `wait` finds out.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
    }

    /// Waits for xentrace to end, and kills it after [`PATIENCE`]. Its output can be read meanwhile and afterwards.
    pub(crate) fn wait(&mut self) -> Result<ExitStatus, XentraceError> {
        let wait = |source| XentraceError::Wait { program: self.program.clone(), source };
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().map_err(wait)? {
                return Ok(status);
            }
            if begun.elapsed() > PATIENCE {
                self.child.kill().map_err(wait)?;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits for xentrace to end. Call it when the output has ended or is not needed any more.
    ///
    /// # Errors
    /// [`XentraceError::Ended`] if it failed without having been asked to end, [`XentraceError::Wait`].
    pub fn finish(mut self) -> Result<(), XentraceError> {
        let status = self.wait()?;
        if self.asked || status.success() { Ok(()) } else { Err(self.ended(status)) }
    }

    fn ended(&mut self, status: ExitStatus) -> XentraceError {
        let said = self.said.take().and_then(|said| said.join().ok()).unwrap_or_default();
        let said = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
        XentraceError::Ended {
            program: self.program.clone(),
            status: status.to_string(),
            said: said.trim().to_owned(),
        }
    }
}

impl Drop for Xentrace {
    fn drop(&mut self) {
        let begun = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            if begun.elapsed() > PATIENCE {
                let _ = self.child.kill();
            } else if !self.asked {
                self.stop();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn pass_on(mut output: ChildStdout, mut take: impl FnMut(Vec<u8>) -> bool) {
    let mut piece = vec![0; PIECE];
    loop {
        match output.read(&mut piece) {
            Ok(0) => return,
            Ok(count) if !take(piece[..count].to_vec()) => return,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

/// The last bytes of standard error. Reads all of it: if the pipe were closed, the next message would end the
/// program.
fn last_of(mut errors: impl Read) -> Vec<u8> {
    let (mut last, mut piece) = (Vec::new(), vec![0; PIECE]);
    loop {
        match errors.read(&mut piece) {
            Ok(0) => return last,
            Ok(count) => {
                last.extend_from_slice(&piece[..count]);
                last.drain(..last.len().saturating_sub(PIECE));
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return last,
        }
    }
}

impl Read for XentraceOutput {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.rest.is_empty() {
            match self.pieces.recv_timeout(QUIET) {
                Ok(piece) => self.rest = piece.into(),
                Err(RecvTimeoutError::Timeout) => return Err(io::ErrorKind::WouldBlock.into()),
                Err(RecvTimeoutError::Disconnected) => return Ok(0),
            }
        }
        self.rest.read(buffer)
    }
}

#[cfg(test)]
#[path = "xentrace_tests.rs"]
mod tests;
