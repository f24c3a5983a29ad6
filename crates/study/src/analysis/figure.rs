//! A figure of a workload in all arms, with its comparisons.

use serde::Serialize;

use super::finding::{Finding, Source};
use crate::{Better, Unit};
use stats::{Contrast, Interval, Scale};

/// A figure of a workload, for each number of guests.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure {
    /// The workload.
    pub workload: String,
    /// The metric.
    pub metric: String,
    /// The source of the values.
    pub source: Source,
    /// The unit.
    pub unit: Unit,
    /// The better direction.
    pub better: Better,
    /// The values for each number of guests, ascending.
    pub points: Vec<Point>,
    /// Each arm against the baseline over all numbers of guests, if there are several: the value of a block is the mean
    /// of its changes.
    pub overall: Vec<Comparison>,
}

impl Figure {
    /// Tests whether the workload itself measured the figure, and it has a better direction.
    pub(crate) fn is_telling(&self) -> bool {
        self.source == Source::Workload && self.better != Better::Neither
    }

    /// Tests whether it counts the VM exits of all reasons.
    pub fn is_exit_total(&self) -> bool {
        self.source == Source::Host && self.metric == super::wording::EXIT_TOTAL
    }

    /// Tests whether it counts the VM exits of all reasons for each unit of the workload's work.
    pub fn is_exit_total_of_work(&self) -> bool {
        self.source == Source::Host
            && crate::workload::exits_of_which_work(&self.metric).is_some_and(|(_, of)| of == "total")
    }

    /// One comparison of each arm with the baseline: over all numbers of guests, or for the only one.
    pub fn summary(&self) -> &[Comparison] {
        match &self.points[..] {
            [only] => &only.comparisons,
            _ => &self.overall,
        }
    }

    /// The numbers of guests with which this arm was compared.
    pub fn counts_of(&self, arm: usize) -> Vec<u32> {
        let compared = |point: &&Point| point.comparisons.iter().any(|one| one.arm == arm);
        self.points.iter().filter(compared).map(|point| point.guests).collect()
    }

    /// The metric's name, preceded by the workload's unless the metric begins with it.
    pub fn name(&self) -> String {
        super::wording::figure(&self.workload, &self.metric, self.source)
    }
}

/// The comparison with the largest change. If all changes are on one scale and in one unit, their sizes are compared,
/// otherwise their percentages of the baseline.
pub fn largest<'a>(all: &[(&'a Figure, &'a Comparison)]) -> Option<(&'a Figure, &'a Comparison)> {
    let kind = |(figure, one): &(&Figure, &Comparison)| {
        let scale = one.change.map(|change| change.scale);
        (scale, Some(figure.unit).filter(|_| scale == Some(Scale::Difference)))
    };
    let are_alike = all.windows(2).all(|pair| kind(&pair[0]) == kind(&pair[1]));
    let size = |one: &Comparison| {
        let size = if are_alike { one.change.map(|change| change.estimate) } else { one.percent };
        size.map_or(0.0, f64::abs)
    };
    all.iter().copied().max_by(|a, b| size(a.1).total_cmp(&size(b.1)))
}

/// A figure at one number of guests.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Point {
    /// The number of guests that run at once.
    pub guests: u32,
    /// The values of each arm, in the order of arms; `None` if it did not run.
    pub arms: Vec<Option<ArmValues>>,
    /// The comparison of each other arm with the baseline.
    pub comparisons: Vec<Comparison>,
}

impl Point {
    /// The level of an arm: over the compared blocks if those are the same for all arms, otherwise over all blocks of
    /// the arm.
    pub fn level(&self, arm: usize) -> Option<f64> {
        let own = self.arms.get(arm)?.as_ref()?.level;
        let is_baseline = self.comparisons.iter().all(|one| one.arm != arm);
        let mut compared = self.comparisons.iter().filter_map(|one| match one.levels? {
            [level, _] if is_baseline => Some(level),
            [_, level] if one.arm == arm => Some(level),
            _ => None,
        });
        let first = compared.next().unwrap_or(own);
        Some(if compared.all(|level| level == first) { first } else { own })
    }
}

/// A figure in one arm, at one number of guests.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ArmValues {
    /// One value for each block, as block and value, in the figure's unit.
    pub values: Vec<(u32, f64)>,
    /// Their mean.
    pub mean: f64,
    /// Their median.
    pub median: f64,
    /// The 95 % interval of the mean, by Student's t; `None` with fewer than three values.
    pub interval: Option<Interval>,
    /// The level that changes start or end at: the geometric mean if figures are compared by ratio, otherwise the mean.
    pub level: f64,
    /// The 95 % interval of the level; `None` with fewer than three values.
    pub level_interval: Option<Interval>,
}

/// The comparison of an arm with the baseline.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// The arm's index in [`Findings::arms`](super::Findings::arms).
    pub arm: usize,
    /// The index of the arm that it is compared with. Not 0 if levels set the number of guests and the baseline has
    /// another number.
    pub baseline: usize,
    /// The change and its certainty; `None` if no block has both arms.
    pub change: Option<Contrast>,
    /// The levels of the baseline and the arm in the blocks that have both: the estimate is their ratio or
    /// their difference. `None` without a change.
    pub levels: Option<[f64; 2]>,
    /// The change in percent of the baseline's level, if that is positive.
    pub percent: Option<f64>,
    /// The noise: the root mean square difference between averages of as many repeats of one arm, on the scale of the
    /// change.
    pub noise: Option<f64>,
    /// The finding.
    pub finding: Finding,
    /// The p value adjusted over all comparisons of this source by Holm's method.
    pub p_holm: Option<f64>,
    /// The arms are equal, so a difference is a false alarm.
    pub is_aa: bool,
}
