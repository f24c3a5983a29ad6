//! Contrasts: how much a figure differs between a baseline and an arm, and how sure that is.
//!
//! The unit of replication is the block: within one, each arm's levels are set once, and whatever the host was like then
//! is common to both. So a block gives one difference, and the interval is Student's t over the blocks' differences.
//! Figures that are positive are compared as logarithms of ratios; percentages, and figures that may be nothing or less,
//! as differences in their unit. Results that share no block (of two hosts) are compared by Welch's t.
//!
//! Counts of which some are none, or that are few, are compared as differences too, but Student's t of those does not see
//! "always none", nor that 3 events more may be chance ([`counted`]). They pass two tests, and the one that is less sure
//! counts: Student's t (or the permutation) over the blocks' logarithms, half an event added to each, which knows how runs
//! scatter; and the exact one of Poisson counts over all blocks together, which knows how few the events are. The interval
//! is made of those of both arms (Zou and Donner, "Construction of confidence limits about effect measures: a general
//! approach", Statistics in Medicine 27, 2008), each of which is the wider one by the same two.
//!
//! A simulation of whole studies chose the method: `study_coverage.rs`, among the tests of `study`, prints this table.
//! 600 studies a row, runs that scatter by 3 % and blocks by 10 %, truth 2 %; the share of intervals that hold the
//! truth, and in brackets their median width in percentage points:
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

use crate::permutation::{Labels, labels_p_value, signs_p_value};
use crate::student::{Error, Moments, SMALLEST_P};
use crate::{Interval, mean, normal, percent, poisson};

/// Fewer blocks (or, without blocks, repeats of a side) than these give a change without an interval.
pub const MINIMUM_REPEATS: usize = 3;

/// The figure by which two are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// Their ratio; changes are in percent of the baseline.
    Ratio,
    /// Their difference; changes are in the figure's unit, those of percentages in percentage points.
    Difference,
}

impl Scale {
    /// A value as it enters the statistics.
    #[must_use]
    pub fn enter(self, value: f64) -> f64 {
        match self {
            Self::Ratio => value.ln(),
            Self::Difference => value,
        }
    }

    /// An entered value in the figure's unit again. Of a mean of entered values it is the level that changes are of: the
    /// geometric mean of ratios, the mean of differences.
    #[must_use]
    pub fn leave(self, entered: f64) -> f64 {
        match self {
            Self::Ratio => entered.exp(),
            Self::Difference => entered,
        }
    }

    /// A difference of entered values as it is told.
    #[must_use]
    pub fn tell(self, difference: f64) -> f64 {
        match self {
            Self::Ratio => percent(difference),
            Self::Difference => difference,
        }
    }

    /// The size of a told change, the same for a change and for the one back: the logarithm of a ratio, or the difference,
    /// without the sign. -40 % and +66.7 % are of one size.
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
    /// The arms' names dealt again, within blocks where there are blocks. It assumes no shape of the noise.
    Permutation,
    /// Student's t (Welch's without blocks), where so few repeats have too few dealings for a p value below
    /// [`LEVEL`](crate::LEVEL). It takes the noise for normal.
    Student,
    /// The exact one of Poisson counts, where events are so few that it is less sure than the others. For two changes of
    /// such counts: the interval of their difference.
    Counts,
}

/// The difference of an arm from the baseline.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Contrast {
    /// The figure by which the two were compared.
    pub scale: Scale,
    /// The best estimate, in percent of the baseline or in the figure's unit, as the scale says.
    pub estimate: f64,
    /// The 95 % interval about it; none with fewer than [`MINIMUM_REPEATS`].
    pub interval: Option<Interval>,
    /// The probability that noise alone shows a change at least as large; none without an interval.
    pub p_value: Option<f64>,
    /// The source of the p value.
    pub test: Option<Test>,
    /// Blocks that hold both arms; without blocks, repeats of the side that has fewer.
    pub repeats: usize,
    /// True if blocks were compared within themselves.
    pub is_paired: bool,
}

impl Contrast {
    /// Tests whether a difference is seen: the p value is below `level`, and the interval is without 0. One may hold without
    /// the other, because dealings assume no shape of the noise and the interval takes it for normal.
    #[must_use]
    pub fn is_seen(&self, level: f64) -> bool {
        self.p_value.is_some_and(|p_value| p_value < level)
            && self.interval.is_some_and(|interval| !interval.holds_zero())
    }
}

/// The change over blocks, each of which gave one value of the baseline and one of the arm, both as [`Scale::enter`]
/// makes them; `differences` are arm less baseline.
///
/// `None` without blocks. `seed` decides the dealings where there are too many to try all.
#[must_use]
pub fn paired(differences: &[f64], scale: Scale, seed: u64) -> Option<Contrast> {
    let moments = Moments::of(differences)?;
    let by_dealing = signs_p_value(differences, seed);
    let found = contrast(scale, moments.mean, moments.error(), by_dealing, differences.len());
    Some(Contrast { is_paired: true, ..found })
}

/// The change from `before` to `after`, which share no blocks; both as [`Scale::enter`] makes them.
///
/// The interval holds the truth in 94 to 96 of 100 cases where both sides have as many values, whatever they scatter by. Of 3
/// values against 10 it holds it in 93 of 100, unless the 10 scatter more (`tests/coverage.rs`).
///
/// `None` where a side is empty.
#[must_use]
pub fn unpaired(before: &[f64], after: &[f64], scale: Scale, seed: u64) -> Option<Contrast> {
    let sides = [Moments::of(before)?, Moments::of(after)?];
    let error = Error::welch(sides.map(|side| (side.error().error.powi(2), side.error().freedom)));
    let by_dealing = labels_p_value(Labels { before, after }, seed);
    let repeats = before.len().min(after.len());
    Some(contrast(scale, sides[1].mean - sides[0].mean, error, by_dealing, repeats))
}

/// With the p value by dealing, where there is one, or else Student's.
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

/// The 95 % interval of the change in percent over blocks, each with the baseline's value and the arm's, both positive;
/// `None` with fewer than [`MINIMUM_REPEATS`].
#[must_use]
pub fn interval_of_ratios(blocks: &[[f64; 2]]) -> Option<Interval> {
    let steps: Vec<f64> = blocks.iter().map(|[baseline, arm]| (arm / baseline).ln()).collect();
    Some(interval_of_mean(&steps)?.map(|end| Scale::Ratio.tell(end)))
}

/// Events of one run or block, and over how long (in seconds, or operations) they were counted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Count {
    /// The number of events.
    pub events: f64,
    /// Seconds or operations.
    pub over: f64,
}

impl Count {
    /// Events a second, or an operation.
    #[must_use]
    pub fn rate(self) -> f64 {
        self.events / self.over
    }

    /// The logarithm of the rate with half an event more, so that none is a number too (Haldane, "The estimation and
    /// significance of the logarithm of a ratio of frequencies", Annals of Human Genetics 20, 1956).
    fn entered(self) -> f64 {
        ((self.events + 0.5) / self.over).ln()
    }

    fn sum(counts: &[Self]) -> Self {
        counts.iter().fold(Self { events: 0.0, over: 0.0 }, |sum, count| Self {
            events: sum.events + count.events,
            over: sum.over + count.over,
        })
    }
}

/// The change of rates that are made of few events, or of none. The interval holds the truth in 96 to 100 of 100 cases
/// (`tests/coverage.rs`: 3 to 10 blocks of 0.7 to 100 events): that of so few events cannot be narrower.
///
/// `are_pairs` says that both sides have the same blocks, in the same order.
///
/// `None` where a side is empty.
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

/// The interval of the difference of two figures that each have one, which may lie askew (Zou and Donner).
fn of_both(figures: [f64; 2], [before, after]: [Interval; 2]) -> Interval {
    let difference = figures[1] - figures[0];
    Interval {
        low: difference - (figures[1] - after.low).hypot(before.high - figures[0]),
        high: difference + (after.high - figures[1]).hypot(figures[0] - before.low),
    }
}

/// The difference between two changes of few counts ([`counted`]) that share no block. Only their intervals say how sure it
/// is, because those know how few the events are: p is that of a normal distribution with the interval's width on the side
/// of 0. The interval holds the truth in 96 to 100 of 100 cases (`tests/coverage.rs`).
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

/// The 95 % interval of the mean rate: the wider one by how few the events are, and by how the counts scatter. `None` with
/// fewer than [`MINIMUM_REPEATS`].
///
/// It holds the truth in 93 to 99 of 100 cases where runs scatter by up to 10 % and blocks by up to 30 %
/// (`tests/coverage.rs`). What scatters more is skewed, and the mean of logarithms lies below that of the rates: where both
/// scatter by 50 %, it holds the truth in 91 of 100 cases with five blocks of 100 events, and in 85 with ten. The interval of
/// the difference ([`counted`]) is made of two such and does not suffer from it.
#[must_use]
pub fn interval_of_counts(counts: &[Count]) -> Option<Interval> {
    let sum = Count::sum(counts);
    let mean = mean_rate(counts);
    let entered: Vec<f64> = counts.iter().map(|count| count.entered()).collect();
    let scatter = interval_of_level(&entered, Scale::Ratio)?;
    // Of a number that is not whole because the run's time is not that of the count to the digit.
    let exact = poisson::count(sum.events.round() as u64).times(1.0 / sum.over);
    if sum.events <= 0.0 {
        // They do not scatter.
        return Some(Interval { low: 0.0, high: exact.high });
    }
    Some(Interval { low: exact.low.min(scatter.low).min(mean), high: exact.high.max(scatter.high).max(mean) })
}

fn mean_rate(counts: &[Count]) -> f64 {
    mean(&counts.iter().map(|count| count.rate()).collect::<Vec<_>>())
}

/// The 95 % interval of the mean of `values`, in their unit; `None` with fewer than [`MINIMUM_REPEATS`].
#[must_use]
pub fn interval_of_mean(values: &[f64]) -> Option<Interval> {
    interval_of_level(values, Scale::Difference)
}

/// The 95 % interval of the level ([`Scale::leave`]) of `entered` values, in the figure's unit; `None` with fewer than
/// [`MINIMUM_REPEATS`].
#[must_use]
pub fn interval_of_level(entered: &[f64], scale: Scale) -> Option<Interval> {
    let interval = Moments::of(entered).filter(|_| entered.len() >= MINIMUM_REPEATS)?.interval()?;
    Some(interval.map(|end| scale.leave(end)))
}

#[cfg(test)]
#[path = "contrast_tests.rs"]
mod tests;
