//! Changes with the interval that says how sure they are, and on what it rests.

use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};

use super::poisson;
use crate::Change;

/// How often an interval is to hold the truth: 95 in 100.
pub const CONFIDENCE: f64 = 0.95;
/// What lies beyond each end of an interval.
pub(super) const TAIL: f64 = (1.0 - CONFIDENCE) / 2.0;
/// The quantile of the normal distribution that leaves [`TAIL`] above it.
pub(super) const NORMAL: f64 = 1.959_963_984_540_054;
/// A change smaller than this, in percent, is not worth a word, however sure it is.
const NEGLIGIBLE_PERCENT: f64 = 1.0;

/// The ends of an interval of ln(after / before), or of how far it may be from the estimate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LogInterval {
    /// The lower end; negative infinity where nothing at all is believable too.
    pub low: f64,
    /// The upper end; infinity where nothing was seen before.
    pub high: f64,
}

impl LogInterval {
    /// Half as wide as this to both sides of nothing; none without a finite width.
    pub(super) fn around(half: f64) -> Option<Self> {
        half.is_finite().then_some(Self { low: -half, high: half })
    }

    pub(super) fn moved(self, by: f64) -> Self {
        Self { low: self.low + by, high: self.high + by }
    }
}

/// The ends of a 95 % interval of a change, in percent of the figure before.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The lower end; -100 where nothing at all is believable too.
    pub low: f64,
    /// The upper end; `None` where there is none, because nothing was seen before.
    pub high: Option<f64>,
}

impl Interval {
    pub(super) fn new(log: LogInterval) -> Option<Self> {
        let percent = |log: f64| log.exp_m1() * 100.0;
        let low = Some(percent(log.low)).filter(|low| low.is_finite())?;
        let high = percent(log.high);
        (!high.is_nan()).then_some(Self { low, high: Some(high).filter(|high| high.is_finite()) })
    }

    /// Of a rate, by the number of its events alone: those before and after, each with what they are counted over (seconds,
    /// operations). `None` where that is nothing, or where there is no event at all.
    #[must_use]
    pub fn of_counts(events: [u64; 2], over: [u64; 2]) -> Option<Self> {
        let [before, after] = events.map(|events| events as f64);
        let longer = (over[0] as f64 / over[1] as f64).ln();
        (events != [0, 0] && longer.is_finite()).then_some(())?;
        Self::new(poisson::log_ratio(before, after).moved(longer))
    }

    /// Whether no change at all is still believable.
    #[must_use]
    pub fn holds_zero(self) -> bool {
        self.low <= 0.0 && self.high.is_none_or(|high| high >= 0.0)
    }
}

/// What an interval rests on.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "method", rename_all = "kebab-case")]
pub enum Basis {
    /// Student's t over recordings, each of which gives one figure: three or more on each side.
    Recordings {
        /// Recordings before.
        before: usize,
        /// Recordings after.
        after: usize,
    },
    /// A bootstrap that draws blocks of neighbouring time slices.
    Blocks {
        /// Slices before.
        before: usize,
        /// Slices after.
        after: usize,
    },
    /// The exact interval for Poisson counts, which supposes that exits come independently, or in clumps.
    Poisson {
        /// How many exits come at a time before: the variance of their counts over the mean, as found in the slices,
        /// but at least 1.
        before: f64,
        /// The same after.
        after: f64,
        /// Whether there were slices to find that out. Where there were none, both are 1, and the interval is too
        /// narrow if exits come in clumps after all.
        measured: bool,
    },
    /// Student's t over single handling times, supposing that they are independent.
    Times,
}

/// What a change says, as far as its interval goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// Less than before.
    Less,
    /// More than before.
    More,
    /// Less or more, but by so little that it does not matter.
    Negligible,
    /// The interval holds zero: the sides cannot be told apart.
    Indistinguishable,
    /// There is no interval, or no figure.
    Unknown,
}

/// How one figure changed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// From before to after.
    pub change: Change,
    /// Its 95 % interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<Interval>,
    /// What the interval rests on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

impl Estimate {
    pub(super) fn new(change: Change, log: LogInterval, basis: Basis) -> Self {
        let interval = Interval::new(log);
        Self { change, interval, basis: interval.map(|_| basis) }
    }

    pub(super) fn without_interval(change: Change) -> Self {
        Self { change, interval: None, basis: None }
    }

    /// What it says.
    #[must_use]
    pub fn effect(&self) -> Effect {
        let Some(interval) = self.interval else { return Effect::Unknown };
        match self.change {
            _ if interval.holds_zero() => Effect::Indistinguishable,
            Change::Percent(percent) if percent.abs() < NEGLIGIBLE_PERCENT => Effect::Negligible,
            _ if interval.low > 0.0 => Effect::More,
            _ => Effect::Less,
        }
    }
}

/// The quantile of Student's distribution that leaves [`TAIL`] above it.
pub(super) fn student(freedom: f64) -> Option<f64> {
    let quantile = StudentsT::new(0.0, 1.0, freedom).ok()?.inverse_cdf(1.0 - TAIL);
    quantile.is_finite().then_some(quantile)
}

/// Half the width of Welch's interval for the difference of two means, each with the variance of its mean and its
/// degrees of freedom (Welch, "The generalization of Student's problem", Biometrika 34, 1947).
pub(super) fn welch(sides: [(f64, f64); 2]) -> Option<f64> {
    let variance: f64 = sides.iter().map(|side| side.0).sum();
    if variance == 0.0 {
        return Some(0.0);
    }
    let denominator: f64 = sides.iter().map(|(variance, freedom)| variance * variance / freedom).sum();
    Some(student(variance * variance / denominator)? * variance.sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn estimate(percent: f64, low: f64, high: Option<f64>) -> Estimate {
        let interval = Some(Interval { low, high });
        Estimate { change: Change::Percent(percent), interval, basis: Some(Basis::Times) }
    }

    #[test]
    fn effects_follow_from_intervals() {
        assert_eq!(estimate(-20.0, -30.0, Some(-5.0)).effect(), Effect::Less);
        assert_eq!(estimate(20.0, 5.0, Some(40.0)).effect(), Effect::More);
        assert_eq!(estimate(20.0, -5.0, Some(40.0)).effect(), Effect::Indistinguishable);
        assert_eq!(estimate(0.5, 0.4, Some(0.6)).effect(), Effect::Negligible);
        assert_eq!(Estimate::without_interval(Change::Percent(5.0)).effect(), Effect::Unknown);
        let appeared = Estimate { change: Change::FromNothing, ..estimate(0.0, 200.0, None) };
        assert_eq!(appeared.effect(), Effect::More);
    }

    #[test]
    fn welch_agrees_with_scipy() {
        // 5 and 9 values of variance 4 and 1: scipy.stats.t.ppf(0.975, 5.138708) * sqrt(4 / 5 + 1 / 9)
        let half = welch([(4.0 / 5.0, 4.0), (1.0 / 9.0, 8.0)]).unwrap();
        assert!((half - 2.433_888).abs() < 1e-5, "{half}");
        assert_eq!(welch([(0.0, 3.0), (0.0, 3.0)]), Some(0.0));
    }

    #[test]
    fn counts_have_an_interval_by_their_number() {
        let gone = Interval::of_counts([2004, 0], [1000, 2000]).unwrap();
        assert!(gone.low == -100.0 && gone.high.unwrap() < -99.8, "{gone:?}");
        let new = Interval::of_counts([0, 10], [100, 100]).unwrap();
        assert!(new.low > 0.0 && new.high.is_none(), "{new:?}");
        assert!(Interval::of_counts([3, 0], [100, 100]).unwrap().holds_zero());
        assert_eq!(Interval::of_counts([0, 0], [100, 100]), None);
        assert_eq!(Interval::of_counts([5, 5], [100, 0]), None);
    }

    #[test]
    fn no_end_is_infinite() {
        let open = Interval::new(LogInterval { low: f64::NEG_INFINITY, high: f64::INFINITY }).unwrap();
        assert_eq!(open, Interval { low: -100.0, high: None });
        assert_eq!(Interval::new(LogInterval { low: f64::NAN, high: 0.0 }), None);
    }
}
