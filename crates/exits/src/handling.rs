//! How long the host took over exits of one reason.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Buckets an octave: a bucket's width is at most an eighth of its lower bound.
const PER_OCTAVE_BITS: u32 = 3;
const PER_OCTAVE: u64 = 1 << PER_OCTAVE_BITS;

/// Times from an exit to the next entry of the same vCPU, in nanoseconds.
///
/// Keeps count, sum and extremes exactly, and a log-linear histogram (8 buckets an octave) from which
/// quantiles follow with an error below 12.5 %. The sum saturates.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandlingTime {
    count: u64,
    total_ns: u64,
    min_ns: u64,
    max_ns: u64,
    buckets: BTreeMap<u16, u64>,
}

impl HandlingTime {
    /// No times yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one time.
    pub fn add(&mut self, ns: u64) {
        self.min_ns = if self.count == 0 { ns } else { self.min_ns.min(ns) };
        self.max_ns = self.max_ns.max(ns);
        self.count = self.count.saturating_add(1);
        self.total_ns = self.total_ns.saturating_add(ns);
        let bucket = self.buckets.entry(bucket(ns)).or_default();
        *bucket = bucket.saturating_add(1);
    }

    /// Adds the times of another recording. Commutative and associative.
    pub fn merge(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        self.min_ns = if self.count == 0 { other.min_ns } else { self.min_ns.min(other.min_ns) };
        self.max_ns = self.max_ns.max(other.max_ns);
        self.count = self.count.saturating_add(other.count);
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
        for (&at, &count) in &other.buckets {
            let bucket = self.buckets.entry(at).or_default();
            *bucket = bucket.saturating_add(count);
        }
    }

    /// How many times were added.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Their sum in nanoseconds.
    #[must_use]
    pub const fn total_ns(&self) -> u64 {
        self.total_ns
    }

    /// The shortest in nanoseconds, `None` without any.
    #[must_use]
    pub fn min_ns(&self) -> Option<u64> {
        (self.count > 0).then_some(self.min_ns)
    }

    /// The longest in nanoseconds, `None` without any.
    #[must_use]
    pub fn max_ns(&self) -> Option<u64> {
        (self.count > 0).then_some(self.max_ns)
    }

    /// The mean in nanoseconds, `None` without any.
    #[must_use]
    pub fn mean_ns(&self) -> Option<f64> {
        (self.count > 0).then(|| self.total_ns as f64 / self.count as f64)
    }

    /// A time that at least the share `quantile` of the times do not exceed, in nanoseconds: the upper end
    /// of its bucket, at most 12.5 % above the true one. `quantile` is clamped to 0..=1.
    #[must_use]
    pub fn quantile_ns(&self, quantile: f64) -> Option<u64> {
        let wanted = (quantile.clamp(0.0, 1.0) * self.count as f64).ceil().max(1.0);
        let mut seen = 0u64;
        for (&at, &count) in &self.buckets {
            seen = seen.saturating_add(count);
            if seen as f64 >= wanted {
                // Not clamp(), which panics where a file claims a minimum above the maximum.
                return Some(upper_end(at).min(self.max_ns).max(self.min_ns));
            }
        }
        self.max_ns()
    }
}

/// Times below 8 ns have a bucket each; from there on eight buckets an octave.
fn bucket(ns: u64) -> u16 {
    if ns < PER_OCTAVE {
        return ns as u16;
    }
    let octave = ns.ilog2() - PER_OCTAVE_BITS;
    let within = (ns >> octave) & (PER_OCTAVE - 1);
    ((u64::from(octave) + 1) * PER_OCTAVE + within) as u16
}

/// The largest time in a bucket.
fn upper_end(bucket: u16) -> u64 {
    let bucket = u64::from(bucket);
    if bucket < PER_OCTAVE {
        return bucket;
    }
    let octave = bucket / PER_OCTAVE - 1;
    let first = u128::from(PER_OCTAVE + bucket % PER_OCTAVE) << octave.min(64);
    u64::try_from(first + (1u128 << octave.min(64)) - 1).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn times(all: &[u64]) -> HandlingTime {
        let mut times = HandlingTime::new();
        all.iter().for_each(|&ns| times.add(ns));
        times
    }

    #[test]
    fn none_has_no_figures() {
        let none = HandlingTime::new();
        assert_eq!(
            (none.min_ns(), none.max_ns(), none.mean_ns(), none.quantile_ns(0.5)),
            (None, None, None, None)
        );
    }

    #[test]
    fn figures_that_contradict_each_other_do_not_panic() {
        let json = r#"{"count":2,"total_ns":9,"min_ns":9,"max_ns":1,"buckets":{"65535":1}}"#;
        let read: HandlingTime = serde_json::from_str(json).unwrap();
        for quantile in [0.0, 0.5, 1.0, f64::NAN] {
            assert!(read.quantile_ns(quantile).is_some());
        }
    }

    #[test]
    fn exact_figures() {
        let some = times(&[300, 100, 200]);
        assert_eq!((some.count(), some.total_ns()), (3, 600));
        assert_eq!((some.min_ns(), some.max_ns(), some.mean_ns()), (Some(100), Some(300), Some(200.0)));
        assert_eq!(some.quantile_ns(1.0), Some(300));
    }

    #[test]
    fn buckets_cover_everything_without_gaps() {
        assert_eq!(bucket(7) + 1, bucket(8));
        for at in 0..bucket(u64::MAX) {
            assert_eq!(bucket(upper_end(at)), at);
            assert_eq!(bucket(upper_end(at) + 1), at + 1);
        }
        assert_eq!(upper_end(bucket(u64::MAX)), u64::MAX);
        assert_eq!(upper_end(u16::MAX), u64::MAX);
    }

    proptest! {
        #[test]
        fn merging_is_adding(a in proptest::collection::vec(any::<u64>(), 0..20),
                             b in proptest::collection::vec(any::<u64>(), 0..20)) {
            let mut merged = times(&a);
            merged.merge(&times(&b));
            let both: Vec<u64> = a.iter().chain(&b).copied().collect();
            prop_assert_eq!(merged, times(&both));
        }

        #[test]
        fn quantiles_are_near(mut all in proptest::collection::vec(0..1_000_000_000u64, 1..200), q in 0.0..=1.0f64) {
            let found = times(&all).quantile_ns(q).unwrap();
            all.sort_unstable();
            let rank = ((q * all.len() as f64).ceil() as usize).max(1);
            let truth = all[rank - 1];
            prop_assert!(found >= truth && found as f64 <= truth as f64 * 1.125 + 1.0);
        }
    }
}
