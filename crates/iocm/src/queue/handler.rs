//! What a device does with the requests of one queue.

use super::{Lane, QueueKey};
use io_uring::squeue::Entry;
use std::os::fd::BorrowedFd;

/// What came of looking at a queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Served {
    /// Requests that were taken from the ring.
    pub requests: u32,
    /// Whether it ended because the budget did, so that there may be more.
    pub more: bool,
    /// Nanoseconds until it makes sense to look again, when a limit holds the queue back.
    pub held_back_ns: Option<u64>,
}

/// Names one request that the kernel has, among those of its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token(pub u32);

/// A request for the kernel.
pub type Submission = Entry;

/// Where requests for the kernel are put.
pub struct Submitter<'a> {
    ring: Option<&'a mut io_uring::IoUring>,
    key: QueueKey,
    /// Requests that the kernel was not told of yet.
    pending: &'a mut u32,
    /// Requests that the kernel has not answered.
    in_flight: &'a mut u64,
}

/// Why a request cannot be submitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoRoom {
    /// Those that are there must be submitted first.
    Full,
    /// This host has no io_uring: the request must be made another way.
    NoRing,
}

impl<'a> Submitter<'a> {
    /// For requests of the queue `key`.
    pub(crate) const fn new(
        ring: Option<&'a mut io_uring::IoUring>,
        key: QueueKey,
        pending: &'a mut u32,
        in_flight: &'a mut u64,
    ) -> Self {
        Self { ring, key, pending, in_flight }
    }

    /// Adds a request. Its end is told to the queue with `token`, whichever worker has the queue then.
    ///
    /// # Errors
    /// [`NoRoom`], when it was not added.
    ///
    /// # Safety
    /// All that the request points to must stay where it is until its end is told.
    #[inline]
    pub unsafe fn submit(&mut self, entry: Submission, token: Token) -> Result<(), NoRoom> {
        let ring = self.ring.as_mut().ok_or(NoRoom::NoRing)?;
        let entry = entry.user_data(u64::from(self.key.0) << 32 | u64::from(token.0));
        // SAFETY: the caller keeps what the entry points to.
        if unsafe { ring.submission().push(&entry) }.is_err() {
            // The kernel takes them at once, or says why not; then the request waits for the next turn.
            if ring.submit().is_err() {
                return Err(NoRoom::Full);
            }
            *self.pending = 0;
            // SAFETY: as above.
            unsafe { ring.submission().push(&entry) }.map_err(|_| NoRoom::Full)?;
        }
        *self.pending += 1;
        *self.in_flight += 1;
        Ok(())
    }
}

/// What a device does with the requests of one queue. It goes with its queue from worker to worker.
pub trait Handler: Send {
    /// Takes at most `budget` requests from the ring, and ends or submits them.
    fn serve(&mut self, lane: &mut Lane, submitter: &mut Submitter<'_>, budget: u32) -> Served;

    /// Ends the request that was submitted with `token`: `result` is the kernel's, negative for an error.
    fn complete(&mut self, lane: &mut Lane, token: Token, result: i32);

    /// Requests that were submitted and have not ended.
    fn in_flight(&self) -> usize;

    /// Throws away at most `budget` requests of a queue that is disabled; `None` where they wait until it is enabled.
    ///
    /// A network's packets to be sent must not wait (vhost-user, "Ring states"): the guest would run out of buffers.
    fn discard(&mut self, _lane: &mut Lane, _budget: u32) -> Option<Served> {
        None
    }

    /// Takes note of whether the queue is enabled.
    fn enable(&mut self, _enabled: bool) {}

    /// Sees to it that whoever has something for the queue wakes its worker. Whether there is something already.
    fn rest(&mut self, lane: &mut Lane) -> bool {
        lane.want_kicks()
    }

    /// A file that says by being readable that the queue has something to do (a tap).
    fn source(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
