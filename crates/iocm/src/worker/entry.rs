//! A queue at its worker: when it is polled, and how much it may use in one turn.

use super::mailbox::Reply;
use super::share::Share;
use super::signals::Signals;
use super::uring::Uring;
use crate::clock::ticks;
use crate::queue::Queue;
use crate::statistics::WorkerCounters;

/// A queue in a worker's hands.
pub(super) struct QueueEntry {
    pub(super) queue: Queue,
    /// Whether it is looked at in every sweep, so that kicks are spared; a cold one waits for its kick.
    pub(super) polling_now: bool,
    /// Whether it was kicked since it was last looked at.
    pub(super) kicked: bool,
    /// Whether requests under way wait for their next steps.
    pub(super) waiting: bool,
    pub(super) share: Share,
    /// When it was last looked at, nanoseconds.
    pub(super) last_polled: u64,
    /// Since when it has requests for which its share did not suffice.
    pub(super) starved_since: Option<u64>,
    /// Not to be looked at before, nanoseconds.
    pub(super) throttled_until: u64,
    /// Sweeps in a row in which it had nothing, and when it had something last, nanoseconds.
    pub(super) empty_polls: u32,
    pub(super) last_found: u64,
    /// Who wants it as soon as the kernel has none of its requests.
    pub(super) draining: Option<Reply<Option<Queue>>>,
}

impl QueueEntry {
    /// One that is looked at first.
    pub(super) fn new(queue: Queue, now: u64) -> Self {
        Self {
            waiting: queue.has_waiting(),
            queue,
            polling_now: true,
            kicked: false,
            share: Share::default(),
            last_polled: now,
            starved_since: None,
            throttled_until: 0,
            empty_polls: 0,
            last_found: now,
            draining: None,
        }
    }

    /// Looks at it in every sweep from now on.
    pub(super) fn start_polling(&mut self) {
        if !self.polling_now {
            self.polling_now = true;
            self.empty_polls = 0;
            self.last_found = self.last_polled;
            self.queue.virtqueue.disable_kicks();
        }
    }

    /// Shows the driver what the kernel has completed, and sees to it that what follows from that is done.
    pub(super) fn completed(&mut self, signals: &mut Signals) {
        self.queue.publish();
        self.queue.wake(|file| signals.add(file));
        self.waiting = self.queue.has_waiting();
        // It may have waited for just that, with more in its ring than can be under way.
        if !self.polling_now && self.queue.virtqueue.has_more() {
            self.start_polling();
        }
    }

    /// Leaves it alone until its kick. Whether that is done: not when there is something in it already, or nobody who
    /// kicks, or it is `always` to be looked at.
    pub(super) fn stop_polling(&mut self, always: bool) -> bool {
        let is_polled = (self.queue.kick.is_none() || self.queue.polled || always) && self.queue.enabled;
        if self.polling_now && (is_polled || self.queue.enable_wakeups()) {
            return false;
        }
        self.polling_now = false;
        true
    }
}

/// A queue that had nothing in so many sweeps, and for so many nanoseconds, while others had is left to its kicks: to look
/// at it has cost about what its next kick costs. Sweeps alone would say so after a few microseconds where little is to do,
/// which is shorter than a driver takes for its next burst.
const IDLE_POLLS: u32 = 64;
const IDLE_NS: u64 = 200_000;

/// Gives a queue its turn; `always` says that it stays to be looked at. How many requests it had.
#[inline]
pub(super) fn serve(
    entry: &mut QueueEntry,
    uring: &mut Uring,
    signals: &mut Signals,
    counters: &WorkerCounters,
    now: u64,
    always: bool,
) -> u64 {
    let began = ticks();
    let budget = entry.share.turn(entry.queue.weight);
    let key = entry.queue.key;
    let work = entry.queue.serve(&mut uring.submitter(key), budget);
    // Most turns find nothing, and are to be short.
    match work.requests {
        0 => entry.queue.virtqueue.publish(),
        _ => entry.queue.publish(),
    }
    entry.queue.wake(|file| signals.add(file));
    let state = entry.queue.state();
    let figures = &state.counters;
    entry.waiting = entry.queue.has_waiting();
    entry.share.used(work, work.more || entry.waiting);
    entry.throttled_until = work.throttled_ns.map_or(0, |ns| now + ns);
    let kicked = std::mem::take(&mut entry.kicked);
    let found = u64::from(work.requests);
    if found == 0 {
        figures.polls_empty.add(1);
        entry.empty_polls += 1;
        let is_throttled = work.throttled_ns.is_some();
        if entry.polling_now {
            let is_idle = entry.empty_polls >= IDLE_POLLS && now.saturating_sub(entry.last_found) >= IDLE_NS;
            if is_idle && !is_throttled {
                entry.stop_polling(always);
            }
        } else if is_throttled || entry.queue.enable_wakeups() {
            // Whoever woke it for nothing will not wake it again, unless it is asked to.
            entry.start_polling();
        }
    } else {
        figures.polls_full.add(1);
        figures.kicks_saved.add(found - u64::from(kicked));
        state.delays.add(now - entry.last_polled.min(now), found);
        let useful = ticks().wrapping_sub(began);
        figures.useful_ticks.add(useful);
        counters.useful_ticks.add(useful);
        if let Some(since) = entry.starved_since.take() {
            figures.stuck_ns.add(now - since.min(now));
        }
        entry.start_polling();
        (entry.empty_polls, entry.last_found) = (0, now);
    }
    entry.starved_since = work.more.then_some(now);
    entry.last_polled = now;
    found
}

/// Gives requests under way of a queue that takes no new ones their turn.
pub(super) fn resume(entry: &mut QueueEntry, uring: &mut Uring, signals: &mut Signals) {
    let budget = entry.share.turn(entry.queue.weight);
    let key = entry.queue.key;
    let work = entry.queue.resume(&mut uring.submitter(key), budget);
    entry.queue.publish();
    entry.queue.wake(|file| signals.add(file));
    entry.waiting = entry.queue.has_waiting();
    entry.share.used(work, entry.waiting);
}
