//! The host's end of the agent's channel: QEMU's standard input and output, or the console of a Xen domain.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use guest::pipes::Sink;
use guest::{Decoder, Ending, Frame, Hello, Kind, Line};

use super::last_words::LastWords;
use super::reception::Reception;
use super::waiting::Waiting;
use super::{Armed, GuestError};

/// The channel to one agent.
pub(super) struct Connection {
    guest: Mutex<Box<dyn Write + Send>>,
    state: Mutex<State>,
    changed: Condvar,
    last_words: LastWords,
}

#[derive(Debug, Default)]
struct State {
    last_job: u32,
    jobs: BTreeMap<u32, Arc<Reception>>,
    hello: Option<Result<Hello, String>>,
    gone: bool,
}

impl Connection {
    /// Reads frames from `from` and writes frames to `to`.
    pub(super) fn new(
        to: impl Write + Send + 'static,
        mut from: impl Read + Send + 'static,
        last_words: LastWords,
    ) -> Arc<Self> {
        let (state, changed) = (Mutex::default(), Condvar::new());
        let connection = Arc::new(Self { guest: Mutex::new(Box::new(to)), state, changed, last_words });
        let own = Arc::clone(&connection);
        std::thread::spawn(move || {
            let mut decoder = Decoder::default();
            let mut buffer = vec![0; 64 << 10];
            while let Ok(count @ 1..) = from.read(&mut buffer) {
                decoder.push(&buffer[..count]);
                while let Some(frame) = decoder.next_frame() {
                    own.take(&frame);
                }
            }
            own.lose();
        });
        connection
    }

    pub(super) fn send(&self, frame: &Frame) -> io::Result<()> {
        let mut guest = self.guest.lock().unwrap_or_else(PoisonError::into_inner);
        guest.write_all(&frame.encode())?;
        guest.flush()
    }

    /// Asks the guest to power off. Does not wait for the request to be sent: if the guest does not read, the write
    /// blocks until the guest ends.
    pub(super) fn power_off(self: &Arc<Self>) {
        let own = Arc::clone(self);
        // Fails if the guest has ended already.
        std::thread::spawn(move || own.send(&Frame::new(Kind::PowerOff, 0, [])));
    }

    /// The agent's greeting, if it arrives within `patience`.
    pub(super) fn wait_hello(&self, patience: Duration) -> Result<Option<Hello>, String> {
        let state = self.lock();
        let waiting = |state: &mut State| state.hello.is_none();
        let waited = self.changed.wait_timeout_while(state, patience, waiting);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.hello.take().transpose()
    }

    /// Tests whether the connection is closed, or becomes closed within `patience`.
    pub(super) fn is_gone(&self, patience: Duration) -> bool {
        let waited = self.changed.wait_timeout_while(self.lock(), patience, |state| !state.gone);
        waited.unwrap_or_else(PoisonError::into_inner).0.gone
    }

    fn take(&self, frame: &Frame) {
        let at_ns = live::monotonic_ns();
        let mut state = self.lock();
        let text = || String::from_utf8_lossy(&frame.payload).into_owned();
        match frame.kind {
            Kind::Hello => {
                let hello = serde_json::from_slice(&frame.payload);
                state.hello =
                    Some(hello.map_err(|error| format!("its agent's greeting is not understood: {error}")));
            }
            Kind::Failed => state.hello = Some(Err(format!("its agent gave up: {}", text()))),
            Kind::Stdout | Kind::Stderr | Kind::Ended => {
                let Some(job) = state.jobs.get(&frame.job) else { return };
                match frame.kind {
                    Kind::Stdout => job.stdout_at(&frame.payload, at_ns),
                    Kind::Stderr => job.stderr(&frame.payload),
                    _ => {
                        job.ended(text().parse().unwrap_or(125), at_ns);
                        state.jobs.remove(&frame.job);
                    }
                }
            }
            // Only the host sends these; ignore them.
            Kind::Start | Kind::Release | Kind::Terminate | Kind::Kill | Kind::PowerOff => (),
        }
        drop(state);
        self.changed.notify_all();
    }

    fn lose(&self) {
        let mut state = self.lock();
        state.gone = true;
        for job in std::mem::take(&mut state.jobs).into_values() {
            let last_words = &self.last_words;
            job.broke(&format!("the agent's channel was closed: the guest has ended{last_words}"));
        }
        drop(state);
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The control of one script over the channel.
pub(super) struct AgentLine {
    connection: Arc<Connection>,
    job: u32,
}

impl AgentLine {
    /// Sends a script to the agent of `guest`, and waits until the script is ready for its release.
    pub(super) fn arm(
        connection: &Arc<Connection>,
        guest: &str,
        script: &str,
        limit: Duration,
    ) -> Result<Box<dyn Armed>, GuestError> {
        let (line, reception) = Self::start(connection, script).map_err(|error| GuestError::Unreachable {
            name: guest.to_owned(),
            why: format!("sending a script: {error}"),
        })?;
        Ok(Box::new(Waiting::new(guest, limit, reception, Box::new(line))?))
    }

    fn start(connection: &Arc<Connection>, script: &str) -> io::Result<(Self, Arc<Reception>)> {
        let reception = Reception::new();
        let job = {
            let mut state = connection.lock();
            if state.gone {
                return Err(io::Error::other(format!("the guest has ended{}", connection.last_words)));
            }
            state.last_job = state.last_job.wrapping_add(1);
            let job = state.last_job;
            state.jobs.insert(job, Arc::clone(&reception));
            job
        };
        connection.send(&Frame::new(Kind::Start, job, script))?;
        Ok((Self { connection: Arc::clone(connection), job }, reception))
    }
}

impl Line for AgentLine {
    fn release(&mut self) -> io::Result<()> {
        self.connection.send(&Frame::new(Kind::Release, self.job, []))
    }

    fn end(&mut self, how: Ending, _group: i32) -> io::Result<()> {
        let kind = match how {
            Ending::Terminate => Kind::Terminate,
            Ending::Kill => Kind::Kill,
        };
        self.connection.send(&Frame::new(kind, self.job, []))
    }
}
