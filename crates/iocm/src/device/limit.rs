//! Rate limits of devices.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// A limit of units per second, shared by all queues of a device.
///
/// One request may exceed it; the excess is paid back before the next one.
#[derive(Debug)]
pub struct Limit {
    /// Units a second; 0 for no limit.
    rate: AtomicU64,
    /// The units that may be used now; negative after a large request.
    credit: AtomicI64,
    /// The time up to which credit was added, nanoseconds of the monotonic clock. Fractions of a unit are carried over.
    given: AtomicU64,
}

const SECOND: u64 = 1_000_000_000;
/// The time for which unused units are saved.
const BURST_NS: u64 = SECOND / 50;

impl Limit {
    /// A limit of `rate` units a second, or none when it is 0.
    #[must_use]
    pub const fn new(rate: u64) -> Self {
        Self { rate: AtomicU64::new(rate), credit: AtomicI64::new(0), given: AtomicU64::new(0) }
    }

    /// Changes the rate.
    pub fn set(&self, rate: u64) {
        self.rate.store(rate, Ordering::Relaxed);
    }

    /// Units a second, 0 for no limit.
    #[must_use]
    pub fn rate(&self) -> u64 {
        self.rate.load(Ordering::Relaxed)
    }

    /// The time until units may be used again, from `now` (nanoseconds); `None` when they may be used now.
    pub fn wait(&self, now: u64) -> Option<u64> {
        let rate = self.rate();
        if rate == 0 {
            return None;
        }
        let given = self.given.load(Ordering::Relaxed);
        let credit = u128::from(now.saturating_sub(given)) * u128::from(rate) / u128::from(SECOND);
        let to = given.saturating_add(time_of(credit, rate));
        // Only one of several queues adds the credit of the same time.
        if credit > 0 && self.given.compare_exchange(given, to, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            let most = (u128::from(BURST_NS) * u128::from(rate) / u128::from(SECOND)).max(1) as i64;
            let credit = i64::try_from(credit).unwrap_or(i64::MAX);
            let add = |before: i64| Some(before.saturating_add(credit).min(most));
            let _ = self.credit.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        }
        let credit = self.credit.load(Ordering::Relaxed);
        if credit > 0 {
            return None;
        }
        let needed = time_of(u128::from(credit.unsigned_abs() + 1), rate);
        Some(self.given.load(Ordering::Relaxed).saturating_add(needed).saturating_sub(now).max(1))
    }

    /// Uses units.
    pub fn take(&self, units: u64) {
        if self.rate() > 0 {
            self.credit.fetch_sub(i64::try_from(units).unwrap_or(i64::MAX), Ordering::Relaxed);
        }
    }
}

/// The time in which this rate gives this many units, nanoseconds.
fn time_of(units: u128, rate: u64) -> u64 {
    u64::try_from((units * u128::from(SECOND)).div_ceil(u128::from(rate))).unwrap_or(u64::MAX)
}

/// Limits of requests and of bytes a second.
#[derive(Debug)]
pub struct Limits {
    /// Requests (packets) a second.
    pub requests: Limit,
    /// Bytes a second.
    pub bytes: Limit,
}

impl Limits {
    /// Limits per second, 0 for none.
    #[must_use]
    pub const fn new(requests: u64, bytes: u64) -> Self {
        Self { requests: Limit::new(requests), bytes: Limit::new(bytes) }
    }

    /// Tests whether any limit is set.
    #[inline]
    #[must_use]
    pub(crate) fn are_set(&self) -> bool {
        self.requests.rate() != 0 || self.bytes.rate() != 0
    }

    /// The time until units may be used again; `None` when they may be used now. `now` (nanoseconds) is called only if
    /// a limit is set.
    #[inline]
    pub fn wait(&self, now: impl FnOnce() -> u64) -> Option<u64> {
        if !self.are_set() {
            return None;
        }
        let now = now();
        self.requests.wait(now).max(self.bytes.wait(now))
    }

    /// Uses requests and bytes.
    #[inline]
    pub fn take(&self, requests: u64, bytes: u64) {
        self.requests.take(requests);
        self.bytes.take(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_limit_never_waits() {
        let limit = Limit::new(0);
        limit.take(u64::MAX);
        assert_eq!(limit.wait(0), None);
    }

    /// The units that requests of `size` units use in `time` nanoseconds. Each is made as soon as the limit allows it,
    /// but each wait ends `late` nanoseconds too late.
    fn used_in(time: u64, rate: u64, size: u64, late: u64) -> u64 {
        let limit = Limit::new(rate);
        let (mut now, mut used) = (5 * SECOND, 0);
        let end = now + time;
        while now < end {
            match limit.wait(now) {
                None => {
                    limit.take(size);
                    used += size;
                }
                Some(wait) => now += wait + late,
            }
        }
        used
    }

    #[test]
    fn a_second_gives_what_was_asked_for() {
        let used = used_in(SECOND, 1000, 1, 0);
        assert!((995..=1025).contains(&used), "{used}");
    }

    #[test]
    fn a_worker_that_wakes_up_late_still_gives_the_rate() {
        for rate in [50, 1000, 10_000, 50_000, 333_333] {
            let used = used_in(SECOND, rate, 1, 50_000);
            assert!((rate * 98 / 100..=rate * 103 / 100).contains(&used), "{used} at {rate} a second");
        }
    }

    #[test]
    fn requests_larger_than_a_burst_get_the_rate_too() {
        for (rate, size) in [(1 << 20, 1 << 20), (10 << 20, 1 << 20), (100 << 20, 4 << 20)] {
            let used = used_in(20 * SECOND, rate, size, 50_000);
            assert!((rate * 19..=rate * 21).contains(&used), "{used} by {size} at {rate} a second");
        }
    }

    #[test]
    fn low_rates_give_something_too() {
        for rate in [1, 7, 49, 50, 51] {
            let used = used_in(20 * SECOND, rate, 1, 0);
            assert!((rate * 19..=rate * 20 + 1).contains(&used), "{used} in 20 s at {rate} a second");
        }
    }

    #[test]
    fn a_large_request_is_paid_back() {
        let limit = Limit::new(1 << 20);
        let now = SECOND;
        assert_eq!(limit.wait(now), None);
        limit.take(4 << 20);
        let wait = limit.wait(now).unwrap();
        assert!((SECOND * 39 / 10..SECOND * 41 / 10).contains(&wait), "{wait}");
        assert_eq!(limit.wait(now + wait), None);
        limit.set(0);
        assert_eq!(limit.wait(now), None);
    }
}
