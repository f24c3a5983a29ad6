//! The load of workers, measured between two reads.

use crate::clock::{now_ns, ticks};
use crate::statistics::WorkerFigures;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// The shortest time over which a load is measured, once the daemon has run for so long, nanoseconds.
const WINDOW_NS: u64 = 1_000_000_000;

/// The marks from which the loads of workers are computed. Nothing is measured unless somebody reads them.
#[derive(Debug)]
pub(crate) struct Loads {
    began: (u64, u64),
    marks: Mutex<HashMap<u32, [Mark; 2]>>,
}

/// A worker's counters at one moment, in ticks of the TSC.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Mark {
    at: u64,
    useful: u64,
    awake: u64,
}

impl Default for Loads {
    fn default() -> Self {
        Self { began: (now_ns(), ticks()), marks: Mutex::default() }
    }
}

impl Loads {
    /// Ticks of the TSC per second, measured since the daemon's start.
    pub(crate) fn ticks_per_second(&self) -> u64 {
        let (ns, counted) = (now_ns() - self.began.0, ticks().wrapping_sub(self.began.1));
        u64::try_from(u128::from(counted) * 1_000_000_000 / u128::from(ns.max(1))).unwrap_or(u64::MAX)
    }

    /// The share of time on requests, and awake, in percent, since the last read but one that was a second ago or more.
    pub(crate) fn of(&self, worker: u32, figures: &WorkerFigures) -> [f64; 2] {
        let window = u128::from(self.ticks_per_second()) * u128::from(WINDOW_NS) / 1_000_000_000;
        let now = Mark { at: ticks(), useful: figures.useful_ticks, awake: figures.awake_ticks };
        let mut marks = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
        let first = Mark { at: self.began.1, ..Mark::default() };
        let kept = marks.entry(worker).or_insert([first; 2]);
        if u128::from(now.at.wrapping_sub(kept[1].at)) >= window {
            *kept = [kept[1], now];
        }
        share(kept[0], now)
    }

    /// Starts measuring a new worker.
    pub(crate) fn begin(&self, worker: u32) {
        let now = Mark { at: ticks(), ..Mark::default() };
        self.marks.lock().unwrap_or_else(PoisonError::into_inner).insert(worker, [now; 2]);
    }

    /// Forgets a removed worker.
    pub(crate) fn forget(&self, worker: u32) {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner).remove(&worker);
    }
}

fn share(from: Mark, to: Mark) -> [f64; 2] {
    let passed = to.at.wrapping_sub(from.at).max(1);
    // Work is counted at its end, so that a share may come out above 100 %.
    let percent = |part: u64| (part as f64 * 100.0 / passed as f64).min(100.0);
    [percent(to.useful.wrapping_sub(from.useful)), percent(to.awake.wrapping_sub(from.awake))]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_the_time_between_two_marks() {
        let from = Mark { at: 1000, useful: 10, awake: 20 };
        let to = Mark { at: 2000, useful: 260, awake: 520 };
        assert_eq!(share(from, to), [25.0, 50.0]);
        assert_eq!(share(to, Mark { useful: 9000, ..to })[0], 100.0);
        let loads = Loads::default();
        assert_eq!(loads.of(0, &WorkerFigures::default()), [0.0; 2]);
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(loads.ticks_per_second() > 100_000_000, "{}", loads.ticks_per_second());
    }
}
