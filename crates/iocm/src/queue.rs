//! A virtqueue with all that serves it: its ring, the ways in which guest and device wake each other, and what the device
//! does with a request.
//!
//! A queue belongs to one thread at a time. It is handed from worker to worker as a whole, so that nothing in it is locked.

mod handler;
pub mod inflight;
mod submission;
mod virtqueue;

use crate::log_limit::LogLimit;
use crate::memory::GuestMemory;
use crate::ring::Ring;
use crate::statistics::{Delays, Moves, QueueCounters};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

pub(crate) use handler::IoEngine;
pub use handler::{BYTES_A_UNIT, Handler, NoRoom, Submitter, Token, WorkDone};
pub use submission::Submission;
pub use virtqueue::Virtqueue;

/// A queue's number in the whole daemon; no two queues ever have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueueKey(pub u32);

impl QueueKey {
    /// One that was never given.
    #[must_use]
    pub fn fresh() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// What others than the owner may know of a queue.
#[derive(Debug, Default)]
pub struct QueueState {
    /// Counters.
    pub counters: QueueCounters,
    /// How long requests waited before they were taken.
    pub delays: Delays,
    /// How often it went to another worker, and how long that took.
    pub moves: Moves,
    /// Whether its ring broke the rules, so that it is no longer served.
    pub broken: AtomicBool,
    /// What its driver can have written to the log.
    pub log: LogLimit,
}

/// A virtqueue that can be served.
pub struct Queue {
    /// Its number in the daemon.
    pub key: QueueKey,
    /// The ring with its inflight records and its call eventfd.
    pub virtqueue: Virtqueue,
    /// What the device does.
    pub(crate) handler: Box<dyn Handler>,
    /// By this the driver says that there is something; `None` when the queue is to be polled.
    pub(crate) kick: Option<OwnedFd>,
    /// By this the front-end learns that the ring broke the rules.
    error: Option<Arc<OwnedFd>>,
    /// Whether it is still to be told.
    error_due: bool,
    /// Whether it is served. Requests that are under way end in any case.
    pub(crate) enabled: bool,
    /// Its share of a busy worker, against other queues' weights.
    pub(crate) weight: u32,
    /// Whether it is never left to its kicks.
    pub(crate) polled: bool,
    /// When a worker gave it away, nanoseconds of the monotonic clock.
    pub(crate) left: Option<u64>,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue")
            .field("key", &self.key)
            .field("virtqueue", &self.virtqueue)
            .finish_non_exhaustive()
    }
}

/// The files by which driver and device wake each other.
#[derive(Debug, Default)]
pub struct Notifiers {
    /// The driver writes to it; `None` when the queue is to be polled.
    pub kick: Option<OwnedFd>,
    /// The device writes to it; `None` when the driver polls.
    pub call: Option<OwnedFd>,
    /// The device writes to it when the ring breaks the rules.
    pub error: Option<OwnedFd>,
}

/// Weight of a queue that was given none.
pub const USUAL_WEIGHT: u32 = 100;

impl Queue {
    /// A queue that is served from the moment a worker has it.
    #[must_use]
    pub fn new(ring: Ring, notifiers: Notifiers, handler: Box<dyn Handler>, state: Arc<QueueState>) -> Self {
        let Notifiers { kick, call, error } = notifiers;
        state.broken.store(false, Ordering::Relaxed);
        let virtqueue = Virtqueue::new(ring, call, state);
        Self {
            key: QueueKey::fresh(),
            virtqueue,
            handler,
            kick,
            error: error.map(Arc::new),
            error_due: false,
            enabled: true,
            weight: USUAL_WEIGHT,
            polled: false,
            left: None,
        }
    }

    /// Counters and state that other threads may read.
    #[must_use]
    pub fn state(&self) -> &Arc<QueueState> {
        &self.virtqueue.state
    }

    /// Requests that the host's kernel has.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.handler.in_flight()
    }

    /// The file by which the driver kicks.
    #[must_use]
    pub fn kick(&self) -> Option<BorrowedFd<'_>> {
        self.kick.as_ref().map(AsFd::as_fd)
    }

    /// Serves at most `budget` requests.
    #[inline]
    pub(crate) fn serve(&mut self, submitter: &mut Submitter<'_>, budget: u32) -> WorkDone {
        if self.virtqueue.broken.is_some() {
            return self.resume(submitter, budget);
        }
        let work = match self.enabled {
            true => self.handler.serve(&mut self.virtqueue, submitter, budget),
            false => match self.handler.discard(&mut self.virtqueue, budget) {
                Some(work) => work,
                None => self.handler.resume(&mut self.virtqueue, submitter, budget),
            },
        };
        self.after_use();
        work
    }

    /// Goes on with requests that were taken, as far as `budget` suffices, and takes none.
    pub(crate) fn resume(&mut self, submitter: &mut Submitter<'_>, budget: u32) -> WorkDone {
        let work = self.handler.resume(&mut self.virtqueue, submitter, budget);
        self.after_use();
        work
    }

    /// Whether parts of requests that were taken wait for [`Self::resume`].
    #[inline]
    pub(crate) fn has_waiting(&self) -> bool {
        self.handler.has_waiting()
    }

    /// Serves it from now on, or no longer.
    pub fn set_enabled(&mut self, enabled: bool) {
        self.enabled = enabled;
        self.handler.enable(enabled);
    }

    /// Leaves it alone until somebody kicks or brings something. Whether there is something already.
    pub(crate) fn enable_wakeups(&mut self) -> bool {
        match self.enabled {
            true => self.handler.enable_wakeups(&mut self.virtqueue),
            false => self.handler.discard(&mut self.virtqueue, 0).is_some() && self.virtqueue.enable_kicks(),
        }
    }

    /// Lets the driver see what was given back. Requests under way are counted before it does: whoever sees the last one's
    /// end, and asks, finds none.
    #[inline]
    pub(crate) fn publish(&mut self) {
        self.virtqueue.state.counters.in_flight.set(self.in_flight() as u64);
        self.virtqueue.publish();
        self.after_use();
    }

    /// Has driver and front-end woken by `signal`, which is given the eventfd, as far as they are to be.
    #[inline]
    pub(crate) fn wake(&mut self, mut signal: impl FnMut(&Arc<OwnedFd>)) {
        if let Some(call) = self.virtqueue.call() {
            signal(call);
        }
        if std::mem::take(&mut self.error_due)
            && let Some(error) = &self.error
        {
            signal(error);
        }
    }

    /// Ends a request that the host's kernel has done.
    #[inline]
    pub(crate) fn complete(&mut self, token: Token, result: i32) {
        self.handler.complete(&mut self.virtqueue, token, result);
    }

    /// Tells the front-end, once, that the ring broke the rules.
    fn after_use(&mut self) {
        if let Some(error) = self.virtqueue.newly_broken() {
            let QueueKey(number) = self.key;
            self.virtqueue.state.log.warn(|| format!("Queue {number} is given up: {error}"));
            self.virtqueue.state.broken.store(true, Ordering::Relaxed);
            self.error_due = self.error.is_some();
        }
    }

    /// Uses another map of the same guest's memory from now on. One in which the ring is no longer where it was breaks it.
    pub fn use_memory(&mut self, memory: &Arc<GuestMemory>) {
        if let Err(error) = self.virtqueue.ring.use_memory(memory) {
            self.virtqueue.broken = Some(error);
        }
    }
}
