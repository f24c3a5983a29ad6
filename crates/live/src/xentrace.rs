//! Xen's trace buffers while they fill, through the `xentrace` program of Xen's own tools.
//!
//! libxenctrl's interface changes from one version of Xen to the next; the program of a version knows its own. What it
//! writes to a pipe is what it writes to a file (`tools/xentrace/xentrace.c`).

use std::collections::VecDeque;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::clock::{process_time, thread_time};

/// Exits and entries of guests with what they were about (`TRC_HVM`, without its emulation of nested guests), and who
/// runs where (`TRC_SCHED_MIN`): `xen/include/public/trace.h`.
const EVENTS: &str = "0xaf000";
/// The interval at which xentrace polls for new records, in milliseconds.
const POLL: &str = "50";
/// Pages of each processor's buffer: 1 MiB, which a busy guest fills in a tenth of a second or longer. Xen takes the
/// size from the first who asks after its boot.
const BUFFER_PAGES: &str = "256";
/// A read gives up for now when nothing came for so long.
const QUIET: Duration = Duration::from_millis(50);
/// The time that xentrace has to end when it was asked to.
const PATIENCE: Duration = Duration::from_secs(5);
const PIECE: usize = 64 << 10;
/// Pieces that may wait for their reader: 16 MiB. A slower reader slows xentrace down, and Xen counts what it loses.
const MOST_WAITING: usize = 256;

/// The reason why xentrace gives nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum XentraceError {
    /// It could not be started.
    #[error("Could not start {program}, which reads Xen's trace buffers; install {}", package(program), program = program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// It ended by itself.
    #[error("{program} ended by itself ({status}): {said}", program = program.display())]
    Ended {
        /// The program.
        program: PathBuf,
        /// Its exit status in words.
        status: String,
        /// The last line that it printed.
        said: String,
    },
    /// Its end could not be waited for.
    #[error("Could not wait for {program}", program = program.display())]
    Wait {
        /// The program.
        program: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

/// Debian's package of a program, that of its version if its directory says which.
fn package(program: &Path) -> String {
    let mut names = program.iter().filter_map(|name| name.to_str()?.strip_prefix("xen-"));
    let version = names.find(|version| version.starts_with(|first: char| first.is_ascii_digit()));
    version.map_or_else(|| "xen-utils".to_owned(), |version| format!("xen-utils-{version}"))
}

/// A running xentrace. Dropping it ends it, so that Xen stops tracing.
#[derive(Debug)]
pub struct Xentrace {
    program: PathBuf,
    child: Child,
    passing: Option<JoinHandle<()>>,
    said: Option<JoinHandle<String>>,
    asked: bool,
}

/// Its output. A read returns [`io::ErrorKind::WouldBlock`] when nothing came for a moment, and nothing at the end.
#[derive(Debug)]
pub struct XentraceOutput {
    pieces: Receiver<Vec<u8>>,
    rest: VecDeque<u8>,
}

impl Xentrace {
    /// Starts it on every processor. Records of before are thrown away.
    ///
    /// # Errors
    /// [`XentraceError::Start`].
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
        let running = Self { program: program.to_owned(), child, passing, said, asked: false };
        Ok((running, XentraceOutput { pieces, rest: VecDeque::new() }))
    }

    /// CPU time so far of the program and of the thread that takes what it writes.
    #[must_use]
    pub fn cpu_time(&self) -> Duration {
        process_time(&self.child) + self.passing.as_ref().map(thread_time).unwrap_or_default()
    }

    /// Asks it to write what is left and to end; Xen stops tracing.
    pub fn stop(&mut self) {
        self.asked = true;
        // That it is gone already is seen when it is waited for.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
    }

    /// Waits for its end, and ends it when it takes longer than it may. Its output can be read meanwhile, and after that.
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

    /// Waits for its end, to be called when its output has ended or nobody wants it any more.
    ///
    /// # Errors
    /// [`XentraceError::Ended`] when nobody had asked it to end, [`XentraceError::Wait`].
    pub fn finish(mut self) -> Result<(), XentraceError> {
        let status = self.wait()?;
        let said = self.said.take().and_then(|said| said.join().ok()).unwrap_or_default();
        if self.asked || status.success() {
            return Ok(());
        }
        let said = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
        Err(XentraceError::Ended {
            program: self.program.clone(),
            status: status.to_string(),
            said: said.trim().to_owned(),
        })
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

/// The last bytes that come. All of them are taken: once nobody reads them, the next message ends the program.
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
