//! The emulator's process: its frames, its console, and its end.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use crate::emulator_time::EmulatorTime;
use crate::error::Error;
use crate::frames::{Decoder, Frame};
use crate::input::Input;
use crate::namespaces;
use crate::tools::Invocation;

/// A machine's command, and the file of its console.
#[derive(Debug)]
pub(crate) struct PowerOn {
    pub(crate) invocation: Invocation,
    pub(crate) console: PathBuf,
    pub(crate) log: Option<PathBuf>,
}

/// A running emulator. It is killed when this is dropped, or by the kernel when this program is killed.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    time: EmulatorTime,
    pieces: Receiver<Vec<u8>>,
    decoder: Decoder,
    console: PathBuf,
    logs: Vec<PathBuf>,
    /// Keeps the emulator's input open until this is dropped. Receives the error if a file could not be sent.
    input: Option<Receiver<Option<Error>>>,
    /// The number of bytes of the input that were sent.
    sent: Arc<AtomicU64>,
}

/// Counts the bytes that are written, in pieces of at most a pipe's capacity.
struct Counted<W> {
    to: W,
    bytes: Arc<AtomicU64>,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.to.write(&bytes[..bytes.len().min(64 << 10)])?;
        self.bytes.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// An event from the emulator.
#[derive(Debug)]
pub(crate) enum Event {
    Frame(Frame),
    /// Nothing happened within the time limit.
    Quiet,
    /// The emulator ended, and all of its output has been read.
    Ended(ExitStatus),
}

/// The time in which an emulator must end after it has closed its output.
const END: Duration = Duration::from_secs(10);
const PANIC: &str = "Kernel panic - not syncing";
const END_WITH_PARENT: [&str; 4] = ["setpriv", "--pdeathsig", "KILL", "--"];

impl Process {
    /// Starts the emulator, in a new network namespace if this machine permits: Bochs's display opens a port,
    /// which must not be reachable from outside and would conflict with other laboratories.
    pub(crate) fn start(power_on: &PowerOn, folder: &Path) -> Result<Self, Error> {
        let wrapper: Vec<&str> = namespaces::own_network().iter().chain(&END_WITH_PARENT).copied().collect();
        let messages = folder.join("emulator.log");
        let log = fs::File::create(&messages).map_err(Error::file("Could not write", &messages))?;
        let mut child = power_on
            .invocation
            .command_under(&wrapper)
            // The terminal's signals are for this program, which ends the emulator, or goes on under nohup(1): QEMU ends
            // on a hang-up even if that is ignored when it starts.
            .process_group(0)
            // Stays open to the end: QEMU treats end of input as a hangup.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .current_dir(folder)
            .spawn()
            .map_err(Error::file("Could not start", wrapper[0]))?;
        let (sender, pieces) = sync_channel::<Vec<u8>>(256);
        if let Some(mut stdout) = child.stdout.take() {
            std::thread::spawn(move || {
                let mut buffer = vec![0; 64 << 10];
                while let Ok(count @ 1..) = stdout.read(&mut buffer) {
                    if sender.send(buffer[..count].to_vec()).is_err() {
                        break;
                    }
                }
            });
        }
        let time = EmulatorTime::of(child.id());
        let logs = power_on.log.iter().cloned().chain([messages]).collect();
        Ok(Self {
            child,
            time,
            pieces,
            decoder: Decoder::default(),
            console: power_on.console.clone(),
            logs,
            input: None,
            sent: Arc::default(),
        })
    }

    /// The number of bytes of the input that the emulator has taken so far.
    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// The time that the emulator has had.
    pub(crate) fn time(&self) -> EmulatorTime {
        self.time
    }

    /// Sends the input as fast as the agent reads it. If the emulator ends first, the rest is dropped; its
    /// exit gives the reason.
    pub(crate) fn send(&mut self, input: Input) {
        let Some(stdin) = self.child.stdin.take() else { return };
        let mut stdin = Counted { to: stdin, bytes: Arc::clone(&self.sent) };
        let (sender, kept) = sync_channel(0);
        self.input = Some(kept);
        std::thread::spawn(move || {
            let mut failure = input.send(&mut stdin).err().flatten();
            // Ends when the `Process`, and with it the receiver, is dropped.
            while sender.send(failure.take()).is_ok() {}
        });
    }

    /// Waits until the emulator exits, for at most `patience`, or until `stop` is set.
    pub(crate) fn wait(
        &mut self,
        patience: Duration,
        stop: &AtomicBool,
    ) -> Result<Option<ExitStatus>, Error> {
        let begun = Instant::now();
        self.wait_while(|| begun.elapsed() <= patience, stop)
    }

    /// Waits until the emulator exits, for at most `patience` of its time, or until `stop` is set.
    pub(crate) fn wait_its_time(
        &mut self,
        patience: Duration,
        stop: &AtomicBool,
    ) -> Result<Option<ExitStatus>, Error> {
        let has_time = self.time.limit(patience);
        self.wait_while(has_time, stop)
    }

    fn wait_while(
        &mut self,
        has_time: impl Fn() -> bool,
        stop: &AtomicBool,
    ) -> Result<Option<ExitStatus>, Error> {
        loop {
            let ended = self.child.try_wait().map_err(Error::file("Could not wait for", "the emulator"))?;
            if ended.is_some() || !has_time() {
                return Ok(ended);
            }
            if stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits for the next event, for at most `patience`.
    pub(crate) fn next(&mut self, patience: Duration) -> Result<Event, Error> {
        loop {
            if let Some(frame) = self.decoder.next() {
                return Ok(Event::Frame(frame));
            }
            match self.pieces.recv_timeout(patience) {
                Ok(piece) => self.decoder.push(&piece),
                Err(RecvTimeoutError::Timeout) => {
                    let sent = self.input.as_ref().and_then(|input| input.try_recv().ok());
                    return sent.flatten().map_or(Ok(Event::Quiet), Err);
                }
                Err(RecvTimeoutError::Disconnected) => return self.end().map(Event::Ended),
            }
        }
    }

    /// Waits for the exit of an emulator that has closed its output, and kills it if it takes too long.
    fn end(&mut self) -> Result<ExitStatus, Error> {
        programs::end_within(&mut self.child, END).map_err(Error::file("Could not end", "the emulator"))
    }

    /// If the console's file has become large, keeps only the end of it.
    pub(crate) fn keep_end_of_console(&self) {
        if let Err(error) = files::keep_end(&self.console, LARGEST_CONSOLE, LAST_PART) {
            tracing::debug!("the console takes more and more space: {error}");
        }
    }

    /// Tests whether the console shows a kernel panic.
    pub(crate) fn panicked(&self) -> bool {
        text(&self.console).contains(PANIC)
    }

    /// The console from a panic on, or else its last lines, or else those of the emulator's messages.
    pub(crate) fn last_words(&self) -> String {
        const LINES: usize = 15;
        let console = text(&self.console);
        if let Some(panic) = console.lines().position(|line| line.contains(PANIC)) {
            return console.lines().skip(panic).take(LINES).collect::<Vec<_>>().join("\n");
        }
        let console = programs::last_lines(&console, LINES).join("\n");
        if !console.is_empty() {
            return console;
        }
        let noise = String::from_utf8_lossy(self.decoder.noise()).into_owned();
        let messages: String = self.logs.iter().map(|log| text(log)).collect();
        let all = programs::last_lines(&(noise + "\n" + &messages), LINES).join("\n");
        if all.is_empty() { "(the console is empty)".to_owned() } else { all }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Fails if the emulator has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The number of bytes of a console that are read, from its end.
const LAST_PART: u64 = 1 << 20;
/// The largest file for a console.
const LARGEST_CONSOLE: u64 = 64 << 20;

/// The end of a file that a kernel or an emulator writes; the file may have any size.
fn text(path: &Path) -> String {
    String::from_utf8_lossy(&files::read_end(path, LAST_PART).unwrap_or_default()).into_owned()
}

/// Starts a program instead of an emulator.
#[cfg(test)]
pub(crate) fn started(folder: &Path, program: &str, arguments: &[&str]) -> Process {
    let mut invocation = Invocation::of_host(program);
    invocation.args(arguments);
    let power_on = PowerOn { invocation, console: folder.join("console"), log: None };
    Process::start(&power_on, folder).unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::tests::input_with;

    #[test]
    fn a_file_that_cannot_be_sent_ends_the_run() {
        let folder = tempfile::tempdir().unwrap();
        let mut process = started(folder.path(), "cat", &[]);
        process.send(input_with(b"12345", 6));
        let failure = loop {
            match process.next(Duration::from_millis(20)) {
                Ok(Event::Ended(status)) => panic!("{status}"),
                Ok(_) => {}
                Err(failure) => break failure,
            }
        };
        assert!(failure.to_string().ends_with("log"), "{failure}");
    }

    #[test]
    fn a_signal_of_the_terminal_does_not_reach_the_emulator() {
        let folder = tempfile::tempdir().unwrap();
        // proc_pid_stat(5): the ID, the command's name, the state, the parent, the process group.
        let script = "read -r _ _ _ _ group _ </proc/$$/stat; [ $group = $$ ]";
        let mut process = started(folder.path(), "sh", &["-c", script]);
        let status = loop {
            if let Event::Ended(status) = process.next(Duration::from_millis(20)).unwrap() {
                break status;
            }
        };
        assert!(status.success(), "{status}");
    }

    #[test]
    fn the_thread_that_sends_ends_with_its_process() {
        let folder = tempfile::tempdir().unwrap();
        let mut process = started(folder.path(), "sleep", &["100"]);
        // More than a pipe can hold, so that the thread blocks while sending.
        process.send(input_with(&vec![0; 1 << 20], 1 << 20));
        let kept = process.input.take().unwrap();
        drop(process);
        while kept.recv_timeout(Duration::from_secs(10)).unwrap().is_some() {}
        drop(kept);
    }
}
