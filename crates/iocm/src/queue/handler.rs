//! The interface between a queue and its device.

use super::{QueueKey, Submission, Virtqueue};
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

/// The number of bytes that count as one unit of work, like a request.
pub(crate) const BYTES_A_UNIT: u64 = 16 << 10;

/// The result of serving a queue once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WorkDone {
    /// Requests that were taken from the ring.
    pub requests: u32,
    /// Bytes of data that were copied, or submitted to the kernel.
    pub bytes: u64,
    /// Units of work beyond these: the copies of a packet that goes to several ports, and long chains of descriptors.
    pub extra: u32,
    /// The budget was used up, and there may be more.
    pub more: bool,
    /// The time until a limit allows more, nanoseconds.
    pub throttled_ns: Option<u64>,
}

impl WorkDone {
    /// The work in units of the budget.
    #[must_use]
    pub fn units(&self) -> u32 {
        let bytes = u32::try_from(self.bytes / BYTES_A_UNIT).unwrap_or(u32::MAX);
        self.requests.saturating_add(bytes).saturating_add(self.extra)
    }
}

/// The handler's number for a request that was submitted to the kernel, below 2^15.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token(pub u32);

/// The bits of a completion's `user_data` that are the token. The next bit says that a thread may carry out the request,
/// and the others are the queue's number.
const TOKEN_BITS: u32 = 15;
const BY_THREAD: u64 = 1 << TOKEN_BITS;
const KEY_SHIFT: u32 = TOKEN_BITS + 1;

/// The queue and the request of a completion with this `user_data`.
pub(crate) const fn completed(user_data: u64) -> (QueueKey, Token) {
    (QueueKey(user_data >> KEY_SHIFT), Token((user_data & (BY_THREAD - 1)) as u32))
}

/// Tests whether a thread may carry out the request with this `user_data`.
pub(crate) const fn is_by_thread(user_data: u64) -> bool {
    user_data & BY_THREAD != 0
}

/// The one that carries out a submission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carrier {
    /// The disk, which moves the data itself. A few submissions still need a thread of the kernel.
    Disk,
    /// The kernel, which hands to a thread what it cannot complete at once.
    Kernel,
    /// A thread of the kernel from the start, because the submission may block.
    Thread,
}

/// The way for a handler to submit I/O to the kernel.
pub struct Submitter<'a> {
    engine: &'a mut dyn IoEngine,
    key: QueueKey,
    crowded: bool,
}

/// A way of submitting I/O to the kernel.
pub(crate) trait IoEngine {
    /// Queues a request whose completion carries `user_data`; with `aside` a kernel thread carries it out. `false` if
    /// there is no room for it. [`is_by_thread`] holds for `user_data` if a thread may carry it out.
    ///
    /// # Safety
    ///
    /// The conditions of [`Submitter::submit`].
    unsafe fn take(&mut self, submission: Submission, user_data: u64, aside: bool) -> bool;
}

/// A list of submissions, which a caller carries out itself.
impl IoEngine for VecDeque<(Submission, u64)> {
    unsafe fn take(&mut self, submission: Submission, user_data: u64, _aside: bool) -> bool {
        self.push_back((submission, user_data));
        true
    }
}

/// There is no room now; try again in another turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoRoom;

impl<'a> Submitter<'a> {
    /// A submitter for the queue `key`.
    pub(crate) fn new(engine: &'a mut dyn IoEngine, key: QueueKey) -> Self {
        Self { engine, key, crowded: false }
    }

    /// Sets whether other queues of the worker have work.
    pub(crate) fn crowded(self, crowded: bool) -> Self {
        Self { crowded, ..self }
    }

    /// Tests whether other queues of the worker have work. Their requests would wait in the kernel for those of this
    /// queue: what cannot complete at once is carried out in the order of submission.
    #[must_use]
    pub const fn is_crowded(&self) -> bool {
        self.crowded
    }

    /// Submits I/O. Its completion is passed to the queue with `token`, whichever worker has the queue by then. Flushes
    /// and deallocations are never carried out by the disk alone, whatever `by` says.
    ///
    /// # Errors
    ///
    /// [`NoRoom`] if it was not submitted.
    ///
    /// # Safety
    ///
    /// All memory that the submission points to must stay valid, and its file open, until the completion.
    #[inline]
    pub unsafe fn submit(&mut self, submission: Submission, token: Token, by: Carrier) -> Result<(), NoRoom> {
        debug_assert!(token.0 >> TOKEN_BITS == 0 && self.key.0 >> (u64::BITS - KEY_SHIFT) == 0);
        let moves_data = matches!(submission, Submission::Read { .. } | Submission::Write { .. });
        let by_thread = if by == Carrier::Disk && moves_data { 0 } else { BY_THREAD };
        let user_data = self.key.0 << KEY_SHIFT | by_thread | u64::from(token.0);
        // SAFETY: the caller keeps what the request points to.
        let is_taken = unsafe { self.engine.take(submission, user_data, by == Carrier::Thread) };
        if is_taken { Ok(()) } else { Err(NoRoom) }
    }
}

/// A device's side of one queue. It moves between workers together with its queue.
pub trait Handler: Send {
    /// Takes requests from the ring, for at most `budget` units, and completes or submits them.
    fn serve(&mut self, queue: &mut Virtqueue, submitter: &mut Submitter<'_>, budget: u32) -> WorkDone;

    /// Tests whether a turn would find requests, which costs far less than the turn. `None` if only a turn shows it.
    fn has_work(&self, _queue: &Virtqueue) -> Option<bool> {
        None
    }

    /// Handles a completion of what was submitted with `token`; `result` is negative for an error. The request is
    /// complete then, or has another step: [`Self::has_waiting`].
    fn complete(&mut self, queue: &mut Virtqueue, token: Token, result: i32);

    /// Tests whether parts of requests wait to be submitted by [`Self::resume`], and can be.
    fn has_waiting(&self) -> bool {
        false
    }

    /// Submits further steps of requests, for at most `budget` units ([`WorkDone::bytes`] counts them), and takes no
    /// new requests.
    fn resume(&mut self, _queue: &mut Virtqueue, _submitter: &mut Submitter<'_>, _budget: u32) -> WorkDone {
        WorkDone::default()
    }

    /// Does the same, and takes the requests that an earlier back-end took, whatever the limits: whoever stops the queue
    /// waits.
    fn drain(&mut self, queue: &mut Virtqueue, submitter: &mut Submitter<'_>, budget: u32) -> WorkDone {
        self.resume(queue, submitter, budget)
    }

    /// The number of requests that were submitted and have not completed.
    fn in_flight(&self) -> usize;

    /// Tests whether the worker itself carries out requests for which the kernel would take a thread.
    fn needs_no_thread(&self) -> bool {
        false
    }

    /// Drops at most `budget` requests of a disabled queue; `None` if they wait until it is enabled.
    ///
    /// Packets to be transmitted must not wait (vhost-user, "Ring states"): the guest would run out of buffers.
    fn discard(&mut self, _queue: &mut Virtqueue, _budget: u32) -> Option<WorkDone> {
        None
    }

    /// Tells the handler that the queue was enabled or disabled.
    fn enable(&mut self, _enabled: bool) {}

    /// Enables kicks, and wake-ups by other sources of the queue. `true` if there are requests already.
    fn enable_wakeups(&mut self, queue: &mut Virtqueue) -> bool {
        queue.enable_kicks()
    }

    /// Another file that is readable when the queue has work (a tap).
    fn source(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
