//! The times of a queue or of a worker, by what was done meanwhile.

use super::{QueueFigures, WorkerFigures};
use serde::Serialize;

/// The time of a worker, or of a queue at its workers, by what was done, in nanoseconds. The sum is all of its time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Times {
    /// In turns that found requests.
    pub worked_ns: u64,
    /// Awake otherwise: looking for requests, handling completions. For a queue: while it needed no kick.
    pub polled_ns: u64,
    /// In naps.
    pub napped_ns: u64,
    /// Until an event. For a queue: while it was left to its kicks.
    pub slept_ns: u64,
}

impl Times {
    fn new(awake: u64, worked: u64, napped: u64, slept: u64, ticks_per_second: u64) -> Self {
        let ns = |ticks: u64| {
            let ns = u128::from(ticks) * 1_000_000_000 / u128::from(ticks_per_second.max(1));
            u64::try_from(ns).unwrap_or(u64::MAX)
        };
        // A reader may find a turn that has not been added to the time awake yet.
        let polled = awake.saturating_sub(worked);
        Self { worked_ns: ns(worked), polled_ns: ns(polled), napped_ns: ns(napped), slept_ns: ns(slept) }
    }

    /// The times of a worker.
    #[must_use]
    pub(crate) fn of_worker(figures: &WorkerFigures, ticks_per_second: u64) -> Self {
        let WorkerFigures { awake_ticks, useful_ticks, napped_ticks, slept_ticks, .. } = *figures;
        Self::new(awake_ticks, useful_ticks, napped_ticks, slept_ticks, ticks_per_second)
    }

    /// The times of a queue.
    #[must_use]
    pub fn of_queue(figures: &QueueFigures, ticks_per_second: u64) -> Self {
        let QueueFigures { unkicked_ticks, useful_ticks, napped_ticks, slept_ticks, .. } = *figures;
        let awake = unkicked_ticks.saturating_sub(napped_ticks);
        Self::new(awake, useful_ticks, napped_ticks, slept_ticks, ticks_per_second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_time_are_all_of_it() {
        let worker = WorkerFigures {
            awake_ticks: 1000,
            useful_ticks: 300,
            napped_ticks: 500,
            slept_ticks: 2500,
            ..WorkerFigures::default()
        };
        let times = Times { worked_ns: 150, polled_ns: 350, napped_ns: 250, slept_ns: 1250 };
        assert_eq!(Times::of_worker(&worker, 2_000_000_000), times);
        let queue = QueueFigures {
            unkicked_ticks: 1500,
            useful_ticks: 300,
            napped_ticks: 500,
            slept_ticks: 2500,
            ..QueueFigures::default()
        };
        assert_eq!(Times::of_queue(&queue, 2_000_000_000), times);
    }

    #[test]
    fn counters_that_do_not_fit_each_other_are_no_time_that_is_missing() {
        let queue = QueueFigures { useful_ticks: u64::MAX, napped_ticks: 7, ..QueueFigures::default() };
        let times = Times::of_queue(&queue, 0);
        assert_eq!((times.worked_ns, times.polled_ns, times.napped_ns), (u64::MAX, 0, 7_000_000_000));
    }
}
