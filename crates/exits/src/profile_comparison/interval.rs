//! Changes with the interval that says how sure they are, and on what it rests.

use serde::{Deserialize, Serialize};
use stats::Interval;

use crate::Change;

/// A change smaller than this, in percent, is not worth a word, however sure it is.
const NEGLIGIBLE_PERCENT: f64 = 1.0;

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
    /// Its 95 % interval, in percent of the figure before: from -100, where nothing at all is believable too, to infinity,
    /// where there is no upper end because nothing was seen before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<Interval>,
    /// What the interval rests on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<Basis>,
}

impl Estimate {
    pub(super) fn new(change: Change, log: Interval, basis: Basis) -> Self {
        let interval = log.percent();
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

#[cfg(test)]
mod tests {
    use super::*;

    fn estimate(percent: f64, low: f64, high: f64) -> Estimate {
        let interval = Some(Interval { low, high });
        Estimate { change: Change::Percent(percent), interval, basis: Some(Basis::Times) }
    }

    #[test]
    fn effects_follow_from_intervals() {
        assert_eq!(estimate(-20.0, -30.0, -5.0).effect(), Effect::Less);
        assert_eq!(estimate(20.0, 5.0, 40.0).effect(), Effect::More);
        assert_eq!(estimate(20.0, -5.0, 40.0).effect(), Effect::Indistinguishable);
        assert_eq!(estimate(0.5, 0.4, 0.6).effect(), Effect::Negligible);
        assert_eq!(Estimate::without_interval(Change::Percent(5.0)).effect(), Effect::Unknown);
        let appeared = Estimate { change: Change::FromNothing, ..estimate(0.0, 200.0, f64::INFINITY) };
        assert_eq!(appeared.effect(), Effect::More);
    }
}
