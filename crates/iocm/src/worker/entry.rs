//! A queue at its worker: when it is polled, and how much it may use in one turn.

use super::mailbox::Reply;
use super::share::Share;
use super::signals::Signals;
use super::uring::Uring;
use crate::clock::ticks;
use crate::queue::Queue;
use crate::statistics::WorkerCounters;

/// A queue at its worker.
pub(super) struct QueueEntry {
    pub(super) queue: Queue,
    /// It is polled in every sweep, with kicks disabled; otherwise it waits for a kick.
    pub(super) polling_now: bool,
    /// The worker cannot wait for its events, and polls it.
    pub(super) is_deaf: bool,
    /// It was kicked since it was last polled.
    pub(super) kicked: bool,
    /// Requests in flight wait for their next step.
    pub(super) waiting: bool,
    pub(super) share: Share,
    /// The time at which it was last polled, nanoseconds.
    pub(super) last_polled: u64,
    /// The time since which it has had more requests than its share allows.
    pub(super) starved_since: Option<u64>,
    /// The time until which a limit holds it back, nanoseconds.
    pub(super) throttled_until: u64,
    /// The number of polls in a row that found nothing, and the time of the last that found something, nanoseconds.
    pub(super) empty_polls: u32,
    pub(super) last_found: u64,
    /// The channel for the queue once all requests that were taken have completed.
    pub(super) draining: Option<Reply<Option<Queue>>>,
}

impl QueueEntry {
    /// An entry that is polled first, at `now` in nanoseconds and in ticks.
    pub(super) fn new(queue: Queue, now: u64, ticks: u64) -> Self {
        queue.state().counters.unkicked_ticks.start(ticks);
        Self {
            waiting: queue.has_waiting(),
            queue,
            polling_now: true,
            is_deaf: false,
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

    /// Tests whether its last turn left requests in its ring.
    pub(super) const fn has_more(&self) -> bool {
        self.starved_since.is_some()
    }

    /// The queue, which leaves the worker at these ticks.
    pub(super) fn leave(self, ticks: u64) -> Queue {
        let counters = &self.queue.state().counters;
        counters.unkicked_ticks.stop(ticks);
        counters.slept_ticks.stop(ticks);
        self.queue
    }

    /// Disables kicks, and polls it in every sweep from now on. `ticks` is now.
    pub(super) fn start_polling(&mut self, ticks: u64) {
        if !self.polling_now {
            self.polling_now = true;
            let counters = &self.queue.state().counters;
            counters.slept_ticks.stop(ticks);
            counters.unkicked_ticks.start(ticks);
            self.empty_polls = 0;
            self.last_found = self.last_polled;
            self.queue.virtqueue.disable_kicks();
        }
    }

    /// Looks for requests of a queue that is left to its kicks, before its kick is seen. A queue that had none for a
    /// while is not looked at, so that any number of idle queues costs nothing.
    pub(super) fn has_unkicked(&mut self, now: u64) -> bool {
        if now.saturating_sub(self.last_found) >= LOOKED_AT_NS || !self.queue.enabled {
            return false;
        }
        let has_work = self.queue.handler.has_work(&self.queue.virtqueue);
        if has_work == Some(false) {
            self.last_polled = now;
        }
        has_work == Some(true)
    }

    /// Publishes completed requests, and polls the queue again if it has more of them.
    pub(super) fn completed(&mut self, signals: &mut Signals) {
        self.queue.publish();
        self.queue.wake(|file| signals.add(file));
        self.waiting = self.queue.has_waiting();
        // It may have stopped at the limit of requests in flight, with more in its ring.
        if !self.polling_now && self.queue.virtqueue.has_more() {
            self.start_polling(ticks());
        }
    }

    /// Enables kicks, so that it need not be polled. It stays polled if it has requests already, has no kick eventfd
    /// that the worker can wait for, or is `always` polled. `ticks` is now.
    pub(super) fn stop_polling(&mut self, always: bool, ticks: u64) -> NextLook {
        if !self.polling_now {
            return NextLook::Kicked;
        }
        if (self.queue.polled || always) && self.queue.enabled {
            return NextLook::Now;
        }
        let has_no_kicks = self.queue.kick.is_none() || self.is_deaf;
        if has_no_kicks && self.queue.enabled && self.queue.virtqueue.broken().is_none() {
            return NextLook::Later;
        }
        if self.queue.enable_wakeups() {
            // It stays polled, so the driver need not kick for what follows.
            self.queue.virtqueue.disable_kicks();
            return NextLook::Now;
        }
        // No request waits for its turn.
        (self.polling_now, self.starved_since) = (false, None);
        let counters = &self.queue.state().counters;
        counters.unkicked_ticks.stop(ticks);
        counters.slept_ticks.start(ticks);
        NextLook::Kicked
    }

    /// Tests whether polling it costs more than it saves.
    const fn is_idle(&self, now: u64) -> bool {
        self.empty_polls >= IDLE_POLLS && now.saturating_sub(self.last_found) >= IDLE_NS
    }

    /// Counts a poll that finds nothing, in place of a turn. `false` if there may be something to do in a turn.
    #[inline]
    pub(super) fn is_passed_over(&mut self, now: u64, always: bool) -> bool {
        let stays = always || self.queue.polled || !self.is_idle(now);
        let has_nothing = self.polling_now && stays && !self.kicked && !self.waiting && !self.has_more();
        let queue = &self.queue;
        let is_usual = queue.enabled && queue.virtqueue.broken().is_none() && self.share.is_settled();
        if !has_nothing || !is_usual || queue.handler.has_work(&queue.virtqueue) != Some(false) {
            return false;
        }
        queue.state().counters.polls_empty.add(1);
        self.empty_polls = self.empty_polls.saturating_add(1);
        self.last_polled = now;
        true
    }
}

/// The time of the next look at a queue, the latest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum NextLook {
    /// After a kick.
    Kicked,
    /// After a nap: there is no usable kick eventfd. That is the front-end's choice, and must not get it a core.
    Later,
    /// At once.
    Now,
}

/// A queue that was empty for this many polls and nanoseconds is left to its kicks: polling it has by then cost about
/// as much as a kick. The number of polls alone would be reached in a few microseconds on an idle worker, less than a
/// driver takes until its next burst.
const IDLE_POLLS: u32 = 64;
const IDLE_NS: u64 = 200_000;

/// A queue that is left to its kicks is looked at for this long after its last request, nanoseconds.
pub(super) const LOOKED_AT_NS: u64 = 20_000_000;

/// Serves a queue once; with `always` it stays polled, and `crowded` if others have work. Returns the number of its
/// requests.
#[inline]
pub(super) fn serve(
    entry: &mut QueueEntry,
    uring: &mut Uring,
    signals: &mut Signals,
    counters: &WorkerCounters,
    now: u64,
    always: bool,
    crowded: bool,
) -> u64 {
    let began = ticks();
    let budget = entry.share.turn(entry.queue.weight);
    let key = entry.queue.key;
    let work = entry.queue.serve(&mut uring.submitter(key).crowded(crowded), budget);
    // Most turns find nothing, and must be short. One that takes no requests may end some that were taken before.
    match (work.requests, work.bytes) {
        (0, 0) => entry.queue.virtqueue.publish(),
        _ => entry.queue.publish(),
    }
    entry.queue.wake(|file| signals.add(file));
    let state = entry.queue.state();
    let figures = &state.counters;
    entry.waiting = entry.queue.has_waiting();
    entry.share.used(work, work.more || entry.waiting);
    entry.throttled_until = work.throttled_ns.map_or(0, |ns| now.saturating_add(ns));
    let kicked = std::mem::take(&mut entry.kicked);
    let found = u64::from(work.requests);
    if found == 0 && work.more {
        // It had no budget for new requests, and did not look for them: those that wait go on waiting.
        entry.kicked = kicked;
        entry.starved_since = entry.starved_since.or(Some(now));
        entry.start_polling(began);
        return found;
    }
    if found == 0 {
        figures.polls_empty.add(1);
        entry.empty_polls = entry.empty_polls.saturating_add(1);
        entry.starved_since = None;
        let is_throttled = work.throttled_ns.is_some();
        if entry.polling_now {
            if entry.is_idle(now) && !is_throttled {
                entry.stop_polling(always, began);
            }
        } else if is_throttled || entry.queue.enable_wakeups() {
            // The driver does not kick again unless kicks are enabled.
            entry.start_polling(began);
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
        entry.start_polling(began);
        (entry.empty_polls, entry.last_found) = (0, now);
        entry.starved_since = work.more.then_some(now);
    }
    entry.last_polled = now;
    found
}

/// Resumes the requests in flight of a queue that takes no new ones. One that is being drained also resubmits those of an
/// earlier back-end.
pub(super) fn resume(entry: &mut QueueEntry, uring: &mut Uring, signals: &mut Signals, crowded: bool) {
    let budget = entry.share.turn(entry.queue.weight);
    let key = entry.queue.key;
    let mut submitter = uring.submitter(key).crowded(crowded);
    let work = match entry.draining {
        None => entry.queue.resume(&mut submitter, budget),
        Some(_) => entry.queue.drain(&mut submitter, budget),
    };
    entry.queue.publish();
    entry.queue.wake(|file| signals.add(file));
    entry.waiting = entry.queue.has_waiting();
    entry.share.used(work, entry.waiting);
}
