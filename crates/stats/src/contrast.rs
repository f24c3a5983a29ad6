//! Contrasts: the difference of a figure between a baseline and an arm, with its interval and p value.
//!
//! The unit of replication is the block: within a block each arm's levels are set once, and all arms see the same state of
//! the host. So a block gives one difference, and the interval is Student's t over the blocks' differences. Positive
//! figures are compared as logarithms of ratios; percentages, and figures that may be zero or negative, as differences in
//! their unit. Results without common blocks (for example of two hosts) are compared by Welch's t.
//!
//! Counts that are small or zero are compared as differences too, but by [`counted`]: Student's t fails if all counts of an
//! arm are 0, and does not know that 3 more events may be chance. Two tests are made, and the larger p value is used:
//! Student's t (or a permutation test) over the blocks' logarithms, with half an event added to each count, which accounts
//! for the scatter of runs; and the exact test of Poisson counts over all blocks together, which accounts for the small
//! number of events. The interval combines the intervals of both arms (Zou and Donner, "Construction of confidence limits
//! about effect measures: a general approach", Statistics in Medicine 27, 2008), each of which is the wider one of the same
//! two methods.
//!
//! The method was chosen by a simulation of whole studies: `study_coverage.rs`, among the tests of `study`, prints this
//! table. Each row is 600 studies with a true change of 2 %, runs that scatter by 3 % and blocks that scatter by 10 %. The
//! figures are the share of intervals that contain the true change, and in brackets their median width in percentage
//! points:
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
//! The percentile bootstrap (Davison and Hinkley, "Bootstrap Methods and their Application", 1997, section 5.3)
//! underestimates the tails if there are few blocks. Without pairs the scatter of the blocks widens the interval.

use serde::{Deserialize, Serialize};

use crate::permutation::{Labels, labels_p_value, signs_p_value};
use crate::student::{Error, Moments, SMALLEST_P, quantile};
use crate::{Interval, mean, normal, percent, poisson};

/// The minimum number of blocks (without blocks: of repeats of each side) for an interval.
pub const MINIMUM_REPEATS: usize = 3;

/// The quantity by which two figures are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// The ratio of the figures; changes are in percent of the baseline.
    Ratio,
    /// The difference of the figures; changes are in the figure's unit, those of percentages in percentage points.
    Difference,
}

impl Scale {
    /// The value on the scale of the statistics: its logarithm for ratios.
    #[must_use]
    pub fn enter(self, value: f64) -> f64 {
        match self {
            Self::Ratio => value.ln(),
            Self::Difference => value,
        }
    }

    /// The inverse of [`Self::enter`]: a value in the figure's unit. The mean of entered values becomes the level to which
    /// changes refer: the geometric mean for ratios, the arithmetic mean for differences.
    #[must_use]
    pub fn leave(self, entered: f64) -> f64 {
        match self {
            Self::Ratio => entered.exp(),
            Self::Difference => entered,
        }
    }

    /// The change to report for a difference of entered values: in percent for ratios.
    #[must_use]
    pub fn tell(self, difference: f64) -> f64 {
        match self {
            Self::Ratio => percent(difference),
            Self::Difference => difference,
        }
    }

    /// The size of a reported change, which is the same for a change and its reversal: the absolute logarithm of the ratio,
    /// or the absolute difference. -40 % and +66.7 % have the same size.
    #[must_use]
    pub fn size(self, told: f64) -> f64 {
        match self {
            Self::Ratio => (told / 100.0).ln_1p().abs(),
            Self::Difference => told.abs(),
        }
    }
}

/// The source of a p value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Test {
    /// A permutation test: the arms' labels are permuted, within blocks if there are blocks. It makes no assumption about
    /// the distribution of the noise.
    Permutation,
    /// Student's t (Welch's without blocks), if there are too few permutations for a p value below [`LEVEL`](crate::LEVEL).
    /// It assumes normal noise.
    Student,
    /// The exact test of Poisson counts, if its p value is larger than that of the other test because there are few events.
    /// For the difference of two changes of such counts: a p value from its interval.
    Counts,
}

/// The difference of an arm from the baseline.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Contrast {
    /// The figure by which the two were compared.
    pub scale: Scale,
    /// The best estimate, in percent of the baseline or in the figure's unit, as the scale says.
    pub estimate: f64,
    /// The 95 % interval of the estimate; none with fewer than [`MINIMUM_REPEATS`] repeats.
    pub interval: Option<Interval>,
    /// The probability of a change at least as large if the arms do not differ; none without an interval.
    pub p_value: Option<f64>,
    /// The source of the p value.
    pub test: Option<Test>,
    /// The number of blocks that contain both arms; without blocks, of repeats of the side with fewer.
    pub repeats: usize,
    /// True if the arms were compared within blocks.
    pub is_paired: bool,
}

impl Contrast {
    /// Tests whether the difference is significant: the p value is below `level`, and the interval excludes 0. The two may
    /// disagree, because the interval assumes normal noise and a permutation test does not.
    #[must_use]
    pub fn is_seen(&self, level: f64) -> bool {
        self.p_value.is_some_and(|p_value| p_value < level)
            && self.interval.is_some_and(|interval| !interval.holds_zero())
    }

    /// The p value by Student's t that belongs to the interval, for the change over blocks; `None` without an interval.
    ///
    /// It is for a level that is stricter because there are several tests. A permutation test cannot reach such a level with
    /// few blocks: the smallest p value of six is 2/64, which more repeats would thus make harder to pass than five.
    #[must_use]
    pub fn student_p_value(&self) -> Option<f64> {
        let interval = self.interval?;
        let entered = |told: f64| match self.scale {
            Scale::Ratio => (told / 100.0).ln_1p(),
            Scale::Difference => told,
        };
        let difference = entered(self.estimate);
        let end = entered(if difference < 0.0 { interval.high } else { interval.low });
        let freedom = self.repeats as f64 - 1.0;
        let error = (difference - end).abs() / quantile(freedom)?;
        Error { error, freedom }.p_value(difference)
    }
}

/// The change over blocks, each with one value of the baseline and one of the arm. `differences` are arm minus baseline, of
/// values from [`Scale::enter`].
///
/// `None` without blocks. `seed` is used to draw permutations if there are too many to try all.
#[must_use]
pub fn paired(differences: &[f64], scale: Scale, seed: u64) -> Option<Contrast> {
    let moments = Moments::of(differences)?;
    let by_dealing = signs_p_value(differences, seed);
    let found = contrast(scale, moments.mean, moments.error(), by_dealing, differences.len());
    Some(Contrast { is_paired: true, ..found })
}

/// The change from `before` to `after`, which share no blocks. Both are values from [`Scale::enter`].
///
/// The interval contains the true value in 94 to 96 of 100 cases if both sides have the same number of values, even if one
/// side scatters more. With 3 values against 10 it does in 93 of 100, unless the 10 scatter more (`tests/coverage.rs`).
///
/// `None` if a side is empty.
#[must_use]
pub fn unpaired(before: &[f64], after: &[f64], scale: Scale, seed: u64) -> Option<Contrast> {
    let sides = [Moments::of(before)?, Moments::of(after)?];
    let error = Error::welch(sides.map(|side| (side.error().error.powi(2), side.error().freedom)));
    let by_dealing = labels_p_value(Labels { before, after }, seed);
    let repeats = before.len().min(after.len());
    Some(contrast(scale, sides[1].mean - sides[0].mean, error, by_dealing, repeats))
}

/// A contrast with the p value of the permutation test, or Student's if there is none.
fn contrast(
    scale: Scale,
    difference: f64,
    error: Error,
    by_dealing: Option<f64>,
    repeats: usize,
) -> Contrast {
    let enough = repeats >= MINIMUM_REPEATS;
    let test = if by_dealing.is_some() { Test::Permutation } else { Test::Student };
    let p_value = by_dealing.or_else(|| error.p_value(difference)).filter(|_| enough);
    Contrast {
        scale,
        estimate: scale.tell(difference),
        interval: error.interval(difference).filter(|_| enough).map(|found| found.map(|end| scale.tell(end))),
        p_value,
        test: p_value.map(|_| test),
        repeats,
        is_paired: false,
    }
}

/// The 95 % interval of the change over blocks, each with the baseline's value and the arm's, which are positive for
/// ratios; `None` with fewer than [`MINIMUM_REPEATS`] blocks.
#[must_use]
pub fn interval_of_changes(blocks: &[[f64; 2]], scale: Scale) -> Option<Interval> {
    let steps: Vec<f64> =
        blocks.iter().map(|&[baseline, arm]| scale.enter(arm) - scale.enter(baseline)).collect();
    Some(interval_of_mean(&steps)?.map(|end| scale.tell(end)))
}

/// The events of one run or block, and the seconds or operations over which they were counted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Count {
    /// The number of events.
    pub events: f64,
    /// Seconds or operations.
    pub over: f64,
}

impl Count {
    /// Events per second, or per operation.
    #[must_use]
    pub fn rate(self) -> f64 {
        self.events / self.over
    }

    /// The logarithm of the rate with half an event added, so that it is finite for 0 events (Haldane, "The estimation and
    /// significance of the logarithm of a ratio of frequencies", Annals of Human Genetics 20, 1956).
    fn entered(self) -> f64 {
        ((self.events + 0.5) / self.over).ln()
    }

    /// The events of all, and the seconds or operations of all.
    #[must_use]
    pub fn sum(counts: &[Self]) -> Self {
        counts.iter().fold(Self { events: 0.0, over: 0.0 }, |sum, count| Self {
            events: sum.events + count.events,
            over: sum.over + count.over,
        })
    }
}

/// The change of a rate if there are few events, or none. The interval contains the true change in 96 to 100 of 100 cases
/// (`tests/coverage.rs`: 3 to 10 blocks of 0.7 to 100 events); with so few events it cannot be narrower.
///
/// `are_pairs` says that both sides have the same blocks, in the same order.
///
/// `None` if a side is empty.
#[must_use]
pub fn counted(before: &[Count], after: &[Count], are_pairs: bool, seed: u64) -> Option<Contrast> {
    let [first, second] =
        [before, after].map(|side| side.iter().map(|count| count.entered()).collect::<Vec<_>>());
    let by_scatter = if are_pairs {
        let steps: Vec<f64> = second.iter().zip(&first).map(|(after, before)| after - before).collect();
        paired(&steps, Scale::Ratio, seed)?
    } else {
        unpaired(&first, &second, Scale::Ratio, seed)?
    };
    let sums = [before, after].map(Count::sum);
    let longer = (sums[1].over / sums[0].over).ln();
    let by_number = poisson::p_value(sums[0].events, sums[1].events, longer).max(SMALLEST_P);
    let few = by_scatter.p_value.is_some_and(|p_value| p_value < by_number);
    let means = [before, after].map(mean_rate);
    let within = [before, after].map(interval_of_counts);
    Some(Contrast {
        scale: Scale::Difference,
        estimate: means[1] - means[0],
        interval: within[0].zip(within[1]).map(|(before, after)| of_both(means, [before, after])),
        p_value: by_scatter.p_value.map(|p_value| p_value.max(by_number)),
        test: if few { Some(Test::Counts) } else { by_scatter.test },
        ..by_scatter
    })
}

/// The interval of the difference of two figures, from their own intervals, which may be asymmetric (Zou and Donner).
fn of_both(figures: [f64; 2], [before, after]: [Interval; 2]) -> Interval {
    let difference = figures[1] - figures[0];
    Interval {
        low: difference - (figures[1] - after.low).hypot(before.high - figures[0]),
        high: difference + (after.high - figures[1]).hypot(figures[0] - before.low),
    }
}

/// The difference between two changes of small counts ([`counted`]) that share no block. The p value is derived from the
/// interval, because only the intervals of the changes account for the small number of events: it is that of a normal
/// distribution whose 95 % interval is as wide on the side of 0. The interval contains the true difference in 96 to 100 of
/// 100 cases (`tests/coverage.rs`).
#[must_use]
pub fn between_counted(before: &Contrast, after: &Contrast) -> Contrast {
    let estimate = after.estimate - before.estimate;
    let both = before.interval.zip(after.interval);
    let interval = both.map(|(first, second)| of_both([before.estimate, after.estimate], [first, second]));
    let p_value = interval.map(|interval| {
        let half = if estimate < 0.0 { interval.high - estimate } else { estimate - interval.low };
        if estimate == 0.0 {
            1.0
        } else {
            normal::p_value(estimate / half * normal::QUANTILE).max(SMALLEST_P)
        }
    });
    Contrast {
        scale: Scale::Difference,
        estimate,
        interval,
        p_value,
        test: p_value.map(|_| Test::Counts),
        repeats: before.repeats.min(after.repeats),
        is_paired: false,
    }
}

/// The 95 % interval of the mean rate: it spans the interval by the number of events and the one by the scatter of the
/// counts. `None` with fewer than [`MINIMUM_REPEATS`] counts.
///
/// It contains the true rate in 93 to 99 of 100 cases if runs scatter by up to 10 % and blocks by up to 30 %
/// (`tests/coverage.rs`). With more scatter the distribution is skewed, and the mean of the logarithms is below the
/// logarithm of the mean rate: if both scatter by 50 %, it contains the true rate in 91 of 100 cases with five blocks of
/// 100 events, and in 85 with ten. The interval of the difference ([`counted`]) combines two of these and is not affected.
#[must_use]
pub fn interval_of_counts(counts: &[Count]) -> Option<Interval> {
    let sum = Count::sum(counts);
    let mean = mean_rate(counts);
    let entered: Vec<f64> = counts.iter().map(|count| count.entered()).collect();
    let scatter = interval_of_level(&entered, Scale::Ratio)?;
    // Events may be fractional: they are a rate times the time of a run, which may differ from the time of the count.
    let exact = poisson::count(sum.events.round() as u64).times(1.0 / sum.over);
    if sum.events <= 0.0 {
        // Zero counts do not scatter.
        return Some(Interval { low: 0.0, high: exact.high });
    }
    Some(Interval { low: exact.low.min(scatter.low).min(mean), high: exact.high.max(scatter.high).max(mean) })
}

fn mean_rate(counts: &[Count]) -> f64 {
    mean(&counts.iter().map(|count| count.rate()).collect::<Vec<_>>())
}

/// The 95 % interval of the mean of `values`, in their unit; `None` with fewer than [`MINIMUM_REPEATS`] values.
#[must_use]
pub fn interval_of_mean(values: &[f64]) -> Option<Interval> {
    interval_of_level(values, Scale::Difference)
}

/// The 95 % interval of the level ([`Scale::leave`]) of `entered` values, in the figure's unit; `None` with fewer than
/// [`MINIMUM_REPEATS`] values.
#[must_use]
pub fn interval_of_level(entered: &[f64], scale: Scale) -> Option<Interval> {
    let interval = Moments::of(entered).filter(|_| entered.len() >= MINIMUM_REPEATS)?.interval()?;
    Some(interval.map(|end| scale.leave(end)))
}

#[cfg(test)]
#[path = "contrast_tests.rs"]
mod tests;
