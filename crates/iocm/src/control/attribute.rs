//! What an attribute is.

use super::action::Action;
use super::facts::{DaemonFacts, DeviceFacts, QueueFacts, WorkerFacts};
use super::node::Object;
use super::refusal::Refusal;
use super::value::Value;

/// Whether an attribute can be read and written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Only read.
    Read,
    /// Read and written.
    ReadWrite,
    /// Only written.
    Write,
}

/// How an attribute is read: from the facts of the object that has it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Reader {
    /// It is not.
    None,
    /// It says the same always.
    Fixed(fn() -> Value),
    Daemon(fn(&DaemonFacts) -> Value),
    Worker(fn(&WorkerFacts) -> Value),
    /// A counter of a worker, by its place.
    WorkerCounter(usize),
    /// `None` where devices of this kind do not have it.
    Device(fn(&DeviceFacts) -> Option<Value>),
    /// A counter of all queues of a device together, by its place.
    DeviceCounter(usize),
    Queue(fn(&QueueFacts) -> Value),
    /// A counter of a queue, by its place.
    QueueCounter(usize),
}

/// What follows from writing an attribute.
pub(super) type Writer = fn(Object, &str) -> Result<Action, Refusal>;

/// An attribute: a leaf of the tree.
#[derive(Debug, Clone)]
pub struct Attribute {
    /// What it is called below its object: `cpu`, `pace/polling`.
    pub name: &'static str,
    /// The unit of its numbers, or the form of its text.
    pub unit: &'static str,
    /// What it says and does, as a sentence.
    pub about: String,
    pub(super) reader: Reader,
    pub(super) writer: Option<Writer>,
}

impl Attribute {
    /// Whether it can be read and written.
    #[must_use]
    pub const fn mode(&self) -> Mode {
        match (&self.reader, &self.writer) {
            (Reader::None, _) => Mode::Write,
            (_, Some(_)) => Mode::ReadWrite,
            (_, None) => Mode::Read,
        }
    }
}

impl Mode {
    /// Whether it can be read.
    #[must_use]
    pub const fn reads(self) -> bool {
        !matches!(self, Self::Write)
    }

    /// Whether it can be written.
    #[must_use]
    pub const fn writes(self) -> bool {
        !matches!(self, Self::Read)
    }

    /// As a word: `read`, `read-write`, `write`.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::ReadWrite => "read-write",
            Self::Write => "write",
        }
    }

    /// As a file's permissions: for the daemon's user, and with `group` for a group's members. Nobody else may even read, as
    /// the control socket serves nobody else.
    #[must_use]
    pub const fn permissions(self, group: bool) -> u16 {
        let own = match self {
            Self::Read => 0o400,
            Self::ReadWrite => 0o600,
            Self::Write => 0o200,
        };
        if group { own | own >> 3 } else { own }
    }
}
