//! A worker without a thread.

use crate::clock::now_ns;
use crate::queue::Queue;
use crate::worker::mailbox::Mailbox;
use crate::worker::run::Run;
use crate::worker::{Routes, WorkerError, WorkerOptions};
use std::sync::Arc;

/// A worker that does a round when it is told to, and never waits. It has no `io_uring`.
pub struct OneWorker(Run);

impl std::fmt::Debug for OneWorker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("OneWorker").finish_non_exhaustive()
    }
}

impl OneWorker {
    /// A worker without queues.
    ///
    /// # Errors
    /// [`WorkerError`].
    pub fn new() -> Result<Self, WorkerError> {
        let options = WorkerOptions { without_uring: true, ..WorkerOptions::default() };
        let no_mailbox = |source| WorkerError::Cannot { what: "no eventfd for waking it", source };
        let mailbox = Arc::new(Mailbox::new().map_err(no_mailbox)?);
        Run::new(&options, mailbox, Arc::default(), Routes::new()).map(Self)
    }

    /// Gives it a queue to serve.
    pub fn add(&mut self, queue: Queue) {
        self.0.add(queue);
    }

    /// Serves each queue once, as a worker does between two waits. Returns the number of requests.
    pub fn round(&mut self) -> u64 {
        self.0.round(now_ns()).0
    }
}
