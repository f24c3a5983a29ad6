//! A queue's share of its worker: deficit round robin by weight (Shreedhar and Varghese, 1995), in units of work.

use crate::queue::WorkDone;

/// The units that a queue of the default weight gets in a turn.
const QUANTUM: i64 = 32;
/// The most units that a queue gets at once.
const MAX: i64 = 256;
/// The parts of a unit, so that weights need no rounding.
const PARTS: i64 = crate::queue::DEFAULT_WEIGHT as i64;

/// The valid weights: with the least a turn is a unit at least, with the greatest [`MAX`].
pub(crate) const WEIGHTS: std::ops::RangeInclusive<u32> = 4..=800;

/// The deficit counter of a queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Share {
    /// The parts of units that are left; negative after a turn that was more work than its budget.
    credit: i64,
}

impl Share {
    /// The budget of this turn; 0 while a deficit is paid back.
    #[inline]
    pub(super) fn turn(&mut self, weight: u32) -> u32 {
        self.credit = (self.credit + QUANTUM * i64::from(weight)).min(MAX * PARTS);
        u32::try_from(self.credit / PARTS).unwrap_or(0)
    }

    /// Tests whether there is neither a deficit to be paid back nor credit, so that a turn without work changes nothing.
    #[inline]
    pub(super) const fn is_settled(&self) -> bool {
        self.credit == 0
    }

    /// Subtracts the work of a turn. An empty queue saves nothing for later.
    #[inline]
    pub(super) fn used(&mut self, work: WorkDone, more: bool) {
        self.credit -= i64::from(work.units()) * PARTS;
        if !more && self.credit > 0 {
            self.credit = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::BYTES_A_UNIT;

    fn used(requests: u32, bytes: u64) -> WorkDone {
        WorkDone { requests, bytes, ..WorkDone::default() }
    }

    /// The requests and bytes of two queues that are never empty, after many turns.
    fn compete(a: (u32, u64), b: (u32, u64)) -> [(u64, u64); 2] {
        let mut shares = [Share::default(); 2];
        let mut done = [(0, 0); 2];
        for _ in 0..10_000 {
            for (which, (weight, size)) in [a, b].into_iter().enumerate() {
                let requests = shares[which].turn(weight);
                let bytes = u64::from(requests) * size;
                shares[which].used(used(requests, bytes), true);
                done[which].0 += u64::from(requests);
                done[which].1 += bytes;
            }
        }
        done
    }

    #[test]
    fn equal_weights_get_equal_work() {
        let [a, b] = compete((100, 0), (100, 0));
        assert_eq!(a, b);
        let [small, large] = compete((100, 512), (100, 1 << 20));
        let (small, large) = (small.0, large.0 + large.1 / BYTES_A_UNIT);
        assert!(small.abs_diff(large) * 20 < small, "{small} units against {large}");
    }

    #[test]
    fn weights_divide() {
        for weight in [4, 5, 9, 99, 100, 300, 800] {
            let [a, b] = compete((weight, 0), (100, 0));
            let wanted = b.0 * u64::from(weight) / 100;
            assert!(wanted - a.0 <= 1, "{} of {wanted} at weight {weight}", a.0);
        }
        assert!(compete((1, 0), (100, 0))[0].0 > 0, "nobody starves");
        let first = |weight: &u32| Share::default().turn(*weight);
        assert_eq!((first(WEIGHTS.start()), first(WEIGHTS.end())), (1, MAX as u32));
    }

    #[test]
    fn nobody_waits_for_more_than_a_quantum_of_each_other() {
        for size in [0, 512, 4096, 64 << 10, 1 << 20] {
            let mut greedy = Share::default();
            let mut units = 0;
            for turn in 1..=1_000_u64 {
                let requests = greedy.turn(crate::queue::DEFAULT_WEIGHT);
                assert!(i64::from(requests) <= QUANTUM, "{requests} requests of {size} bytes in a turn");
                let bytes = u64::from(requests) * size;
                greedy.used(used(requests, bytes), true);
                units += u64::from(requests) + bytes / BYTES_A_UNIT;
                // Work beyond the budget of a turn is paid back before the next one.
                let overdrawn = QUANTUM.unsigned_abs() * (1 + size / BYTES_A_UNIT);
                assert!(units <= turn * QUANTUM.unsigned_abs() + overdrawn, "turn {turn}: {units}");
            }
        }
    }

    #[test]
    fn a_queue_is_settled_once_its_deficit_is_paid_back_and_its_credit_is_gone() {
        let mut share = Share::default();
        let mut turn = |requests, more| {
            share.turn(100);
            share.used(used(requests, 0), more);
            share.is_settled()
        };
        assert_eq!([100, 0, 0, 0].map(|requests| turn(requests, false)), [false, false, false, true]);
        assert_eq!([true, false].map(|more| turn(1, more)), [false, true]);
    }

    #[test]
    fn nothing_is_saved_by_being_idle() {
        let mut share = Share::default();
        for _ in 0..100 {
            share.turn(100);
            share.used(used(0, 0), false);
        }
        assert_eq!(share.turn(100), 32);
    }
}
