//! How much a figure changed from one arm to another, and how sure that is.
//!
//! The unit of replication is the block: within one, each arm's levels are set once, and whatever the host was like then
//! is common to both. So a block gives one difference, and the interval is Student's t over the blocks' differences.
//! Figures that are positive are compared as logarithms of ratios; percentages, and figures that may be nothing or less,
//! as differences in their unit. Results that share no block (of two hosts) are compared by Welch's t.
//!
//! `tests/all/study_coverage.rs` chose the method by simulation and keeps it so; it prints this table. 600 studies a row,
//! runs that scatter by 3 % and blocks by 10 %, truth 2 %; the share of intervals that hold the truth, and in brackets
//! their median width in percentage points:
//!
//! | scenario | blocks | pairs, t (chosen) | percentile bootstrap | not paired, Welch |
//! |---|---|---|---|---|
//! | blocks differ | 3 | 95 % (16.9) | 72 % (6.4) | 100 % (43.7) |
//! | blocks differ | 4 | 94 % (11.6) | 82 % (6.4) | 100 % (33.4) |
//! | blocks differ | 8 | 95 % (6.9) | 88 % (5.2) | 100 % (21.7) |
//! | blocks are alike | 3 | 95 % (16.9) | 72 % (6.4) | 96 % (14.3) |
//! | blocks are alike | 8 | 95 % (6.9) | 88 % (5.2) | 96 % (6.4) |
//! | one arm four times noisier | 3 | 96 % (17.1) | 71 % (6.4) | 100 % (43.7) |
//! | one arm four times noisier | 8 | 96 % (6.7) | 89 % (5.2) | 100 % (21.4) |
//! | heavy tails (t, 3 degrees) | 3 | 95 % (24.5) | 74 % (8.8) | 100 % (45.3) |
//! | heavy tails (t, 3 degrees) | 8 | 96 % (10.2) | 89 % (7.5) | 100 % (23.1) |
//! | the arms differ by block | 3 | 95 % (21.2) | 72 % (7.7) | 100 % (44.9) |
//! | the arms differ by block | 8 | 95 % (8.5) | 86 % (6.4) | 100 % (22.1) |
//!
//! The percentile bootstrap (Davison and Hinkley, "Bootstrap Methods and their Application", 1997, section 5.3) knows
//! nothing of the tails of a handful of blocks. Runs that are not paired carry the whole scatter of the blocks.

use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};

use super::permutation::{Labels, labels_p_value, signs_p_value};
use crate::statistics::{CONFIDENCE, Interval};
use crate::study::Unit;

/// Fewer blocks (or, without blocks, repeats of a side) than these give a change without an interval.
pub const MINIMUM_REPEATS: usize = 3;

/// A p value below this passes the first gate.
pub const LEVEL: f64 = 0.05;

/// Below this a p value of Student's t says more than a handful of repeats can know.
const SMALLEST_P: f64 = 1e-9;

/// What two figures are compared by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// Their ratio; changes are in percent of the baseline.
    Ratio,
    /// Their difference; changes are in the figure's unit, those of percentages in percentage points.
    Difference,
}

impl Scale {
    /// The scale on which `values` of this unit can be compared.
    pub fn of(unit: Unit, values: impl IntoIterator<Item = f64>) -> Self {
        let are_positive = values.into_iter().all(|value| value.is_finite() && value > 0.0);
        if unit != Unit::Percent && are_positive { Self::Ratio } else { Self::Difference }
    }

    /// A value as it enters the statistics.
    pub(super) fn enter(self, value: f64) -> f64 {
        match self {
            Self::Ratio => value.ln(),
            Self::Difference => value,
        }
    }

    /// A difference of entered values as it is told.
    pub(super) fn tell(self, difference: f64) -> f64 {
        match self {
            Self::Ratio => difference.exp_m1() * 100.0,
            Self::Difference => difference,
        }
    }
}

/// Where a p value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Test {
    /// The arms' names dealt again, within blocks where there are blocks. It assumes no shape of the noise.
    Permutation,
    /// Student's t (Welch's without blocks), where so few repeats have too few dealings for a p value below
    /// [`LEVEL`]. It takes the noise for normal.
    Student,
}

/// A change from the baseline to an arm.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// What the two were compared by.
    pub scale: Scale,
    /// The best estimate, in percent of the baseline or in the figure's unit, as the scale says.
    pub estimate: f64,
    /// The 95 % interval about it; none with fewer than [`MINIMUM_REPEATS`].
    pub interval: Option<Interval>,
    /// How often noise alone would show a change at least as large; none without an interval.
    pub p_value: Option<f64>,
    /// Where the p value comes from.
    pub test: Option<Test>,
    /// Blocks that hold both arms; without blocks, repeats of the side that has fewer.
    pub repeats: usize,
    /// Whether blocks were compared within themselves.
    pub is_paired: bool,
}

/// The change over blocks, each of which gave one value of the baseline and one of the arm, both as [`Scale::enter`]
/// makes them; `differences` are arm less baseline.
///
/// `None` without blocks. `seed` decides the dealings where there are too many to try all.
pub(super) fn paired(differences: &[f64], scale: Scale, seed: u64) -> Option<Change> {
    let moments = Moments::of(differences)?;
    let count = differences.len();
    let enough = count >= MINIMUM_REPEATS;
    let freedom = count as f64 - 1.0;
    let error = moments.error();
    let (p_value, test) = match signs_p_value(differences, seed) {
        Some(p_value) => (Some(p_value), Test::Permutation),
        None => (student_p_value(moments.mean, error, freedom), Test::Student),
    };
    let p_value = p_value.filter(|_| enough);
    Some(Change {
        scale,
        estimate: scale.tell(moments.mean),
        interval: enough.then(|| interval(moments.mean, error, freedom, scale)).flatten(),
        p_value,
        test: p_value.map(|_| test),
        repeats: count,
        is_paired: true,
    })
}

/// The change from `before` to `after`, which share no blocks; both as [`Scale::enter`] makes them.
///
/// `None` where a side is empty.
pub(super) fn unpaired(before: &[f64], after: &[f64], scale: Scale, seed: u64) -> Option<Change> {
    let sides = [Moments::of(before)?, Moments::of(after)?];
    let repeats = before.len().min(after.len());
    let enough = repeats >= MINIMUM_REPEATS;
    let difference = sides[1].mean - sides[0].mean;
    let [first, second] = sides.map(|side| side.error().powi(2));
    let error = (first + second).sqrt();
    // Welch, "The generalization of Student's problem when several different population variances are involved",
    // Biometrika 34 (1947).
    let freedom = if error > 0.0 {
        (first + second).powi(2) / (first.powi(2) / sides[0].freedom() + second.powi(2) / sides[1].freedom())
    } else {
        (before.len() + after.len()) as f64 - 2.0
    };
    let (p_value, test) = match labels_p_value(Labels { before, after }, seed) {
        Some(p_value) => (Some(p_value), Test::Permutation),
        None => (student_p_value(difference, error, freedom), Test::Student),
    };
    let p_value = p_value.filter(|_| enough);
    Some(Change {
        scale,
        estimate: scale.tell(difference),
        interval: enough.then(|| interval(difference, error, freedom, scale)).flatten(),
        p_value,
        test: p_value.map(|_| test),
        repeats,
        is_paired: false,
    })
}

/// The 95 % interval of the mean of `values`, in their unit; `None` with fewer than [`MINIMUM_REPEATS`].
pub(super) fn interval_of_mean(values: &[f64]) -> Option<Interval> {
    let moments = Moments::of(values).filter(|_| values.len() >= MINIMUM_REPEATS)?;
    interval(moments.mean, moments.error(), moments.freedom(), Scale::Difference)
}

/// Mean, and what its certainty is made of.
#[derive(Clone, Copy)]
struct Moments {
    count: f64,
    mean: f64,
    variance: f64,
}

impl Moments {
    fn of(values: &[f64]) -> Option<Self> {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let variance = if values.len() > 1 { squares / (count - 1.0) } else { 0.0 };
        (!values.is_empty() && mean.is_finite()).then_some(Self { count, mean, variance })
    }

    fn freedom(&self) -> f64 {
        self.count - 1.0
    }

    /// The standard error of the mean.
    fn error(&self) -> f64 {
        (self.variance / self.count).sqrt()
    }
}

fn interval(centre: f64, error: f64, freedom: f64, scale: Scale) -> Option<Interval> {
    let half = error * student(freedom)?.inverse_cdf(f64::midpoint(1.0, CONFIDENCE));
    half.is_finite().then(|| Interval { low: scale.tell(centre - half), high: scale.tell(centre + half) })
}

fn student_p_value(centre: f64, error: f64, freedom: f64) -> Option<f64> {
    if centre == 0.0 {
        return Some(1.0);
    }
    if error <= 0.0 {
        return Some(SMALLEST_P);
    }
    Some((2.0 * student(freedom)?.sf((centre / error).abs())).clamp(SMALLEST_P, 1.0))
}

fn student(freedom: f64) -> Option<StudentsT> {
    StudentsT::new(0.0, 1.0, freedom).ok()
}

#[cfg(test)]
#[path = "change_tests.rs"]
mod tests;
