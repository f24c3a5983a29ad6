//! The exclusion of writes in a worker's thread and discards of the same file.
//!
//! The kernel holds a file's lock for as long as it takes to free the pages of a range, which may be a second for a
//! gibibyte of tmpfs. A write needs the same lock. So a worker writes in its own thread only while no discard of the
//! disk is in flight, and a discard is not submitted before such writes have ended. Neither side waits: the write goes
//! to the kernel's threads, and the discard is tried again in the queue's next turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The writes and discards of a disk that exclude each other.
#[derive(Debug, Default)]
pub(super) struct Discards {
    /// The requests that discard or zero ranges, from before their first step until after the last.
    in_flight: Arc<AtomicU32>,
    /// The writes that workers execute now.
    writes: AtomicU32,
}

/// A request that discards or zeroes ranges. It has ended when this is dropped.
#[derive(Debug)]
pub(super) struct Discard(Arc<AtomicU32>);

impl Discards {
    /// Begins a request that discards or zeroes ranges. From now on no other write begins in a worker's thread.
    pub(super) fn begin(&self) -> Discard {
        // Both sides announce themselves before they look for the other, in one order for all threads: at least one of
        // them sees the other.
        self.in_flight.fetch_add(1, Ordering::SeqCst);
        Discard(Arc::clone(&self.in_flight))
    }

    /// Tests whether a worker is executing a write, so that no range may be discarded now.
    pub(super) fn must_wait(&self) -> bool {
        self.writes.load(Ordering::SeqCst) > 0
    }

    /// Executes a write in this thread; `None` if a discard is in flight.
    pub(super) fn exclude<R>(&self, write: impl FnOnce() -> R) -> Option<R> {
        self.writes.fetch_add(1, Ordering::SeqCst);
        let written = (self.in_flight.load(Ordering::SeqCst) == 0).then(write);
        self.writes.fetch_sub(1, Ordering::SeqCst);
        written
    }
}

impl Drop for Discard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_and_a_discard_exclude_each_other() {
        let discards = Discards::default();
        assert_eq!(discards.exclude(|| discards.must_wait()), Some(true));
        assert!(!discards.must_wait());
        let [first, second] = [discards.begin(), discards.begin()];
        drop(first);
        assert_eq!(discards.exclude(|| ()), None);
        assert!(!discards.must_wait());
        drop(second);
        assert_eq!(discards.exclude(|| ()), Some(()));
    }

    #[test]
    fn of_a_write_and_a_discard_in_two_threads_one_sees_the_other() {
        let (discards, inside) = (Discards::default(), AtomicU32::new(0));
        let count = |step: &dyn Fn()| {
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "both are inside");
            step();
            inside.fetch_sub(1, Ordering::SeqCst);
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..20_000 {
                    discards.exclude(|| count(&std::hint::spin_loop));
                }
            });
            for _ in 0..20_000 {
                let _discard = discards.begin();
                if !discards.must_wait() {
                    count(&std::hint::spin_loop);
                }
            }
        });
    }
}
