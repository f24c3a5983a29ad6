//! Threads for disk I/O on hosts without io_uring, so that a worker never blocks.

use crate::queue::Submission;
use rustix::event::{EventfdFlags, eventfd};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// The number of threads of a worker, and so of its requests that the host's disks handle at once.
const COUNT: usize = 16;

/// Threads that carry out submissions, one at a time each.
pub(super) struct Threads {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    inner: Mutex<Inner>,
    /// Signalled when a submission was added, or no more will come.
    changed: Condvar,
    /// Readable when a submission has completed.
    wake: OwnedFd,
}

#[derive(Default)]
struct Inner {
    queued: VecDeque<(Submission, u64)>,
    ended: VecDeque<(u64, i32)>,
    is_over: bool,
}

impl Shared {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        loop {
            let inner = self.inner();
            let waiting = |inner: &mut Inner| inner.queued.is_empty() && !inner.is_over;
            let mut inner = self.changed.wait_while(inner, waiting).unwrap_or_else(PoisonError::into_inner);
            let Some((submission, user_data)) = inner.queued.pop_front() else { return };
            drop(inner);
            // SAFETY: the submitter keeps the memory until it gets the completion.
            let result = unsafe { submission.execute() };
            self.inner().ended.push_back((user_data, result));
            let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
        }
    }
}

impl Threads {
    pub(super) fn new() -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let shared = Arc::new(Shared { inner: Mutex::default(), changed: Condvar::new(), wake });
        let mut made = Self { shared, threads: Vec::new() };
        for number in 0..COUNT {
            let shared = Arc::clone(&made.shared);
            made.threads.push(crate::fatal::spawn(format!("io-disk-{number}"), move || shared.work())?);
        }
        Ok(made)
    }

    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.shared.wake.as_fd()
    }

    pub(super) fn take(&self, submission: Submission, user_data: u64) {
        self.shared.inner().queued.push_back((submission, user_data));
        self.shared.changed.notify_one();
    }

    /// The next completion: its `user_data` and its result.
    pub(super) fn next_completion(&self) -> Option<(u64, i32)> {
        let ended = self.shared.inner().ended.pop_front();
        if ended.is_none() {
            self.clear();
            return self.shared.inner().ended.pop_front();
        }
        ended
    }

    /// Reads the eventfd. A completion before that is found afterwards; one after it makes the eventfd readable again.
    pub(super) fn clear(&self) {
        let _ = rustix::io::read(&self.shared.wake, &mut [0; 8]);
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.shared.inner().is_over = true;
        self.shared.changed.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
