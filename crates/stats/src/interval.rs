//! A figure's interval.

use serde::{Deserialize, Deserializer, Serialize};

/// The share of intervals that are to hold the truth: 95 in 100.
pub const CONFIDENCE: f64 = 0.95;

/// The parts beyond each end of an interval.
pub const TAIL: f64 = (1.0 - CONFIDENCE) / 2.0;

/// The ends of a 95 % interval, in the unit of the figure that it is about.
///
/// An end that is not there is infinite. JSON has no infinity: such an end is `null` there.
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
    /// Half as wide as `half` to both sides of `centre`; `None` without a finite width.
    #[must_use]
    pub fn around(centre: f64, half: f64) -> Option<Self> {
        half.is_finite().then_some(Self { low: centre - half, high: centre + half })
    }

    /// Both ends by so much higher.
    #[must_use]
    pub fn moved(self, by: f64) -> Self {
        self.map(|end| end + by)
    }

    /// The change in percent, of the logarithm of a ratio: from -100, where nothing is believable too, to infinity, where
    /// there was nothing before. `None` where an end is no number.
    #[must_use]
    pub fn percent(self) -> Option<Self> {
        let found = self.map(percent);
        (found.low.is_finite() && !found.high.is_nan()).then_some(found)
    }

    /// Both ends changed by a function that keeps their order.
    #[must_use]
    pub fn map(self, change: impl Fn(f64) -> f64) -> Self {
        Self { low: change(self.low), high: change(self.high) }
    }

    /// From end to end.
    #[must_use]
    pub fn width(self) -> f64 {
        self.high - self.low
    }

    /// Tests whether this value is believable.
    #[must_use]
    pub fn holds(self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }

    /// Tests whether no change at all is still believable.
    #[must_use]
    pub fn holds_zero(self) -> bool {
        self.holds(0.0)
    }
}

/// The change in percent that the logarithm of a ratio is.
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
    /// The estimate of nothing.
    pub const ZERO: Self = Self { low: 0.0, value: 0.0, high: 0.0 };

    /// The same in another unit.
    #[must_use]
    pub fn times(self, factor: f64) -> Self {
        Self { low: self.low * factor, value: self.value * factor, high: self.high * factor }
    }

    /// Its ends alone.
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
