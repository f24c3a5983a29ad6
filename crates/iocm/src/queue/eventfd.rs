//! The eventfds by which a front-end is signalled.

use super::QueueState;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A call or error eventfd.
#[derive(Debug)]
pub(crate) struct Eventfd {
    file: OwnedFd,
    /// See [`QueueState::no_writes_until`].
    no_writes_until: Arc<AtomicU64>,
}

impl Eventfd {
    /// An eventfd of a queue.
    pub(crate) fn new(file: OwnedFd, state: &QueueState) -> Arc<Self> {
        Arc::new(Self { file, no_writes_until: Arc::clone(&state.no_writes_until) })
    }

    /// The time until which no worker writes to it, nanoseconds.
    #[inline]
    pub(crate) fn no_writes_until(&self) -> u64 {
        self.no_writes_until.load(Ordering::Relaxed)
    }

    /// Lets no worker write to the device's eventfds until this time, nanoseconds. Returns whether that was so already.
    pub(crate) fn forbid_writes_until(&self, time: u64) -> bool {
        self.no_writes_until.fetch_max(time, Ordering::Relaxed) >= time
    }
}

impl AsFd for Eventfd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
