//! A virtqueue with its handler and its eventfds, as one unit that moves between workers.
//!
//! A queue belongs to one thread at a time. It moves as a whole, so that nothing in it needs a lock.

mod eventfd;
mod handler;
pub mod inflight;
mod submission;
mod virtqueue;

use crate::log_limit::LogLimit;
use crate::memory::GuestMemory;
use crate::ring::{Ring, RingError};
use crate::statistics::{Delays, Moves, QueueCounters};
use inflight::Inflight;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub(crate) use eventfd::{DeviceEventfds, Eventfd};
pub(crate) use handler::BYTES_A_UNIT;
pub use handler::{Carrier, Handler, NoRoom, Submitter, Token, WorkDone};
pub(crate) use handler::{IoEngine, completed, is_by_thread};
pub use submission::Submission;
pub use virtqueue::Virtqueue;

/// The number of a queue, never used again in this process, and below 2^48. With 32 bits, a front-end that restarts its
/// queue without pause would use up all numbers in a day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueueKey(pub u64);

impl QueueKey {
    /// A number that no queue has had.
    #[must_use]
    pub fn fresh() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// The counters and the state of a queue that other threads may read.
#[derive(Debug, Default)]
pub struct QueueState {
    /// The counters.
    pub counters: QueueCounters,
    /// The delays of requests until they were taken.
    pub delays: Delays,
    /// The moves between workers, and the pauses that they caused.
    pub moves: Moves,
    /// The driver violated the ring's format, so the queue is no longer served.
    pub broken: AtomicBool,
    /// The limit of log lines that the driver can cause.
    pub log: LogLimit,
    /// The state of the device's eventfds. The queues of a [`Backend`](crate::session::Backend) share it.
    pub(crate) eventfds: Arc<DeviceEventfds>,
}

/// A virtqueue that can be served.
pub struct Queue {
    /// Its number.
    pub key: QueueKey,
    /// The ring with its inflight records and its call eventfd.
    pub(crate) virtqueue: Virtqueue,
    /// The device's side of the queue.
    pub(crate) handler: Box<dyn Handler>,
    /// The kick eventfd; `None` if the queue must be polled.
    pub(crate) kick: Option<OwnedFd>,
    /// The error eventfd, by which the front-end learns that the ring is broken.
    error: Option<Arc<Eventfd>>,
    /// The error eventfd is still to be signalled.
    error_due: bool,
    /// New requests are taken. Requests in flight complete in any case.
    pub(crate) enabled: bool,
    /// Its share of a busy worker, relative to the weights of other queues.
    pub(crate) weight: u32,
    /// The queue is always polled, and never waits for kicks.
    pub(crate) polled: bool,
    /// The time at which a worker handed it over, nanoseconds of the monotonic clock.
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

/// The eventfds of a virtqueue.
#[derive(Debug, Default)]
pub struct Notifiers {
    /// The driver's kicks; `None` if the queue must be polled.
    pub kick: Option<OwnedFd>,
    /// Calls to the driver; `None` if the driver polls.
    pub call: Option<OwnedFd>,
    /// Signalled when the driver violates the ring's format.
    pub error: Option<OwnedFd>,
}

/// The default weight of a queue.
pub(crate) const DEFAULT_WEIGHT: u32 = 100;

impl Queue {
    /// A queue that is served as soon as a worker has it.
    #[must_use]
    pub fn new(ring: Ring, notifiers: Notifiers, handler: Box<dyn Handler>, state: Arc<QueueState>) -> Self {
        let Notifiers { kick, call, error } = notifiers;
        state.broken.store(false, Ordering::Relaxed);
        let error = error.map(|file| Eventfd::new(file, &state));
        let virtqueue = Virtqueue::new(ring, call, state);
        Self {
            key: QueueKey::fresh(),
            virtqueue,
            handler,
            kick,
            error,
            error_due: false,
            enabled: true,
            weight: DEFAULT_WEIGHT,
            polled: false,
            left: None,
        }
    }

    /// Counters and state that other threads may read.
    #[must_use]
    pub fn state(&self) -> &Arc<QueueState> {
        &self.virtqueue.state
    }

    /// The number of requests in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.handler.in_flight()
    }

    /// Tests whether all requests that [`Virtqueue::base`] counts as taken have completed.
    pub(crate) fn is_drained(&self) -> bool {
        self.in_flight() == 0 && !self.virtqueue.has_again()
    }

    /// The kick eventfd.
    #[must_use]
    pub fn kick(&self) -> Option<BorrowedFd<'_>> {
        self.kick.as_ref().map(AsFd::as_fd)
    }

    /// Handles at most `budget` units of requests.
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

    /// Resumes requests that were taken, for at most `budget` units, and takes no new ones.
    pub(crate) fn resume(&mut self, submitter: &mut Submitter<'_>, budget: u32) -> WorkDone {
        let work = self.handler.resume(&mut self.virtqueue, submitter, budget);
        self.after_use();
        work
    }

    /// Does the same, and takes the requests of an earlier back-end, even if it is disabled: see [`Self::is_drained`].
    pub(crate) fn drain(&mut self, submitter: &mut Submitter<'_>, budget: u32) -> WorkDone {
        let work = self.handler.drain(&mut self.virtqueue, submitter, budget);
        self.after_use();
        work
    }

    /// Tests whether parts of requests wait for [`Self::resume`].
    #[inline]
    pub(crate) fn has_waiting(&self) -> bool {
        self.handler.has_waiting()
    }

    /// Enables or disables it.
    pub fn set_enabled(&mut self, enabled: bool) {
        self.enabled = enabled;
        self.handler.enable(enabled);
    }

    /// Enables kicks, and wake-ups by the handler's other sources. `true` if there are requests already.
    pub(crate) fn enable_wakeups(&mut self) -> bool {
        match self.enabled {
            true => self.handler.enable_wakeups(&mut self.virtqueue),
            false => self.handler.discard(&mut self.virtqueue, 0).is_some() && self.virtqueue.enable_kicks(),
        }
    }

    /// Publishes used buffers to the driver. `in_flight` is updated first, so that a driver that sees its last request
    /// complete, and asks, reads 0.
    #[inline]
    pub(crate) fn publish(&mut self) {
        self.virtqueue.state.counters.in_flight.set(self.in_flight() as u64);
        self.virtqueue.publish();
        self.after_use();
    }

    /// Replaces the error eventfd. If the ring is broken already, the new one is signalled.
    pub(crate) fn set_error(&mut self, error: Option<OwnedFd>) {
        self.error_due = error.is_some() && self.virtqueue.broken.is_some();
        self.error = error.map(|file| Eventfd::new(file, self.state()));
    }

    /// Passes the call and error eventfds that are due to `signal`.
    #[inline]
    pub(crate) fn wake(&mut self, mut signal: impl FnMut(&Arc<Eventfd>)) {
        if let Some(call) = self.virtqueue.call() {
            signal(call);
        }
        if std::mem::take(&mut self.error_due)
            && let Some(error) = &self.error
        {
            signal(error);
        }
    }

    /// Handles the completion of a submission.
    #[inline]
    pub(crate) fn complete(&mut self, token: Token, result: i32) {
        self.handler.complete(&mut self.virtqueue, token, result);
    }

    /// Reports a broken ring once, to the log and to the front-end.
    fn after_use(&mut self) {
        if let Some(error) = self.virtqueue.newly_broken() {
            let QueueKey(number) = self.key;
            self.virtqueue.state.log.warn(|| format!("Queue {number} is no longer served: {error}"));
            self.virtqueue.state.broken.store(true, Ordering::Relaxed);
            self.error_due = self.error.is_some();
        }
    }

    /// Resubmits the requests that `inflight` records as taken and not used, and records requests in it from now on.
    ///
    /// # Errors
    /// [`RingError`] when the records do not fit the ring.
    pub fn track_inflight(&mut self, inflight: Inflight) -> Result<(), RingError> {
        self.virtqueue.track_inflight(inflight)
    }

    /// Switches to another mapping of the same guest's memory. If the ring is not in it, the queue breaks.
    pub(crate) fn use_memory(&mut self, memory: &Arc<GuestMemory>) {
        // The new mapping may have lost pages already: check it.
        self.virtqueue.lost_pages = 0;
        if let Err(error) = self.virtqueue.ring.use_memory(memory) {
            self.virtqueue.broken = Some(error);
        }
    }
}
