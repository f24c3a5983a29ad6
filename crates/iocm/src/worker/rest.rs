//! Rests of a busy worker, from figures alone.
//!
//! What the kernel cannot do at once, such as writes to tmpfs or fsync(2), is done by kernel threads, on the CPUs of
//! the worker that submitted it. They preempt a worker that slept a moment ago. But for a worker that always has work
//! they wait until the scheduler's next tick, up to 10 ms. So such a worker sleeps now and then until something
//! completes. A disk that moves the data itself needs no thread, but the file system may: to allocate blocks, for
//! instance. While only such requests are in flight, the worker rests no more often than when rests are useless.

/// The length of a rest that nothing ends, nanoseconds: about twice what a read by such a thread takes.
pub(super) const REST_NS: u64 = 20_000;
/// The time from one rest to the next, nanoseconds: at first, and at most while rests are useless because the kernel's
/// threads have nothing to do, or wait themselves.
const EVERY_NS: std::ops::RangeInclusive<u64> = 50_000..=800_000;

/// The time of the next rest.
#[derive(Debug)]
pub(super) struct Rests {
    due: u64,
    every: u64,
}

impl Default for Rests {
    fn default() -> Self {
        Self { due: 0, every: *EVERY_NS.start() }
    }
}

impl Rests {
    /// Tests whether a worker with requests in the kernel must rest at `now`. `needs_threads` says that threads may have
    /// to carry them out.
    #[inline]
    pub(super) const fn are_due(&self, now: u64, needs_threads: bool) -> bool {
        let later = if needs_threads { 0 } else { *EVERY_NS.end() - self.every };
        now >= self.due + later
    }

    /// Counts a rest from `began` to `now`, in which something completed or did not.
    pub(super) fn rested(&mut self, began: u64, now: u64, was_useful: bool) {
        self.every = match was_useful {
            true => *EVERY_NS.start(),
            false => (self.every * 2).min(*EVERY_NS.end()),
        };
        // Others may have had the CPU during the rest: the worker now has it at least twice as long.
        self.due = now + self.every.max(2 * now.saturating_sub(began));
    }

    /// Counts that the worker slept for another reason until `now`.
    pub(super) const fn slept(&mut self, now: u64) {
        self.due = now + self.every;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_works_without_end_rests_every_50_us() {
        let mut rests = Rests::default();
        assert!(rests.are_due(0, true));
        rests.rested(0, 10_000, true);
        assert!(!rests.are_due(59_999, true) && rests.are_due(60_000, true));
        rests.slept(70_000);
        assert!(!rests.are_due(119_999, true) && rests.are_due(120_000, true));
    }

    #[test]
    fn a_worker_that_waits_for_disks_alone_rests_every_800_us() {
        let mut rests = Rests::default();
        for was_useful in [true, false, false] {
            rests.rested(0, 10_000, was_useful);
            assert!(!rests.are_due(809_999, false) && rests.are_due(810_000, false));
        }
        assert!(rests.are_due(210_000, true), "a thread is to carry out another request");
    }

    #[test]
    fn rests_that_are_in_vain_or_long_take_a_third_of_the_time_at_most() {
        let mut rests = Rests::default();
        let (mut now, mut lost) = (0, 0);
        for _ in 0..1000 {
            rests.rested(now, now + REST_NS, false);
            lost += REST_NS;
            now = rests.due;
        }
        assert!(lost * 30 < now, "{lost} ns of {now} in vain");
        rests.rested(now, now + 4_000_000, true);
        assert!(!rests.are_due(now + 11_999_999, true) && rests.are_due(now + 12_000_000, true));
    }
}
