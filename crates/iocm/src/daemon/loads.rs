//! The load of workers, measured between two reads.

use crate::clock::{now_ns, ticks};
use crate::statistics::WorkerFigures;
use std::collections::HashMap;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// The shortest time over which a load is measured, once the daemon has run that long, nanoseconds.
const WINDOW_NS: u64 = 1_000_000_000;
/// The time over which the frequency of the TSC is measured, nanoseconds: two readings that are accurate to 100 ns make
/// it accurate to 10 ppm.
const CALIBRATION_NS: u64 = 20_000_000;

/// The marks from which the loads of workers are computed. Nothing is measured unless somebody reads them.
#[derive(Debug)]
pub(crate) struct Loads {
    /// The start, in ticks of the TSC.
    began: u64,
    ticks_per_second: OnceLock<u64>,
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
        Self { began: ticks(), ticks_per_second: OnceLock::new(), marks: Mutex::default() }
    }
}

/// A moment on both clocks.
#[derive(Debug, Clone, Copy)]
struct Moment {
    ns: u64,
    ticks: u64,
}

impl Moment {
    /// The closest of several pairs: the thread may be preempted between the two clocks.
    fn now() -> Self {
        let pair = || {
            let (before, ticks) = (now_ns(), ticks());
            (now_ns().saturating_sub(before), Self { ns: before, ticks })
        };
        let closest = |one: (u64, Self), other: (u64, Self)| if other.0 < one.0 { other } else { one };
        (0..8).map(|_| pair()).fold(pair(), closest).1
    }
}

impl Loads {
    /// Ticks of the TSC per second. Measured once, because times that are computed with it must never decrease. The
    /// first call takes [`CALIBRATION_NS`]. The time since the start would be no measure: while the host is suspended, the
    /// monotonic clock does not run, but the TSC may run on, or begin anew.
    pub(crate) fn ticks_per_second(&self) -> u64 {
        *self.ticks_per_second.get_or_init(|| {
            let from = Moment::now();
            std::thread::sleep(Duration::from_nanos(CALIBRATION_NS));
            let now = Moment::now();
            let (ns, counted) = (now.ns - from.ns, now.ticks.wrapping_sub(from.ticks));
            u64::try_from(u128::from(counted) * 1_000_000_000 / u128::from(ns.max(1))).unwrap_or(u64::MAX)
        })
    }

    /// The shares of time on requests and awake, in percent, since the last mark but one. A read makes a mark if the
    /// last one is at least [`WINDOW_NS`] old.
    pub(crate) fn of(&self, worker: u32, figures: &WorkerFigures) -> [f64; 2] {
        let window = u128::from(self.ticks_per_second()) * u128::from(WINDOW_NS) / 1_000_000_000;
        let now = Mark { at: ticks(), useful: figures.useful_ticks, awake: figures.awake_ticks };
        let mut marks = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
        let first = Mark { at: self.began, ..Mark::default() };
        let kept = marks.entry(worker).or_insert([first; 2]);
        // Another reader may have made a mark since `now`.
        if now.at > kept[1].at && u128::from(now.at - kept[1].at) >= window {
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
    let passed = to.at.saturating_sub(from.at).max(1);
    // Work is counted when it ends, so a share could exceed 100 %.
    let percent = |part: u64| (part as f64 * 100.0 / passed as f64).min(100.0);
    [percent(to.useful.saturating_sub(from.useful)), percent(to.awake.saturating_sub(from.awake))]
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
    }

    #[test]
    fn a_mark_that_another_reader_made_meanwhile_stays() {
        let loads = Loads::default();
        let later = Mark { at: u64::MAX, useful: 7, awake: 7 };
        loads.marks.lock().unwrap().insert(1, [later; 2]);
        assert_eq!(loads.of(1, &WorkerFigures::default()), [0.0; 2]);
        assert_eq!(loads.marks.lock().unwrap()[&1], [later; 2]);
    }

    #[test]
    fn the_rate_of_the_tsc_is_right_from_the_first_call_on() {
        let loads = Loads::default();
        let first = loads.ticks_per_second();
        let began = Moment::now();
        std::thread::sleep(Duration::from_millis(100));
        let now = Moment::now();
        assert_eq!(loads.ticks_per_second(), first);
        let longer = (now.ticks - began.ticks) as f64 * 1e9 / (now.ns - began.ns) as f64;
        assert!((first as f64 / longer - 1.0).abs() < 1e-3, "{first} and {longer} ticks a second");
        // The TSC counted on while the host was suspended, or began anew.
        for began in [ticks().wrapping_sub(1 << 50), ticks() + (1 << 50)] {
            let suspended = Loads { began, ..Loads::default() }.ticks_per_second();
            assert!(
                (suspended as f64 / longer - 1.0).abs() < 1e-3,
                "{suspended} and {longer} ticks a second"
            );
        }
    }
}
