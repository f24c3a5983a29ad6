//! A worker's io_uring, where the host has one.

use crate::queue::{QueueKey, Submitter};
use io_uring::IoUring;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Requests that can be put down before the kernel is told.
const ENTRIES: u32 = 256;
/// Answers that find room: those of all queues that a worker may have.
const ANSWERS: u32 = 4096;

/// An io_uring, or none.
pub(super) struct Uring {
    ring: Option<IoUring>,
    /// Requests that the kernel was not told of.
    pending: u32,
    /// Requests that the kernel has not answered.
    pub(super) in_flight: u64,
}

impl Uring {
    /// Makes one. Hosts may forbid it (`kernel.io_uring_disabled`, seccomp): files are read in the worker's thread then.
    pub(super) fn new() -> Self {
        let built = IoUring::builder()
            .setup_cqsize(ANSWERS)
            .setup_single_issuer()
            .setup_coop_taskrun()
            .build(ENTRIES)
            // Linux before 6.0 knows no single issuer.
            .or_else(|_| IoUring::builder().setup_cqsize(ANSWERS).build(ENTRIES));
        let ring = match built {
            Ok(ring) => Some(ring),
            Err(error) => {
                tracing::warn!("This host gives no io_uring ({error}): I/O workers wait for their files");
                None
            }
        };
        Self { ring, pending: 0, in_flight: 0 }
    }

    /// Becomes readable when the kernel has answered something.
    pub(super) fn file(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: the ring keeps its file open as long as it is borrowed.
        self.ring.as_ref().map(|ring| unsafe { BorrowedFd::borrow_raw(ring.as_raw_fd()) })
    }

    /// Where requests of the queue `key` are put down.
    #[inline]
    pub(super) fn submitter(&mut self, key: QueueKey) -> Submitter<'_> {
        Submitter::new(self.ring.as_mut(), key, &mut self.pending, &mut self.in_flight)
    }

    /// Tells the kernel of all requests that were put down.
    #[inline]
    pub(super) fn submit(&mut self) {
        let Some(ring) = self.ring.as_ref().filter(|_| self.pending > 0) else { return };
        match ring.submit() {
            Ok(_) => self.pending = 0,
            // The kernel has no room for more now: they are told of again after answers were taken.
            Err(error) => tracing::debug!("io_uring takes no requests now: {error}"),
        }
    }

    /// The next answer: what it is an answer to, and what it says.
    #[inline]
    pub(super) fn answer(&mut self) -> Option<(u64, i32)> {
        let entry = self.ring.as_mut()?.completion().next()?;
        self.in_flight = self.in_flight.saturating_sub(1);
        Some((entry.user_data(), entry.result()))
    }
}
