//! The schedule of requests: a fixed rate, regardless of the answers.

use std::time::{Duration, Instant};

/// Requests at a fixed rate from a given time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Schedule {
    begin: Instant,
    rate: f64,
    total: u64,
}

impl Schedule {
    pub(super) fn new(begin: Instant, rate: f64, duration: Duration) -> Self {
        Self { begin, rate, total: (rate * duration.as_secs_f64()).round() as u64 }
    }

    /// The number of requests.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// The time at which a request is due, counted from 0.
    pub(super) fn due(&self, request: u64) -> Instant {
        self.begin + Duration::from_secs_f64(request as f64 / self.rate)
    }

    /// The number of requests that are due by now.
    pub(super) fn due_by(&self, now: Instant) -> u64 {
        let elapsed = now.saturating_duration_since(self.begin).as_secs_f64();
        if now < self.begin {
            return 0;
        }
        ((elapsed * self.rate) as u64 + 1).min(self.total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn requests_are_due_at_the_rate() {
        let begin = Instant::now();
        let schedule = Schedule::new(begin, 100.0, Duration::from_secs(2));
        assert_eq!(schedule.total(), 200);
        assert_eq!(schedule.due(50), begin + Duration::from_millis(500));
        let by = |ms| schedule.due_by(begin + Duration::from_millis(ms));
        assert_eq!([by(0), by(9), by(15), by(1995), by(9999)], [1, 1, 2, 200, 200]);
        assert_eq!(schedule.due_by(begin - Duration::from_millis(1)), 0);
    }

    proptest! {
        #[test]
        fn none_is_due_before_its_time(rate in 0.1..1e6f64, milliseconds in 0..100_000u64) {
            let begin = Instant::now();
            let schedule = Schedule::new(begin, rate, Duration::from_secs(3600));
            let now = begin + Duration::from_millis(milliseconds);
            let due = schedule.due_by(now);
            prop_assert!(due == 0 || schedule.due(due - 1) <= now + Duration::from_micros(1));
        }
    }
}
