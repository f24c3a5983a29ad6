//! Xen's trace buffers while they are filled, through the `xentrace` program of Xen's tools.
//!
//! libxenctrl's interface changes with each version of Xen, but each version's own xentrace uses the right one. It
//! writes the same format to a pipe as to a file (`tools/xentrace/xentrace.c`).

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use programs::end_within;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::fcntl_setpipe_size;
use rustix::process::{Pid, Signal, kill_process};

use crate::clock::{process_time, thread_time};

/// The events to trace: exits and entries of guests with their details (`TRC_HVM`, without its events of nested
/// guests), and scheduling (`TRC_SCHED_MIN`): `xen/include/public/trace.h`.
const EVENTS: &str = "0xaf000";
/// The interval at which xentrace polls for new records, in milliseconds.
const POLL: &str = "50";
/// The sizes to try for each CPU's buffer, in pages. A busy guest fills the first, 1 MiB, in 100 ms or more; the others
/// are for hosts whose memory is given to domains. Xen keeps the first size that it has memory for.
const BUFFER_PAGES: [&str; 3] = ["256", "64", "16"];
/// xentrace's last message if Xen has no memory for the buffers (`get_tbufs`; Xen's `tb_control`, `-EINVAL`).
const NO_BUFFERS: &str = "Couldn't enable trace buffers: Invalid argument";
/// The sizes of xentrace's pipe: two full buffers of a CPU, each of which is one write, or else what any user may ask for
/// (`pipe-max-size`).
const PIPES: [usize; 2] = [2 << 20, 1 << 20];
/// A read returns `WouldBlock` if nothing arrives for this time.
const QUIET: Duration = Duration::from_millis(50);
/// The time for the first records, which come with the first event on any CPU, also of the control domain.
const FIRST: Duration = Duration::from_secs(2);
/// The longest wait for a pause of xentrace in which it is asked to end, and then for its end.
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
    /// xentrace ended before it was asked to.
    #[error("{program} ended early ({status}): {said}", program = program.display())]
    Ended {
        /// The program.
        program: PathBuf,
        /// Its exit status as text.
        status: String,
        /// The last line of its standard error, or the cause if it succeeded.
        said: String,
    },
    /// Xen has no memory for buffers of the smallest size.
    #[error("Could not trace with {program}: Xen has too little free memory (`xl info`, free_memory) for a buffer of 64 KiB per CPU; free some with `xl mem-set 0 SIZE`, which shrinks dom0", program = program.display())]
    Memory {
        /// The program.
        program: PathBuf,
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
    /// The reading end of its standard output.
    output: Option<Arc<File>>,
    passing: Option<JoinHandle<()>>,
    said: Option<JoinHandle<String>>,
    /// It has made Xen trace.
    traces: bool,
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
    /// [`XentraceError::Start`], [`XentraceError::Ended`] if it fails at once, [`XentraceError::Memory`],
    /// [`XentraceError::Wait`].
    pub fn start(program: &Path) -> Result<(Self, XentraceOutput), XentraceError> {
        for pages in BUFFER_PAGES {
            match Self::start_with(program, pages) {
                Err(XentraceError::Ended { said, .. }) if said.contains(NO_BUFFERS) => {}
                started => return started,
            }
        }
        Err(XentraceError::Memory { program: program.to_owned() })
    }

    fn start_with(program: &Path, pages: &str) -> Result<(Self, XentraceOutput), XentraceError> {
        let failed = |source| XentraceError::Start { program: program.to_owned(), source };
        let mut child = Command::new(program)
            .args(["-D", "-e", EVENTS, "-s", POLL, "-S", pages])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // A Ctrl-C must not reach it in the middle of a write; see `stop`.
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        let (sender, pieces) = sync_channel(MOST_WAITING);
        let output = child.stdout.take().map(|output| Arc::new(File::from(OwnedFd::from(output))));
        let passing = output.clone().map(|output| {
            // Without a larger pipe, more writes wait for room, and `stop` waits for them.
            let _ = PIPES.iter().any(|&size| fcntl_setpipe_size(&output, size).is_ok());
            std::thread::spawn(move || pass_on(output, &sender))
        });
        let said = child
            .stderr
            .take()
            .map(|errors| std::thread::spawn(move || String::from_utf8_lossy(&last_of(errors)).into_owned()));
        let program = program.to_owned();
        let mut running = Self { program, child, output, passing, said, traces: false, asked: false };
        let first = pieces.recv_timeout(FIRST);
        if first == Err(RecvTimeoutError::Disconnected) {
            let status = running.wait()?;
            return Err(running.ended(status));
        }
        running.traces = true;
        Ok((running, XentraceOutput { pieces, rest: first.unwrap_or_default().into() }))
    }

    /// The CPU time so far of xentrace and of the thread that reads its output.
    #[must_use]
    pub fn cpu_time(&self) -> Duration {
        process_time(&self.child) + self.passing.as_ref().map(thread_time).unwrap_or_default()
    }

    /// Asks xentrace to write the rest and to end; Xen stops tracing. Does nothing if it has ended or closed its output.
    ///
    /// A signal cuts a write that waits for room in the pipe, and after that xentrace exits without making Xen stop
    /// (`write_buffer`). So it is asked when the pipe is empty: what it writes then fits in.
    pub fn stop(&mut self) {
        let begun = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            let pipe = self.pipe();
            if pipe.contains(PollFlags::HUP) {
                return;
            }
            if !pipe.contains(PollFlags::IN) || begun.elapsed() > PATIENCE {
                self.asked = true;
                // Fails if it has just ended, which `wait` finds out.
                let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The state of the pipe: `IN` if it has records that were not read yet, `HUP` if nothing more can come.
    fn pipe(&self) -> PollFlags {
        let Some(output) = &self.output else { return PollFlags::empty() };
        let mut polled = [PollFd::new(output, PollFlags::IN)];
        let found = poll(&mut polled, Some(&Timespec::default()));
        found.map_or(PollFlags::empty(), |_| polled[0].revents())
    }

    /// Waits for xentrace to end, and kills it after [`PATIENCE`]. Its output can be read meanwhile and afterwards.
    pub(crate) fn wait(&mut self) -> Result<ExitStatus, XentraceError> {
        let wait = |source| XentraceError::Wait { program: self.program.clone(), source };
        end_within(&mut self.child, PATIENCE).map_err(wait)
    }

    /// Waits for xentrace to end. Call it when the output has ended or is not needed any more.
    ///
    /// # Errors
    /// [`XentraceError::Ended`] if it ended without having been asked to, [`XentraceError::Wait`].
    pub fn finish(mut self) -> Result<(), XentraceError> {
        let status = self.wait()?;
        if self.asked { Ok(()) } else { Err(self.ended(status)) }
    }

    fn ended(&mut self, status: ExitStatus) -> XentraceError {
        let said = self.said.take().and_then(|said| said.join().ok()).unwrap_or_default();
        let last = || programs::last_lines(&said, 1).pop().unwrap_or("it said nothing");
        // It prints what it sets, and nothing when a signal ends it.
        let said = if status.success() { "another program stopped it" } else { last() };
        XentraceError::Ended {
            program: self.program.clone(),
            status: status.to_string(),
            said: said.trim().to_owned(),
        }
    }
}

impl Drop for Xentrace {
    fn drop(&mut self) {
        if !self.asked {
            self.stop();
        }
        let orderly = end_within(&mut self.child, PATIENCE).is_ok_and(|status| status.success());
        if self.traces && !orderly {
            switch_off(&self.program);
        }
    }
}

/// Makes Xen stop tracing after an xentrace that failed. Only an xentrace that ends in order does that, so this runs one
/// that ends after a second.
fn switch_off(program: &Path) {
    let mut xentrace = Command::new(program);
    xentrace.args(["-D", "-T", "1"]).process_group(0);
    let started = xentrace.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let why = match started.and_then(|mut child| end_within(&mut child, PATIENCE)) {
        Ok(status) if status.success() => return,
        Ok(status) => status.to_string(),
        Err(error) => error.to_string(),
    };
    tracing::warn!(
        "Could not make Xen stop tracing, which costs CPU time ({why}); run `{} -D -T 1 /dev/null` to stop it",
        program.display()
    );
}

/// Passes the output on, and reads all of it even if nobody takes it: xentrace must not wait for room when it is
/// stopped.
fn pass_on(mut output: impl Read, pieces: &SyncSender<Vec<u8>>) {
    let mut piece = vec![0; PIECE];
    loop {
        match output.read(&mut piece) {
            Ok(0) => return,
            Ok(count) => {
                let _ = pieces.send(piece[..count].to_vec());
            }
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
