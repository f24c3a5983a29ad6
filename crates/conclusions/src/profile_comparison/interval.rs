//! Changes with their intervals, and the methods of the intervals.

use serde::{Deserialize, Serialize};
use stats::Interval;

use crate::RelativeChange;

/// The change in percent below which it is negligible, even if it is significant.
const NEGLIGIBLE_PERCENT: f64 = 1.0;

/// The method of an interval, and the data that it is based on.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "method", rename_all = "kebab-case")]
pub enum Basis {
    /// Student's t over recordings, each with one figure: three or more on each side.
    Recordings {
        /// Recordings before.
        before: usize,
        /// Recordings after.
        after: usize,
    },
    /// A bootstrap of blocks of neighbouring time slices.
    Blocks {
        /// Slices before.
        before: usize,
        /// Slices after.
        after: usize,
    },
    /// The exact interval for Poisson counts, corrected for the dispersion of the counts.
    Poisson {
        /// The dispersion before: the variance of the counts of slices, or of recordings if that is larger, divided by
        /// their mean; at least 1.
        before: f64,
        /// The dispersion after.
        after: f64,
        /// True if the dispersion was measured in slices or between recordings. Otherwise both are 1, and the interval is
        /// too narrow if exits come in clusters.
        measured: bool,
    },
    /// Welch's t over single handling times, which are assumed to be independent.
    Times,
}

/// The interpretation of a change, by its interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// Less than before.
    Less,
    /// More than before.
    More,
    /// A difference too small to matter.
    Negligible,
    /// The interval includes zero: no significant difference.
    Indistinguishable,
    /// There is no interval, or no figure.
    Unknown,
}

/// The change of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The change from before to after.
    pub change: RelativeChange,
    /// Its 95 % interval, in percent of the figure before: from -100, if zero is possible, to infinity, if
    /// there is no upper bound because nothing was seen before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<Interval>,
    /// The basis of the interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

impl Estimate {
    pub(super) fn new(change: RelativeChange, log: Interval, basis: Basis) -> Self {
        let interval = log.percent();
        Self { change, interval, basis: interval.map(|_| basis) }
    }

    pub(super) fn without_interval(change: RelativeChange) -> Self {
        Self { change, interval: None, basis: None }
    }

    /// The interpretation of the change.
    #[must_use]
    pub fn effect(&self) -> Effect {
        let Some(interval) = self.interval else { return Effect::Unknown };
        match self.change {
            _ if interval.holds_zero() => Effect::Indistinguishable,
            RelativeChange::Percent(percent) if percent.abs() < NEGLIGIBLE_PERCENT => Effect::Negligible,
            _ if interval.low > 0.0 => Effect::More,
            _ => Effect::Less,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn estimate(percent: f64, low: f64, high: f64) -> Estimate {
        let interval = Some(Interval { low, high });
        Estimate { change: RelativeChange::Percent(percent), interval, basis: Some(Basis::Times) }
    }

    #[test]
    fn effects_follow_from_intervals() {
        assert_eq!(estimate(-20.0, -30.0, -5.0).effect(), Effect::Less);
        assert_eq!(estimate(20.0, 5.0, 40.0).effect(), Effect::More);
        assert_eq!(estimate(20.0, -5.0, 40.0).effect(), Effect::Indistinguishable);
        assert_eq!(estimate(0.5, 0.4, 0.6).effect(), Effect::Negligible);
        assert_eq!(Estimate::without_interval(RelativeChange::Percent(5.0)).effect(), Effect::Unknown);
        let appeared =
            Estimate { change: RelativeChange::FromNothing, ..estimate(0.0, 200.0, f64::INFINITY) };
        assert_eq!(appeared.effect(), Effect::More);
    }
}
