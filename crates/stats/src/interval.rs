//! Confidence intervals of figures.

use serde::{Deserialize, Deserializer, Serialize};

/// The share of intervals that should contain the true value.
pub const CONFIDENCE: f64 = 0.95;

/// The probability beyond each end of an interval.
pub const TAIL: f64 = (1.0 - CONFIDENCE) / 2.0;

/// The ends of a 95 % interval, in the unit of its figure.
///
/// An open end is infinite. JSON has no infinity: there an open end is `null`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The lower end.
    #[serde(deserialize_with = "lower_end")]
    pub low: f64,
    /// The upper end.
    #[serde(deserialize_with = "upper_end")]
    pub high: f64,
}

fn lower_end<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NEG_INFINITY))
}

fn upper_end<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::INFINITY))
}

impl Interval {
    /// The interval from `half` below to `half` above `centre`; `None` if `half` is not finite.
    #[must_use]
    pub fn around(centre: f64, half: f64) -> Option<Self> {
        half.is_finite().then_some(Self { low: centre - half, high: centre + half })
    }

    /// The interval shifted up by `by`.
    #[must_use]
    pub fn moved(self, by: f64) -> Self {
        self.map(|end| end + by)
    }

    /// Converts the interval of a logarithm of a ratio to a change in percent. The lower end is -100 if a rate of 0 is
    /// plausible, the upper end infinite if there was nothing before. `None` if an end is not a number.
    #[must_use]
    pub fn percent(self) -> Option<Self> {
        let found = self.map(percent);
        (found.low.is_finite() && !found.high.is_nan()).then_some(found)
    }

    /// The interval with both ends changed by an increasing function.
    #[must_use]
    pub fn map(self, change: impl Fn(f64) -> f64) -> Self {
        Self { low: change(self.low), high: change(self.high) }
    }

    /// The width from end to end.
    #[must_use]
    pub fn width(self) -> f64 {
        self.high - self.low
    }

    /// Tests whether the interval contains this value.
    #[must_use]
    pub fn holds(self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }

    /// Tests whether the interval contains 0, so that there may be no change.
    #[must_use]
    pub fn holds_zero(self) -> bool {
        self.holds(0.0)
    }
}

/// Converts the logarithm of a ratio to a change in percent.
#[must_use]
pub fn percent(log_ratio: f64) -> f64 {
    log_ratio.exp_m1() * 100.0
}

/// A figure with the 95 % interval around it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Estimate {
    /// The lower end.
    pub low: f64,
    /// The figure itself.
    pub value: f64,
    /// The upper end.
    pub high: f64,
}

impl Estimate {
    /// The estimate 0, with both ends at 0.
    pub const ZERO: Self = Self { low: 0.0, value: 0.0, high: 0.0 };

    /// The estimate and its ends multiplied by `factor`.
    #[must_use]
    pub fn times(self, factor: f64) -> Self {
        Self { low: self.low * factor, value: self.value * factor, high: self.high * factor }
    }

    /// The ends without the figure.
    #[must_use]
    pub fn interval(self) -> Interval {
        Interval { low: self.low, high: self.high }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_that_is_not_there_is_null_in_json_and_comes_back() {
        for (interval, text) in [
            (Interval { low: -100.0, high: f64::INFINITY }, r#"{"low":-100.0,"high":null}"#),
            (Interval { low: f64::NEG_INFINITY, high: 1.5 }, r#"{"low":null,"high":1.5}"#),
        ] {
            assert_eq!(serde_json::to_string(&interval).unwrap(), text);
            assert_eq!(serde_json::from_str::<Interval>(text).unwrap(), interval);
        }
        serde_json::from_str::<Interval>(r#"{"low":1.0}"#).unwrap_err();
    }

    #[test]
    fn ratios_become_percentages() {
        let open = Interval { low: f64::NEG_INFINITY, high: f64::INFINITY }.percent().unwrap();
        assert_eq!(open, Interval { low: -100.0, high: f64::INFINITY });
        assert_eq!(Interval { low: f64::NAN, high: 0.0 }.percent(), None);
        assert_eq!(Interval { low: 0.0, high: f64::NAN }.percent(), None);
        let doubled = Interval::around(2.0_f64.ln(), 0.0).unwrap().percent().unwrap();
        assert!((doubled.low - 100.0).abs() < 1e-9 && doubled.width() < 1e-9);
        assert_eq!(Interval::around(0.0, f64::NAN), None);
    }

    #[test]
    fn ends_are_believable_too() {
        let interval = Interval { low: -1.0, high: 0.0 };
        assert!(interval.holds_zero() && interval.holds(-1.0) && !interval.holds(0.1));
        assert!(!interval.moved(0.5).moved(0.6).holds_zero());
    }
}
