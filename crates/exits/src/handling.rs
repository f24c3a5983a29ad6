//! The handling times of exits with one reason.

use serde::{Deserialize, Serialize};

use crate::Octave;
use crate::histogram::Histogram;
use crate::parsing::{self, TooMuch};

/// Times from an exit to the next entry of the same vCPU, in nanoseconds.
///
/// Keeps count, sum, sum of squares and extremes exactly, and a log-linear histogram (32 buckets for each
/// octave), which gives quantiles with an error below 3.2 %. Sums saturate.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Stored", into = "Stored")]
pub struct HandlingTime {
    count: u64,
    total_ns: u64,
    min_ns: u64,
    max_ns: u64,
    squares: u128,
    /// Some of the times come from a file of the first version, which has no squares.
    lacks_squares: bool,
    histogram: Histogram,
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
        self.squares = self.squares.saturating_add(u128::from(ns) * u128::from(ns));
        self.histogram.add(ns, 1);
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
        self.squares = self.squares.saturating_add(other.squares);
        self.lacks_squares |= other.lacks_squares;
        self.histogram.merge(&other.histogram);
    }

    /// Subtracts times that are a subset of these. The minimum and maximum stay. If `other` has as many times,
    /// nothing is left.
    pub fn subtract(&mut self, other: &Self) {
        if other.count >= self.count {
            *self = Self::default();
            return;
        }
        self.count = self.count.saturating_sub(other.count);
        self.total_ns = self.total_ns.saturating_sub(other.total_ns);
        self.squares = self.squares.saturating_sub(other.squares);
        self.lacks_squares |= other.lacks_squares;
        self.histogram.subtract(&other.histogram);
    }

    /// Adds the times of one octave, with the same result as adding each time.
    pub fn add_octave(&mut self, octave: &Octave) {
        let count = octave.buckets.iter().map(|&count| u64::from(count)).sum();
        let mut histogram = Histogram::default();
        histogram.add_octave(octave.number, &octave.buckets);
        self.merge(&Self {
            count,
            total_ns: octave.total_ns,
            min_ns: octave.min_ns,
            max_ns: octave.max_ns,
            squares: octave.squares_ns2,
            lacks_squares: false,
            histogram,
        });
    }

    /// The number of times.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The sum in nanoseconds.
    #[must_use]
    pub const fn total_ns(&self) -> u64 {
        self.total_ns
    }

    /// The shortest in nanoseconds; `None` if empty.
    #[must_use]
    pub fn min_ns(&self) -> Option<u64> {
        (self.count > 0).then_some(self.min_ns)
    }

    /// The longest in nanoseconds; `None` if empty.
    #[must_use]
    pub fn max_ns(&self) -> Option<u64> {
        (self.count > 0).then_some(self.max_ns)
    }

    /// The mean in nanoseconds; `None` if empty.
    #[must_use]
    pub fn mean_ns(&self) -> Option<f64> {
        (self.count > 0).then(|| self.total_ns as f64 / self.count as f64)
    }

    /// The sample standard deviation in nanoseconds (divisor count - 1); `None` below two times, or if some of the times
    /// come from a file of the first version, which has no squares.
    #[must_use]
    pub fn standard_deviation_ns(&self) -> Option<f64> {
        if self.count < 2 || self.lacks_squares {
            return None;
        }
        // n * sum(x^2) - (sum x)^2 is never negative, and exact while it fits.
        let (count, total) = (u128::from(self.count), u128::from(self.total_ns));
        let spread = match count.checked_mul(self.squares) {
            Some(scaled) => scaled.saturating_sub(total * total) as f64 / self.count as f64,
            None => self.squares as f64 - (total * total) as f64 / self.count as f64,
        };
        Some((spread.max(0.0) / (self.count - 1) as f64).sqrt())
    }

    /// The standard error of the mean relative to the mean, in percent: the `+-` of `perf kvm stat`. `None`
    /// if there is no standard deviation or the mean is zero.
    #[must_use]
    pub fn relative_error_percent(&self) -> Option<f64> {
        let mean = self.mean_ns().filter(|&mean| mean > 0.0)?;
        Some(self.standard_deviation_ns()? / (self.count as f64).sqrt() / mean * 100.0)
    }

    /// A quantile in nanoseconds: the upper end of its bucket, at most 3.2 % too high. `quantile` is clamped
    /// to 0..=1.
    #[must_use]
    pub fn quantile_ns(&self, quantile: f64) -> Option<u64> {
        let wanted = (quantile.clamp(0.0, 1.0) * self.count as f64).ceil().max(1.0);
        let mut seen = 0u64;
        for (upper_end, count) in self.histogram.iter() {
            seen = seen.saturating_add(count);
            if seen as f64 >= wanted {
                // clamp() would panic if a file claims a minimum above the maximum.
                return Some(upper_end.min(self.max_ns).max(self.min_ns));
            }
        }
        self.max_ns()
    }

    /// The number of times that are not shorter than this; times up to 3.2 % shorter may count too.
    #[must_use]
    pub fn at_least(&self, ns: u64) -> u64 {
        if self.min_ns >= ns {
            return self.count;
        }
        if self.max_ns < ns {
            return 0;
        }
        let long = self.histogram.iter().filter(|&(upper_end, _)| upper_end >= ns);
        long.fold(0, |sum: u64, (_, count)| sum.saturating_add(count))
    }

    /// The non-empty buckets in rising order: the largest time of the bucket, in nanoseconds, and its count.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        self.histogram.iter().filter(|&(_, count)| count > 0)
    }

    /// The memory that parsing it counts against a limit, besides that of its own fields.
    pub(crate) fn size_when_read(&self) -> usize {
        self.buckets().count() * parsing::of_element::<(u64, u64)>()
            + Histogram::size_of(self.buckets().map(|(upper_end, _)| upper_end))
    }
}

/// The form in files.
#[derive(Serialize, Deserialize)]
struct Stored {
    count: u64,
    total_ns: u64,
    min_ns: u64,
    max_ns: u64,
    /// A decimal string, because readers of JSON may not support 128-bit integers; 0 if they are not known.
    #[serde(default)]
    squares_ns2: String,
    /// The largest time of a bucket, and its count.
    #[serde(default, deserialize_with = "parsing::list")]
    histogram: Vec<(u64, u64)>,
    /// Buckets of an eighth of an octave, by number, as in the first version of the format.
    #[serde(default, skip_serializing, deserialize_with = "parsing::map")]
    buckets: std::collections::BTreeMap<u16, u64>,
}

impl From<HandlingTime> for Stored {
    fn from(times: HandlingTime) -> Self {
        let squares = if times.lacks_squares { 0 } else { times.squares };
        Self {
            count: times.count,
            total_ns: times.total_ns,
            min_ns: times.min_ns,
            max_ns: times.max_ns,
            squares_ns2: squares.to_string(),
            histogram: times.buckets().collect(),
            buckets: Default::default(),
        }
    }
}

impl TryFrom<Stored> for HandlingTime {
    type Error = TooMuch;

    fn try_from(stored: Stored) -> Result<Self, TooMuch> {
        // If the count is zero, ignore the sums and extremes in the file.
        if stored.count == 0 {
            return Ok(Self::default());
        }
        let eighths = stored.buckets.iter().map(|(&bucket, &count)| (upper_end_of_eighth(bucket), count));
        let all = || stored.histogram.iter().copied().chain(eighths.clone());
        parsing::spend(Histogram::size_of(all().map(|(upper_end, _)| upper_end)))?;
        let mut histogram = Histogram::default();
        all().for_each(|(upper_end, count)| histogram.add(upper_end, count));
        let squares: u128 = stored.squares_ns2.parse().unwrap_or(0);
        Ok(Self {
            count: stored.count,
            total_ns: stored.total_ns,
            min_ns: stored.min_ns,
            max_ns: stored.max_ns,
            squares,
            lacks_squares: squares == 0 && stored.total_ns > 0,
            histogram,
        })
    }
}

/// The largest time in a bucket of the format's first version: eight per octave; the first eight are 1 ns wide.
fn upper_end_of_eighth(bucket: u16) -> u64 {
    let bucket = u64::from(bucket);
    if bucket < 8 {
        return bucket;
    }
    let octave = (bucket / 8 - 1).min(64);
    let first = u128::from(8 + bucket % 8) << octave;
    u64::try_from(first + (1u128 << octave) - 1).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[path = "handling_tests.rs"]
mod tests;
