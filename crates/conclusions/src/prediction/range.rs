//! An estimate with its bounds.

use serde::Serialize;
use std::ops::AddAssign;

/// The lowest and the highest value that the counts allow, and the expected value between them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Range {
    /// The lowest value.
    pub low: f64,
    /// The estimate of the rule.
    pub expected: f64,
    /// The highest value.
    pub high: f64,
}

impl Range {
    /// Zero.
    pub const NONE: Self = Self { low: 0.0, expected: 0.0, high: 0.0 };

    /// A value that is known exactly.
    #[must_use]
    pub const fn exactly(value: f64) -> Self {
        Self { low: value, expected: value, high: value }
    }

    /// Clamps the values to 0 and `whole`, and `expected` to `low` and `high`.
    #[must_use]
    pub fn within(low: f64, expected: f64, high: f64, whole: f64) -> Self {
        let whole = whole.max(0.0);
        let high = high.max(0.0).min(whole);
        let low = low.max(0.0).min(high);
        Self { low, expected: expected.max(low).min(high), high }
    }

    /// Tests whether low and high are equal.
    #[must_use]
    pub fn is_exact(self) -> bool {
        self.low >= self.high
    }

    /// The range multiplied by `factor`, which must not be negative.
    #[must_use]
    pub fn times(self, factor: f64) -> Self {
        Self { low: self.low * factor, expected: self.expected * factor, high: self.high * factor }
    }

    /// The rest of `whole`: its high value is `whole` minus the low value, and vice versa.
    #[must_use]
    pub fn rest_of(self, whole: f64) -> Self {
        let left = |gone: f64| (whole - gone).max(0.0);
        Self { low: left(self.high), expected: left(self.expected), high: left(self.low) }
    }

    /// The range in percent of `whole`; `None` if `whole` is zero.
    #[must_use]
    pub fn percent_of(self, whole: f64) -> Option<Self> {
        (whole > 0.0).then(|| self.times(100.0 / whole))
    }
}

impl AddAssign for Range {
    fn add_assign(&mut self, other: Self) {
        self.low += other.low;
        self.expected += other.expected;
        self.high += other.high;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_asked_for_comes_in_order() {
        assert_eq!(Range::within(5.0, 9.0, 7.0, 6.0), Range { low: 5.0, expected: 6.0, high: 6.0 });
        assert_eq!(Range::within(-1.0, -2.0, 3.0, 10.0), Range { low: 0.0, expected: 0.0, high: 3.0 });
        assert_eq!(Range::within(4.0, 4.0, 4.0, -1.0), Range::NONE);
    }

    #[test]
    fn the_most_stays_where_the_least_goes() {
        let gone = Range { low: 1.0, expected: 2.0, high: 4.0 };
        assert_eq!(gone.rest_of(10.0), Range { low: 6.0, expected: 8.0, high: 9.0 });
        assert_eq!(gone.percent_of(10.0), Some(Range { low: 10.0, expected: 20.0, high: 40.0 }));
        assert_eq!(gone.percent_of(0.0), None);
    }
}
