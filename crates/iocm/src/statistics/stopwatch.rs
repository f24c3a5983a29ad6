//! A clock that runs while something lasts, and can be read meanwhile.

use crate::clock::ticks;
use std::sync::atomic::{AtomicU64, Ordering};

/// The flag of a running stopwatch. The other bits are then the total minus the ticks of the start, modulo 2^63. It is
/// a single word, so that a reader never finds half of a change.
const RUNS: u64 = 1 << 63;

/// The total time of something, in ticks of the TSC. One thread starts and stops it, others read it.
#[derive(Debug, Default)]
pub struct Stopwatch(AtomicU64);

impl Stopwatch {
    /// Starts it at these ticks, unless it is running. Only the thread that owns it may do so, as with
    /// [`super::Count::add`].
    #[inline]
    pub(crate) fn start(&self, now: u64) {
        let total = self.0.load(Ordering::Relaxed);
        if total & RUNS == 0 {
            self.0.store(total.wrapping_sub(now) | RUNS, Ordering::Relaxed);
        }
    }

    /// Stops it at these ticks, if it is running, under the same condition.
    #[inline]
    pub(crate) fn stop(&self, now: u64) {
        let value = self.0.load(Ordering::Relaxed);
        if value & RUNS != 0 {
            self.0.store(total(value, now), Ordering::Relaxed);
        }
    }

    /// The total until now.
    #[must_use]
    pub fn get(&self) -> u64 {
        let value = self.0.load(Ordering::Relaxed);
        if value & RUNS == 0 { value } else { total(value, ticks()) }
    }
}

/// The total of a running stopwatch. The TSC of the reader's CPU may be slightly behind the start: that is 0, not 2^63 - 1.
const fn total(value: u64, now: u64) -> u64 {
    let total = value.wrapping_add(now) & !RUNS;
    if total >= RUNS / 2 { 0 } else { total }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_adds_up_what_lasted_from_starts_to_stops() {
        // Any value of the TSC.
        for base in [0, RUNS - 500, u64::MAX - 500] {
            let watch = Stopwatch::default();
            let at = |ticks: u64| base.wrapping_add(ticks);
            watch.stop(at(5));
            assert_eq!(watch.get(), 0, "it did not run");
            watch.start(at(100));
            watch.start(at(200));
            watch.stop(at(700));
            watch.stop(at(900));
            assert_eq!(watch.get(), 600, "from {base}");
            watch.start(at(1000));
            watch.stop(at(1001));
            assert_eq!(watch.get(), 601, "from {base}");
        }
    }

    #[test]
    fn it_is_read_while_it_runs() {
        let watch = Stopwatch::default();
        let began = ticks();
        watch.start(began);
        let first = watch.get();
        let second = watch.get();
        assert!(first <= second && second <= ticks() - began, "{first} {second}");
        // The TSC of another CPU may be behind.
        let ahead = Stopwatch::default();
        ahead.start(ticks() + (1 << 40));
        assert_eq!(ahead.get(), 0);
    }

    #[test]
    fn a_reader_never_finds_half_of_a_change() {
        const LASTS: u64 = 1 << 50;
        let watch = Stopwatch::default();
        std::thread::scope(|scope| {
            let owner = scope.spawn(|| {
                for _ in 0..100_000 {
                    // In the past, so that half of a change would be far off.
                    watch.start(ticks().wrapping_sub(LASTS));
                    watch.stop(ticks());
                    watch.0.store(0, Ordering::Relaxed);
                }
            });
            while !owner.is_finished() {
                let seen = watch.get();
                assert!(seen == 0 || (LASTS / 2..2 * LASTS).contains(&seen), "{seen}");
            }
        });
    }
}
