//! A queue in a worker's hands.

use super::mailbox::Reply;
use super::share::Share;
use super::signals::Signals;
use crate::queue::Queue;

/// A queue in a worker's hands.
pub(super) struct Entry {
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

impl Entry {
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
