//! The commands to a worker's thread.

use super::backoff::Polling;
use crate::queue::{Queue, QueueKey, Token};
use host::CpuSet;
use rustix::event::{EventfdFlags, eventfd};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};

/// The channel for a command's reply.
pub(super) type Reply<T> = mpsc::Sender<T>;

/// A function on a queue, or on its absence.
pub(super) type Act = Box<dyn FnOnce(Option<&mut Queue>) + Send>;

/// A command to a worker.
pub(super) enum Command {
    /// Serves a queue.
    Add(Box<Queue>),
    /// Hands queues over to the workers with these mailboxes. The reply lists those that it does not have.
    HandOver { queues: Vec<(QueueKey, Arc<Mailbox>)>, reply: Reply<Vec<QueueKey>> },
    /// Gives a queue back once its requests in flight have completed.
    Take { key: QueueKey, reply: Reply<Option<Queue>> },
    /// Calls a function on a queue, or on its absence.
    With { key: QueueKey, act: Act },
    /// Passes on a completion for a queue that has moved to this worker.
    Completed { key: QueueKey, token: Token, result: i32 },
    /// Sets the polling mode.
    Polling(Polling),
    /// Sets the CPUs.
    Pin { cpus: CpuSet, reply: Reply<io::Result<()>> },
    /// Gives all queues back and stops.
    Stop { reply: Reply<Vec<Queue>> },
}

/// The commands to a worker.
pub(crate) struct Mailbox {
    commands: Mutex<Vec<Command>>,
    /// There are commands: readable without the lock.
    flag: AtomicBool,
    wake: OwnedFd,
}

impl std::fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mailbox").field("flag", &self.flag).finish_non_exhaustive()
    }
}

impl Mailbox {
    pub(crate) fn new() -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { commands: Mutex::default(), flag: AtomicBool::new(false), wake })
    }

    pub(super) fn send(&self, command: Command) {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner).push(command);
        self.flag.store(true, Ordering::Release);
        // It fails only if the counter is full, and the worker is woken then anyway.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    /// Takes all commands.
    #[inline]
    pub(super) fn take(&self) -> Vec<Command> {
        // Each turn of a worker comes here: test it first, because the swap is a locked instruction.
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

/// The worker of each queue, or the one that it is on its way to: completions are passed on to it after a move.
#[derive(Debug, Default)]
pub struct Routes(Mutex<HashMap<QueueKey, Arc<Mailbox>>>);

impl Routes {
    /// Routes for no queue.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Gives a queue to a worker. Completions that are passed on later reach it after the queue.
    pub(super) fn give(&self, queue: Queue, to: &Arc<Mailbox>) {
        let mut routes = self.routes();
        routes.insert(queue.key, Arc::clone(to));
        to.send(Command::Add(Box::new(queue)));
    }

    pub(super) fn forget(&self, key: QueueKey) {
        self.routes().remove(&key);
    }

    /// Passes a completion on to the queue's worker.
    pub(super) fn send_on(&self, key: QueueKey, token: Token, result: i32) {
        match self.routes().get(&key) {
            Some(mailbox) => mailbox.send(Command::Completed { key, token, result }),
            None => tracing::debug!("A completion for queue {}, which was removed", key.0),
        }
    }

    fn routes(&self) -> MutexGuard<'_, HashMap<QueueKey, Arc<Mailbox>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
