//! The policy of waiting: the decision of a worker that found nothing to do, from figures alone.
//!
//! There are three ways to the next request. Spinning costs the CPU, but no time, and no wake-up on either side. A nap
//! of a set length costs one timer for all that arrives meanwhile, and no kicks; but requests wait for it. Sleeping
//! until a kick costs nothing while none arrives, and a system call and a wake-up for each that does.
//!
//! Which is best depends on what a wake-up, a timer and a kick cost on this host, and on what the guests do with their
//! answers. A guest that waits for answers before it submits more is slowed down by naps and made faster by spinning.
//! Its rate alone does not show this, because the way of waiting shapes the rate. So nothing is assumed. The worker
//! measures how fast requests come, and how much of its CPU time each takes, over windows of 5 ms. Now and then it
//! tries another way, in windows that alternate with the present way, and keeps the winner of two or three such pairs.
//! A way that cannot pay is not tried: spinning only if the next request is mostly near, and naps only if wake-ups come
//! more often than naps would end.

/// The polling mode of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Polling {
    /// Spins, naps or sleeps, whichever is best for the present load.
    Adaptive {
        /// The longest nap, nanoseconds: the most that a request waits for one.
        nap_ns: u64,
    },
    /// Always polls: for a worker with a core of its own.
    Always,
    /// Always sleeps until a kick.
    Never,
}

/// The default for the longest nap: long enough that naps halve the cost of a request at some ten thousand requests a
/// second, short enough that the slowest hundredth of requests waits no longer than for a thread of its own.
pub const DEFAULT_NAP_NS: u64 = 60_000;

impl Default for Polling {
    fn default() -> Self {
        Self::Adaptive { nap_ns: DEFAULT_NAP_NS }
    }
}

impl Polling {
    /// The longest nap that was asked for, nanoseconds; `None` if there are no naps.
    pub(crate) const fn nap_ns(self) -> Option<u64> {
        match self {
            Self::Adaptive { nap_ns } => Some(nap_ns),
            Self::Always | Self::Never => None,
        }
    }

    /// The longest nap, nanoseconds.
    pub(super) const fn longest_nap_ns(self) -> u64 {
        match self {
            Self::Adaptive { nap_ns } if nap_ns > SHORTEST_NAP_NS => nap_ns,
            Self::Adaptive { .. } => SHORTEST_NAP_NS,
            Self::Always | Self::Never => DEFAULT_NAP_NS,
        }
    }
}

/// The next step of an idle worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Idle {
    /// Poll all queues again.
    Poll,
    /// Sleep for this many nanoseconds, or until a completion; kicks wait.
    Nap(u64),
    /// Sleep until a kick or a completion.
    Sleep,
}

/// The longest spin, nanoseconds: what a driver takes to be woken, to handle a burst of answers and to submit the next.
const SPIN_NS: u64 = 32_000;
/// The shortest nap, nanoseconds: a shorter one is not worth its timer.
const SHORTEST_NAP_NS: u64 = 20_000;
/// The number of wake-ups that a nap should replace.
const WAKE_UPS: u64 = 16;
/// The time over which a load is measured, nanoseconds.
const WINDOW_NS: u64 = 5_000_000;
/// A longer time without requests is a pause, nanoseconds: three of the scheduler's ticks of 4 ms (CONFIG_HZ=250). Beside
/// other programs that never wait, a thread has its CPU for one tick at a time and then waits for the others' ticks.
const PAUSE_NS: u64 = 12_000_000;
/// The length of a pause after which a load is a new one, nanoseconds, and the number of pauses without a complete window
/// that show the same. A single one may just mean that a thread had no CPU.
const REST_NS: u64 = 100_000_000;
const MANY_RESTS: u32 = 4;
/// The number of windows after which another way is tried, at first and at most. At most it is so large that all trials
/// together take about a hundredth of the time.
const HOLD_WINDOWS: std::ops::RangeInclusive<u32> = 2..=256;
/// The number of windows that one way must be better or worse than the other in a trial: on a busy machine a single
/// window says little.
const MAJORITY: u32 = 2;

/// A way of waiting for requests, the quickest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    /// Spinning for [`SPIN_NS`], then sleeping until a kick.
    Spin,
    /// Sleeping until a kick.
    Kicks,
    /// Napping.
    Naps,
}

/// The measure of a window.
#[derive(Debug, Clone, Copy, Default)]
struct Measure {
    /// Nanoseconds from one request to the next.
    gap: u64,
    /// Nanoseconds of the worker's CPU time for a request.
    cost: u64,
}

impl Measure {
    /// Tests whether the way `to` with this measure is better than the way `from` with the other one.
    fn beats(self, to: Way, from: Way, other: Self) -> bool {
        // Rates over so short a time vary by chance; those that depend on the way of waiting differ by far more.
        let is_faster = |one: Self, than: Self| one.gap * 5 < than.gap * 4;
        if is_faster(other, self) {
            return false;
        }
        // The guest waits for its answers, and gets more done now. This is worth some CPU time, but not any amount.
        if is_faster(self, other) {
            return self.cost < other.cost * 3 / 2;
        }
        // At the same rate the cost decides; but a small saving does not justify that requests wait longer.
        match to < from {
            true => self.cost < other.cost,
            false => self.cost * 10 < other.cost * 9,
        }
    }
}

/// The load of the present window.
#[derive(Debug, Clone, Copy, Default)]
struct Window {
    /// Its start, nanoseconds, and the worker's CPU time then.
    began: u64,
    cpu: u64,
    requests: u64,
    /// The number of waits for requests, and their total time.
    waits: u64,
    waited: u64,
    /// The nanoseconds in which the worker napped or slept.
    slept: u64,
}

/// A trial of another way.
#[derive(Debug, Clone, Copy)]
struct Trial {
    way: Way,
    /// The measure of the present way in the window before.
    before: Measure,
    /// The present window uses the way on trial.
    on: bool,
    /// The numbers of pairs of windows in which it was better, and worse.
    better: u32,
    worse: u32,
}

/// The load, and the way in which requests are waited for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Backoff {
    way: Way,
    trial: Option<Trial>,
    /// The way that was on trial last.
    tried: Way,
    /// The number of windows until the next trial, and between two trials.
    left: u32,
    hold: u32,
    window: Window,
    /// The nanoseconds from one wake-up to the next, without naps; 0 while unknown.
    rhythm: u64,
    /// The number of pauses since the last complete window.
    rests: u32,
    /// The time of the last request, and the start of the wait for the next one.
    last: u64,
    idle_since: Option<u64>,
}

impl Default for Backoff {
    fn default() -> Self {
        let hold = *HOLD_WINDOWS.start();
        Self {
            way: Way::Kicks,
            trial: None,
            tried: Way::Kicks,
            left: hold,
            hold,
            window: Window::default(),
            rhythm: 0,
            rests: 0,
            last: 0,
            idle_since: None,
        }
    }
}

impl Backoff {
    /// Counts requests that were found at `now`. `cpu` tells the worker's CPU time.
    #[inline]
    pub(super) fn found(&mut self, requests: u64, now: u64, polling: Polling, cpu: impl FnOnce() -> u64) {
        let rested = now.saturating_sub(self.last);
        if rested > PAUSE_NS {
            let rests = self.rests + 1;
            // The load before a pause says nothing about the one after it.
            if rested > REST_NS || rests >= MANY_RESTS {
                *self = Self::default();
            }
            self.window = Window { began: now, cpu: cpu(), requests, ..Window::default() };
            (self.rests, self.last, self.idle_since) = (rests.min(MANY_RESTS), now, None);
            return;
        }
        self.last = now;
        let window = &mut self.window;
        if let Some(since) = self.idle_since.take() {
            window.waits += 1;
            window.waited += now.saturating_sub(since);
        }
        window.requests += requests;
        if now - window.began >= WINDOW_NS {
            let ended = std::mem::replace(window, Window { began: now, cpu: cpu(), ..Window::default() });
            if let Polling::Adaptive { nap_ns } = polling {
                self.decide(&ended, nap_ns);
            }
        }
    }

    /// Counts that the worker napped or slept for so many nanoseconds.
    pub(super) const fn slept(&mut self, ns: u64) {
        self.window.slept += ns;
    }

    /// Decides at the end of a window.
    fn decide(&mut self, ended: &Window, longest: u64) {
        let used = self.window.cpu.saturating_sub(ended.cpu);
        // On a busy machine the worker had no CPU for the rest, a few ticks more or less in each window.
        let passed = (self.window.began - ended.began).min(used + ended.slept);
        let requests = ended.requests.max(1);
        let measure = Measure { gap: passed / requests, cost: used / requests };
        if self.present() != Way::Naps {
            self.rhythm = passed / ended.waits.max(1);
        }
        self.rests = 0;
        if let Some(trial) = &mut self.trial {
            if trial.on {
                match measure.beats(trial.way, self.way, trial.before) {
                    true => trial.better += 1,
                    false => trial.worse += 1,
                }
            }
            (trial.on, trial.before) = (!trial.on, measure);
            let Trial { way, better, worse, .. } = *trial;
            if better.max(worse) == MAJORITY {
                self.trial = None;
                self.hold = if better > worse {
                    self.way = way;
                    *HOLD_WINDOWS.start()
                } else {
                    (self.hold * 2).min(*HOLD_WINDOWS.end())
                };
                self.left = self.hold;
            }
            return;
        }
        self.left = self.left.saturating_sub(1);
        if self.left > 0 {
            return;
        }
        let can_pay = |way| match way {
            Way::Kicks => true,
            Way::Spin => ended.waited < ended.waits * SPIN_NS * 2,
            Way::Naps => longest >= SHORTEST_NAP_NS && self.rhythm <= longest,
        };
        // The ways take turns, so that each has its trial.
        let after = |way| match way {
            Way::Spin => Way::Kicks,
            Way::Kicks => Way::Naps,
            Way::Naps => Way::Spin,
        };
        let next = [after(self.tried), after(after(self.tried)), self.tried];
        match next.into_iter().find(|way| *way != self.way && can_pay(*way)) {
            Some(way) => {
                self.tried = way;
                self.trial = Some(Trial { way, before: measure, on: true, better: 0, worse: 0 });
            }
            None => self.left = self.hold,
        }
    }

    /// The present way.
    fn present(&self) -> Way {
        self.trial.filter(|trial| trial.on).map_or(self.way, |trial| trial.way)
    }

    /// Tests whether requests are waited for by naps.
    #[inline]
    pub(super) fn naps(&self) -> bool {
        self.present() == Way::Naps
    }

    /// The next step at `now`, when nothing was found.
    pub(super) fn idle(&mut self, polling: Polling, now: u64) -> Idle {
        let longest = match polling {
            Polling::Always => return Idle::Poll,
            Polling::Never => return Idle::Sleep,
            Polling::Adaptive { nap_ns } => nap_ns,
        };
        let rested = now.saturating_sub(*self.idle_since.get_or_insert(now));
        match self.present() {
            Way::Spin if rested < SPIN_NS => Idle::Poll,
            // If several naps find nothing, the load has changed.
            Way::Naps if rested < longest * 4 => {
                let nap = (self.rhythm * WAKE_UPS).clamp(SHORTEST_NAP_NS, longest.max(SHORTEST_NAP_NS));
                Idle::Nap(nap)
            }
            _ => Idle::Sleep,
        }
    }
}

#[cfg(test)]
#[path = "backoff_tests.rs"]
mod tests;
