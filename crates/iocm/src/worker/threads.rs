//! Threads that wait for the host's disks, on hosts without io_uring: the worker itself never does.

use crate::queue::Submission;
use rustix::event::{EventfdFlags, eventfd};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Threads of a worker: so many requests of it can be with the host's disks.
const COUNT: usize = 16;

/// Threads that make requests of the kernel, and wait for each.
pub(super) struct Threads {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    inner: Mutex<Inner>,
    /// Told when there is a request, or none will come any more.
    changed: Condvar,
    /// Becomes readable when a request has ended.
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
            // SAFETY: who submitted it keeps what it points to until its end is told.
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

    /// The next request that ended: what it was, and its result.
    pub(super) fn next_completion(&self) -> Option<(u64, i32)> {
        let ended = self.shared.inner().ended.pop_front();
        if ended.is_none() {
            let _ = rustix::io::read(&self.shared.wake, &mut [0; 8]);
            // One that ended before its file was read is found here, and one after that makes it readable again.
            return self.shared.inner().ended.pop_front();
        }
        ended
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
