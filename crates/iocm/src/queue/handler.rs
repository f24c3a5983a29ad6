//! What a device does with the requests of one queue.

use super::{QueueKey, Submission, Virtqueue};
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

/// Bytes that are as much work as a request by itself.
pub const BYTES_A_UNIT: u64 = 16 << 10;

/// What came of looking at a queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WorkDone {
    /// Requests that were taken from the ring.
    pub requests: u32,
    /// Bytes of data that were copied, or that the kernel was asked for.
    pub bytes: u64,
    /// Whether it ended because the budget did, so that there may be more.
    pub more: bool,
    /// Nanoseconds until it makes sense to look again, when a limit holds the queue back.
    pub throttled_ns: Option<u64>,
}

impl WorkDone {
    /// How much work it was, as budgets count it.
    #[must_use]
    pub fn units(&self) -> u32 {
        self.requests.saturating_add(u32::try_from(self.bytes / BYTES_A_UNIT).unwrap_or(u32::MAX))
    }
}

/// Names one request that the kernel has, among those of its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token(pub u32);

/// Where requests for the kernel are put.
pub struct Submitter<'a> {
    engine: &'a mut dyn IoEngine,
    key: QueueKey,
}

/// By which way requests come to the kernel.
pub(crate) trait IoEngine {
    /// Takes a request, whose end is told with `user_data`. Whether there was room for it.
    ///
    /// # Safety
    /// As of [`Submitter::submit`].
    unsafe fn take(&mut self, submission: Submission, user_data: u64) -> bool;
}

/// Requests that are kept until they are asked for, for who makes them by hand.
impl IoEngine for VecDeque<(Submission, u64)> {
    unsafe fn take(&mut self, submission: Submission, user_data: u64) -> bool {
        self.push_back((submission, user_data));
        true
    }
}

/// There is no room now: the request must wait for another turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoRoom;

impl<'a> Submitter<'a> {
    /// For requests of the queue `key`.
    pub(crate) fn new(engine: &'a mut dyn IoEngine, key: QueueKey) -> Self {
        Self { engine, key }
    }

    /// Adds a request. Its end is told to the queue with `token`, whichever worker has the queue then.
    ///
    /// # Errors
    /// [`NoRoom`], when it was not added.
    ///
    /// # Safety
    /// All that the request points to must stay where it is, and its file open, until its end is told.
    #[inline]
    pub unsafe fn submit(&mut self, submission: Submission, token: Token) -> Result<(), NoRoom> {
        let user_data = u64::from(self.key.0) << 32 | u64::from(token.0);
        // SAFETY: the caller keeps what the request points to.
        if unsafe { self.engine.take(submission, user_data) } { Ok(()) } else { Err(NoRoom) }
    }
}

/// What a device does with the requests of one queue. It goes with its queue from worker to worker.
pub trait Handler: Send {
    /// Takes at most `budget` requests from the ring, and ends or submits them.
    fn serve(&mut self, queue: &mut Virtqueue, submitter: &mut Submitter<'_>, budget: u32) -> WorkDone;

    /// Takes note of what the kernel did of what was submitted with `token`: `result` is the kernel's, negative for an
    /// error. The request has ended then, or is to go on: [`Self::has_waiting`].
    fn complete(&mut self, queue: &mut Virtqueue, token: Token, result: i32);

    /// Whether parts of requests that were taken wait to be submitted by [`Self::resume`], and can be.
    fn has_waiting(&self) -> bool {
        false
    }

    /// Submits what waits, and takes no new requests. At most `budget` units, of which [`WorkDone::bytes`] tells.
    fn resume(&mut self, _queue: &mut Virtqueue, _submitter: &mut Submitter<'_>, _budget: u32) -> WorkDone {
        WorkDone::default()
    }

    /// Requests that were submitted and have not ended.
    fn in_flight(&self) -> usize;

    /// Throws away at most `budget` requests of a queue that is disabled; `None` where they wait until it is enabled.
    ///
    /// A network's packets to be sent must not wait (vhost-user, "Ring states"): the guest would run out of buffers.
    fn discard(&mut self, _queue: &mut Virtqueue, _budget: u32) -> Option<WorkDone> {
        None
    }

    /// Takes note of whether the queue is enabled.
    fn enable(&mut self, _enabled: bool) {}

    /// Sees to it that whoever has something for the queue wakes its worker. Whether there is something already.
    fn enable_wakeups(&mut self, queue: &mut Virtqueue) -> bool {
        queue.enable_kicks()
    }

    /// A file that says by being readable that the queue has something to do (a tap).
    fn source(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
