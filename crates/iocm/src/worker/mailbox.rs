//! How others reach a worker's thread.

use super::Polling;
use crate::queue::{Queue, QueueKey, Token};
use rustix::event::{EventfdFlags, eventfd};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};

/// Where an answer goes.
pub(super) type Reply<T> = mpsc::Sender<T>;

/// What is done to a queue, or with its absence.
pub(super) type Act = Box<dyn FnOnce(Option<&mut Queue>) + Send>;

/// What a worker is told.
pub(super) enum Command {
    /// A queue to serve.
    Add(Box<Queue>),
    /// Hand queues over to those who have these mailboxes. The answer is which of them it did not have.
    HandOver { queues: Vec<(QueueKey, Arc<Mailbox>)>, reply: Reply<Vec<QueueKey>> },
    /// Give a queue away, once the kernel has completed all its requests.
    Take { key: QueueKey, reply: Reply<Option<Queue>> },
    /// Do something to a queue, or with its absence.
    With { key: QueueKey, act: Act },
    /// The kernel completed a request of a queue that another worker had when it was made.
    Completed { key: QueueKey, token: Token, result: i32 },
    /// What to do when there is nothing to do.
    Polling(Polling),
    /// Where to run.
    Pin { cpus: Vec<usize>, reply: Reply<io::Result<()>> },
    /// Give all away and end.
    Stop { reply: Reply<Vec<Queue>> },
}

/// A worker's letters.
pub(super) struct Mailbox {
    commands: Mutex<Vec<Command>>,
    /// Whether there are letters: to look costs nothing then.
    flag: AtomicBool,
    wake: OwnedFd,
}

impl std::fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mailbox").field("flag", &self.flag).finish_non_exhaustive()
    }
}

impl Mailbox {
    pub(super) fn new() -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { commands: Mutex::default(), flag: AtomicBool::new(false), wake })
    }

    pub(super) fn send(&self, command: Command) {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner).push(command);
        self.flag.store(true, Ordering::Release);
        // It fails only when the worker has been woken as often as can be counted.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    /// All letters that came.
    #[inline]
    pub(super) fn take(&self) -> Vec<Command> {
        // To change it is a locked instruction, at each turn of a worker; to look at it is a plain one.
        if !self.flag.load(Ordering::Relaxed) {
            return Vec::new();
        }
        self.flag.swap(false, Ordering::AcqRel);
        std::mem::take(&mut *self.commands.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn wake(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

/// Which worker has which queue, or will when it reads its letters: where the kernel's answers are sent on to after a
/// queue has moved.
#[derive(Debug, Default)]
pub struct Routes(Mutex<HashMap<QueueKey, Arc<Mailbox>>>);

impl Routes {
    /// No queues yet.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Gives a queue to a worker. Answers that are sent on from now on reach it after the queue.
    pub(super) fn give(&self, queue: Queue, to: &Arc<Mailbox>) {
        let mut routes = self.routes();
        routes.insert(queue.key, Arc::clone(to));
        to.send(Command::Add(Box::new(queue)));
    }

    pub(super) fn forget(&self, key: QueueKey) {
        self.routes().remove(&key);
    }

    /// Sends an answer to whoever has the queue.
    pub(super) fn send_on(&self, key: QueueKey, token: Token, result: i32) {
        match self.routes().get(&key) {
            Some(mailbox) => mailbox.send(Command::Completed { key, token, result }),
            None => tracing::debug!("An answer to a request of queue {}, which is gone", key.0),
        }
    }

    fn routes(&self) -> MutexGuard<'_, HashMap<QueueKey, Arc<Mailbox>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
