//! Scripts that the host runs in the guest.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;

use super::WORK;
use super::channel::Sender;
use crate::frames::{Frame, Kind, PIECE};
use crate::line::{Ending, Line};
use crate::pipes::{self, Piped, Sink};
use crate::script::WAITING;

/// The scripts of this guest, by the job numbers that the host gave them.
pub(super) struct Jobs {
    sender: Arc<Sender>,
    running: BTreeMap<u32, Piped>,
}

impl Jobs {
    pub(super) fn new(sender: Arc<Sender>) -> Self {
        Self { sender, running: BTreeMap::new() }
    }

    /// Handles a frame. A signal to a script that has just ended is not an error.
    pub(super) fn attend(&mut self, frame: &Frame) {
        if frame.kind == Kind::Start {
            return self.start(frame);
        }
        let Some(job) = self.running.get_mut(&frame.job) else { return };
        let done = match frame.kind {
            Kind::Release => job.release(),
            Kind::Terminate => job.signal(Ending::Terminate),
            Kind::Kill => job.signal(Ending::Kill),
            _ => Ok(()),
        };
        if let Err(error) = done {
            tell(&self.sender, frame.job, Kind::Stderr, format!("exitless agent: {error}\n").as_bytes());
        }
    }

    fn start(&mut self, frame: &Frame) {
        let script = String::from_utf8_lossy(&frame.payload).into_owned();
        let mut command = Command::new("/bin/sh");
        command.args(["-c", WAITING, "sh", &script]).current_dir(WORK).env_clear().envs([
            ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
            ("HOME", "/root"),
            ("LANG", "C.UTF-8"),
            ("TERM", "dumb"),
            // Workloads create their files there; `/tmp` is in memory.
            ("TMPDIR", WORK),
        ]);
        let sink = Arc::new(Forward { sender: Arc::clone(&self.sender), job: frame.job });
        match pipes::start(command, &sink) {
            Ok(piped) => {
                self.running.retain(|_, job| job.is_alive());
                self.running.insert(frame.job, piped);
            }
            Err(error) => {
                sink.stderr(format!("starting /bin/sh: {error}\n").as_bytes());
                sink.ended(127, 0);
            }
        }
    }
}

/// Sends one script's outputs to the host.
struct Forward {
    sender: Arc<Sender>,
    job: u32,
}

impl Sink for Forward {
    fn stdout(&self, bytes: &[u8]) {
        tell(&self.sender, self.job, Kind::Stdout, bytes);
    }

    fn stderr(&self, bytes: &[u8]) {
        tell(&self.sender, self.job, Kind::Stderr, bytes);
    }

    fn ended(&self, status: i32, _at_ns: u64) {
        tell(&self.sender, self.job, Kind::Ended, status.to_string().as_bytes());
    }
}

/// Sends bytes in frames. Errors are ignored: the agent's main loop notices when the host has disconnected.
fn tell(sender: &Sender, job: u32, kind: Kind, bytes: &[u8]) {
    for piece in bytes.chunks(PIECE) {
        let _ = sender.send(&Frame::new(kind, job, piece));
    }
}
