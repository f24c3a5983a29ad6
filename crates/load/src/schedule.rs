//! The schedule of requests: a fixed rate, regardless of the answers.

use std::time::{Duration, Instant};

use super::threads::share;

/// The times of one thread's requests, out of those of all threads, which are due at a fixed rate from `begin` on.
/// Connections take turns over all threads.
#[derive(Debug, Clone, Copy)]
pub(super) struct Schedule {
    begin: Instant,
    rate: f64,
    /// The number of requests of all threads.
    total: u64,
    part: ThreadPart,
}

/// The connections of one thread: those whose number modulo `threads` is `index`, as in [`share`].
#[derive(Debug, Clone, Copy)]
pub(super) struct ThreadPart {
    /// The number of connections of all threads.
    pub(super) connections: u32,
    pub(super) threads: u32,
    pub(super) index: u32,
}

impl ThreadPart {
    /// The number of the thread's connections.
    pub(super) fn share(self) -> u32 {
        share(self.connections, self.index, self.threads)
    }

    /// The number of the thread's requests among the first `all` of all threads.
    fn of_first(self, all: u64) -> u64 {
        let (connections, threads, index) =
            (u64::from(self.connections), u64::from(self.threads), u64::from(self.index));
        let rest = (all % connections).saturating_sub(index).div_ceil(threads);
        all / connections * u64::from(self.share()) + rest
    }

    /// The position among the requests of all threads of the thread's request `own`; both count from 0.
    fn of_all(self, own: u64) -> u64 {
        let share = u64::from(self.share());
        own / share * u64::from(self.connections)
            + u64::from(self.index)
            + own % share * u64::from(self.threads)
    }
}

impl Schedule {
    /// Makes a thread's schedule; `rate` is that of all threads.
    pub(super) fn new(begin: Instant, rate: f64, duration: Duration, part: ThreadPart) -> Self {
        Self { begin, rate, total: (rate * duration.as_secs_f64()).round() as u64, part }
    }

    /// The number of the thread's requests.
    pub(super) fn total(&self) -> u64 {
        self.part.of_first(self.total)
    }

    /// The time at which the thread's n-th request is due; `request` counts from 0.
    pub(super) fn due(&self, request: u64) -> Instant {
        self.begin + Duration::from_secs_f64(self.part.of_all(request) as f64 / self.rate)
    }

    /// The number of the thread's requests that are due by `now`.
    pub(super) fn due_by(&self, now: Instant) -> u64 {
        let elapsed = now.saturating_duration_since(self.begin).as_secs_f64();
        if now < self.begin {
            return 0;
        }
        self.part.of_first(((elapsed * self.rate) as u64 + 1).min(self.total))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALL: ThreadPart = ThreadPart { connections: 4, threads: 1, index: 0 };

    #[test]
    fn requests_are_due_at_the_rate() {
        let begin = Instant::now();
        let schedule = Schedule::new(begin, 100.0, Duration::from_secs(2), ALL);
        assert_eq!(schedule.total(), 200);
        assert_eq!(schedule.due(50), begin + Duration::from_millis(500));
        let by = |ms| schedule.due_by(begin + Duration::from_millis(ms));
        assert_eq!([by(0), by(9), by(15), by(1995), by(9999)], [1, 1, 2, 200, 200]);
        assert_eq!(schedule.due_by(begin - Duration::from_millis(1)), 0);
    }

    #[test]
    fn threads_share_one_schedule() {
        let begin = Instant::now();
        for (rate, seconds, connections, threads) in
            [(10.0, 1, 4, 4), (1.0, 5, 4, 4), (1.0, 5, 16, 16), (100.0, 3, 7, 3), (50.0, 1, 5, 2)]
        {
            let of = |index| {
                let part = ThreadPart { connections, threads, index };
                Schedule::new(begin, rate, Duration::from_secs(seconds), part)
            };
            let all: Vec<Schedule> = (0..threads).map(of).collect();
            let total = (rate * seconds as f64).round() as u64;
            assert_eq!(all.iter().map(Schedule::total).sum::<u64>(), total, "{rate} {threads}");
            let mut due: Vec<Instant> =
                all.iter().flat_map(|one| (0..one.total()).map(|request| one.due(request))).collect();
            due.sort_unstable();
            let even = |number: u64| begin + Duration::from_secs_f64(number as f64 / rate);
            assert_eq!(due, (0..total).map(even).collect::<Vec<_>>(), "{rate} {threads}");
            for milliseconds in [0, 1, 500, 999, 2500, 9999] {
                let now = begin + Duration::from_millis(milliseconds);
                let by_then = due.iter().filter(|due| **due <= now).count() as u64;
                assert_eq!(all.iter().map(|one| one.due_by(now)).sum::<u64>(), by_then, "{milliseconds}");
            }
        }
    }

    proptest! {
        #[test]
        fn none_is_due_before_its_time(rate in 0.1..1e6f64, milliseconds in 0..100_000u64) {
            let begin = Instant::now();
            let schedule = Schedule::new(begin, rate, Duration::from_secs(3600), ALL);
            let now = begin + Duration::from_millis(milliseconds);
            let due = schedule.due_by(now);
            prop_assert!(due == 0 || schedule.due(due - 1) <= now + Duration::from_micros(1));
        }
    }
}
