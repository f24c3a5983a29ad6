//! The emulator's process: its frames, its console, and its end.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::frames::{Decoder, Frame, LARGEST_PAYLOAD};
use crate::job::{Order, PlacedFile};
use crate::machine::PowerOn;
use crate::namespaces;
use crate::packages::last_lines;

/// A running emulator. Dropping it kills the emulator; should this program be killed, the kernel does it.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    pieces: Receiver<Vec<u8>>,
    decoder: Decoder,
    console: PathBuf,
    logs: Vec<PathBuf>,
    /// While this is here, the emulator's input stays open.
    input: Option<Receiver<()>>,
}

/// What the emulator did next.
#[derive(Debug)]
pub(crate) enum Event {
    Frame(Frame),
    /// Nothing for a while.
    Quiet,
    /// It ended, and everything that it wrote has been seen.
    Ended(ExitStatus),
}

const PANIC: &str = "Kernel panic - not syncing";
const END_WITH_PARENT: [&str; 4] = ["setpriv", "--pdeathsig", "KILL", "--"];

impl Process {
    /// Starts the emulator in a network namespace of its own, where this machine allows one: Bochs's display opens a
    /// port, which nobody outside should reach and which two laboratories would otherwise contend for.
    pub(crate) fn start(power_on: &PowerOn, folder: &Path) -> Result<Self, Error> {
        let wrapper: Vec<&str> = namespaces::own_network().iter().chain(&END_WITH_PARENT).copied().collect();
        let messages = folder.join("emulator.log");
        let log = fs::File::create(&messages).map_err(Error::file("Could not write", &messages))?;
        let mut child = power_on
            .invocation
            .command_under(&wrapper)
            // Held open to the end: QEMU takes the end of its input for a host that has hung up.
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
        let logs = power_on.log.iter().cloned().chain([messages]).collect();
        Ok(Self {
            child,
            pieces,
            decoder: Decoder::default(),
            console: power_on.console.clone(),
            logs,
            input: None,
        })
    }

    /// Sends the order and its files, as fast as the agent takes them. What the agent does not take is lost with it, and
    /// its end tells why.
    pub(crate) fn order(&mut self, order: Order, files: Vec<(PlacedFile, File)>) {
        let Some(mut input) = self.child.stdin.take() else { return };
        let (sender, kept) = sync_channel(0);
        self.input = Some(kept);
        std::thread::spawn(move || {
            let _ = send_order(&mut input, order, files);
            // Until this process is dropped, and the other end of the channel with it.
            let _ = sender.send(());
        });
    }

    /// Waits until the emulator ends by itself, at most for `patience`.
    pub(crate) fn wait(&mut self, patience: Duration) -> Result<Option<ExitStatus>, Error> {
        let begun = Instant::now();
        loop {
            let ended = self.child.try_wait().map_err(Error::file("Could not wait for", "the emulator"))?;
            if ended.is_some() || begun.elapsed() > patience {
                return Ok(ended);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits for the next event, at most for `patience`.
    pub(crate) fn next(&mut self, patience: Duration) -> Result<Event, Error> {
        loop {
            if let Some(frame) = self.decoder.next() {
                return Ok(Event::Frame(frame));
            }
            match self.pieces.recv_timeout(patience) {
                Ok(piece) => self.decoder.push(&piece),
                Err(RecvTimeoutError::Timeout) => return Ok(Event::Quiet),
                Err(RecvTimeoutError::Disconnected) => {
                    let status =
                        self.child.wait().map_err(Error::file("Could not wait for", "the emulator"))?;
                    return Ok(Event::Ended(status));
                }
            }
        }
    }

    /// Whether the kernel inside has said on its console that it panicked.
    pub(crate) fn panicked(&self) -> bool {
        text(&self.console).contains(PANIC)
    }

    /// The console from the panic on, else its last lines, else those of the emulator's own messages.
    pub(crate) fn last_words(&self) -> String {
        const LINES: usize = 15;
        let console = text(&self.console);
        if let Some(panic) = console.lines().position(|line| line.contains(PANIC)) {
            return console.lines().skip(panic).take(LINES).collect::<Vec<_>>().join("\n");
        }
        let console = last_lines(&console, LINES);
        if !console.is_empty() {
            return console;
        }
        let noise = String::from_utf8_lossy(self.decoder.noise()).into_owned();
        let messages: String = self.logs.iter().map(|log| text(log)).collect();
        let all = last_lines(&(noise + "\n" + &messages), LINES);
        if all.is_empty() { "(the console is empty)".to_owned() } else { all }
    }
}

fn send_order(to: &mut impl Write, order: Order, files: Vec<(PlacedFile, File)>) -> io::Result<()> {
    to.write_all(&Frame::Order(Box::new(order)).encode())?;
    for (placed, file) in files {
        let mut contents = file.take(placed.bytes);
        let mut piece = vec![0; LARGEST_PAYLOAD / 4];
        while let count @ 1.. = contents.read(&mut piece)? {
            to.write_all(&Frame::Put(piece[..count].to_vec()).encode())?;
        }
    }
    to.flush()
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself, and then there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn text(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}
