//! Comparisons of a figure's values.

use std::collections::BTreeMap;

use stats::contrast::{Count, counted, interval_of_counts, interval_of_level, interval_of_mean, paired};
use stats::{Contrast, Scale, mean, median, noise};

use super::facts::Arm;
use super::figure::{ArmValues, Comparison, Figure, Point};
use super::gates::Gates;
use super::values::{ByBlock, Repeat, Series};

/// The settings that all comparisons share.
pub(super) struct Rules<'a> {
    pub(super) arms: &'a [Arm],
    pub(super) counts: &'a [u32],
    /// The arm that others are compared with, by number of guests.
    pub(super) baselines: &'a BTreeMap<u32, usize>,
    pub(super) gates: Gates,
    pub(super) seed: u64,
}

/// The values of the baseline and of an arm in the blocks that both have, on the scale of the comparison.
struct Pairs {
    baseline: Vec<f64>,
    arm: Vec<f64>,
    means: [f64; 2],
    /// The event counts of both, if the figure has few events.
    counts: Option<[Vec<Count>; 2]>,
}

impl Rules<'_> {
    fn baseline(&self, guests: u32) -> usize {
        self.baselines.get(&guests).copied().unwrap_or(0)
    }
}

/// A figure with all its comparisons.
pub(super) fn figure(series: &Series, rules: &Rules<'_>) -> Figure {
    let scale = series.scale();
    let points: Vec<Point> =
        rules.counts.iter().filter_map(|&guests| point(series, scale, guests, rules)).collect();
    let overall = if points.len() > 1 { overall(series, scale, &points, rules) } else { Vec::new() };
    Figure {
        workload: series.workload.clone(),
        metric: series.metric.clone(),
        source: series.source,
        unit: series.unit,
        better: series.better,
        points,
        overall,
    }
}

fn point(series: &Series, scale: Scale, guests: u32, rules: &Rules<'_>) -> Option<Point> {
    let of = |arm: usize| series.of(guests, arm);
    let arms: Vec<Option<ArmValues>> =
        (0..rules.arms.len()).map(|arm| summary(series, guests, arm, scale)).collect();
    arms.iter().any(Option::is_some).then_some(())?;
    let baseline = rules.baseline(guests);
    let comparisons = (1..rules.arms.len())
        .filter(|&arm| arm != baseline && of(arm).is_some())
        .map(|arm| {
            let counts = |arm: usize| series.counts_of_few(guests, arm);
            let counts = counts(baseline).zip(counts(arm));
            let pairs = of(baseline).zip(of(arm)).map(|(baseline, arm)| Pairs {
                counts: counts.map(|(baseline, arm)| {
                    let both = in_both(&baseline, &arm);
                    [0, 1].map(|side: usize| both.values().map(|pair| pair[side]).collect())
                }),
                ..by_block(baseline, arm, scale)
            });
            comparison([baseline, arm], pairs, series, scale, rules)
        })
        .collect();
    Some(Point { guests, arms, comparisons })
}

fn summary(series: &Series, guests: u32, arm: usize, scale: Scale) -> Option<ArmValues> {
    let values = series.of(guests, arm)?;
    let only: Vec<f64> = values.values().copied().collect();
    let entered: Vec<f64> = only.iter().map(|&value| scale.enter(value)).collect();
    let counts = series.counts_of_few(guests, arm);
    Some(ArmValues {
        values: values.iter().map(|(repeat, &value)| (repeat.block, value)).collect(),
        mean: mean(&only),
        median: median(&only).unwrap_or_default(),
        interval: interval_of_mean(&only),
        level: scale.leave(mean(&entered)),
        level_interval: match counts {
            Some(counts) => interval_of_counts(&counts.into_values().collect::<Vec<_>>()),
            None => interval_of_level(&entered, scale),
        },
    })
}

/// The values of the baseline and of an arm in the blocks that both have.
pub(super) fn in_both<T: Copy>(
    baseline: &BTreeMap<Repeat, T>,
    arm: &BTreeMap<Repeat, T>,
) -> BTreeMap<Repeat, [T; 2]> {
    baseline.iter().filter_map(|(&block, &value)| Some((block, [value, *arm.get(&block)?]))).collect()
}

fn by_block(baseline: &ByBlock, arm: &ByBlock, scale: Scale) -> Pairs {
    let both = in_both(baseline, arm);
    let side = |side: usize| both.values().map(|pair| pair[side]).collect::<Vec<f64>>();
    let entered = |of: usize| side(of).into_iter().map(|value| scale.enter(value)).collect::<Vec<f64>>();
    Pairs { baseline: entered(0), arm: entered(1), means: [0, 1].map(|of| mean(&side(of))), counts: None }
}

/// Sums over the numbers of guests of one block, for the baseline and for the arm.
struct Sums {
    entered: [f64; 2],
    plain: [f64; 2],
    /// The sum of 1 / base over the rates; `None` if a base is unknown. `variance` is the sum of rate / base, which is
    /// a rate's variance.
    inverse: [Option<f64>; 2],
    variance: [f64; 2],
    points: f64,
}

impl Default for Sums {
    fn default() -> Self {
        Self { entered: [0.0; 2], plain: [0.0; 2], inverse: [Some(0.0); 2], variance: [0.0; 2], points: 0.0 }
    }
}

impl Sums {
    /// The mean of one side's rates as a count over a base. The base is the one for which a count of that rate has the
    /// variance of the mean (without events, the variance of equal rates). Adding up events and bases instead would
    /// weight the numbers of guests by the durations of that side's runs.
    fn count(&self, side: usize) -> Option<Count> {
        let of_equal = self.points * self.points / self.inverse[side]?;
        let over = if self.plain[side] > 0.0 {
            self.points * self.plain[side] / self.variance[side]
        } else {
            of_equal
        };
        Some(Count { events: self.plain[side] / self.points * over, over })
    }
}

/// Compares each arm with the baseline over all numbers of guests. Those of one block share its conditions (how the
/// levels were set, what the host did), so each block gives one value: they are not independent repeats.
fn overall(series: &Series, scale: Scale, points: &[Point], rules: &Rules<'_>) -> Vec<Comparison> {
    let arms = (1..rules.arms.len()).filter_map(|arm| {
        // For each block, the sums over the numbers of guests that both arms have.
        let mut blocks = BTreeMap::<Repeat, Sums>::new();
        let mut compared_with = None;
        for point in points {
            let baseline_arm = rules.baseline(point.guests);
            let baseline = series.of(point.guests, baseline_arm).filter(|_| baseline_arm != arm);
            let (Some(baseline), Some(values)) = (baseline, series.of(point.guests, arm)) else {
                continue;
            };
            compared_with.get_or_insert(baseline_arm);
            for (&block, &before) in baseline {
                let Some(&after) = values.get(&block) else { continue };
                let sums = blocks.entry(block).or_default();
                sums.entered = [sums.entered[0] + scale.enter(before), sums.entered[1] + scale.enter(after)];
                sums.plain = [sums.plain[0] + before, sums.plain[1] + after];
                for (side, (arm, rate)) in [(baseline_arm, before), (arm, after)].into_iter().enumerate() {
                    let over = series.over.get(&(point.guests, arm)).and_then(|over| over.get(&block));
                    sums.inverse[side] = sums.inverse[side].zip(over).map(|(sum, over)| sum + 1.0 / over);
                    sums.variance[side] += over.map_or(0.0, |over| rate / over);
                }
                sums.points += 1.0;
            }
        }
        // Drop blocks that lack a number of guests: they would weight the others differently.
        let whole = blocks.values().map(|block| block.points).fold(0.0, f64::max);
        let blocks: Vec<_> = blocks.into_values().filter(|block| block.points == whole).collect();
        let side = |side: usize| blocks.iter().map(|block| block.entered[side] / whole).collect::<Vec<_>>();
        let plain =
            |side: usize| mean(&blocks.iter().map(|block| block.plain[side] / whole).collect::<Vec<_>>());
        let counts = |side: usize| blocks.iter().map(|block| block.count(side)).collect::<Option<Vec<_>>>();
        let counts = counts(0).zip(counts(1)).filter(|_| series.is_of_few);
        let pairs = Pairs {
            baseline: side(0),
            arm: side(1),
            means: [plain(0), plain(1)],
            counts: counts.map(|(baseline, arm)| [baseline, arm]),
        };
        let baseline = compared_with.filter(|_| !blocks.is_empty())?;
        Some(comparison([baseline, arm], Some(pairs), series, scale, rules))
    });
    arms.collect()
}

fn comparison(
    [baseline, arm]: [usize; 2],
    pairs: Option<Pairs>,
    series: &Series,
    scale: Scale,
    rules: &Rules<'_>,
) -> Comparison {
    let change = pairs.as_ref().and_then(|pairs| change(pairs, scale, rules.seed));
    let noise =
        pairs.as_ref().and_then(|pairs| noise::floor([&pairs.baseline, &pairs.arm], pairs.arm.len(), scale));
    let levels = pairs.as_ref().map(|pairs| match &pairs.counts {
        // For counts, the change is the difference of the mean rates.
        Some(counts) => {
            counts.each_ref().map(|side| mean(&side.iter().map(|count| count.rate()).collect::<Vec<_>>()))
        }
        None => [&pairs.baseline, &pairs.arm].map(|entered| scale.leave(mean(entered))),
    });
    let means = pairs.map_or([f64::NAN; 2], |pairs| pairs.means);
    let percent = match change {
        Some(change) if scale == Scale::Ratio => Some(change.estimate),
        _ => (means[0] > 0.0 && means[1] >= 0.0).then(|| (means[1] / means[0] - 1.0) * 100.0),
    };
    Comparison {
        arm,
        baseline,
        change,
        levels: levels.filter(|_| change.is_some()),
        percent,
        noise,
        finding: rules.gates.judge(change, series.unit, means, noise),
        p_holm: None,
        is_aa: rules.arms[arm].is_like_baseline,
    }
}

fn change(pairs: &Pairs, scale: Scale, seed: u64) -> Option<Contrast> {
    if let Some([baseline, arm]) = &pairs.counts {
        return counted(baseline, arm, true, seed);
    }
    let differences: Vec<f64> =
        pairs.arm.iter().zip(&pairs.baseline).map(|(arm, baseline)| arm - baseline).collect();
    paired(&differences, scale, seed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_of_rates_varies_as_they_do() {
        // Rates of 10 a second over 1 s and of 1 a second over 100 s.
        let sums = Sums {
            plain: [11.0, 0.0],
            inverse: [Some(1.01), Some(1.01)],
            variance: [10.01, 0.0],
            points: 2.0,
            ..Sums::default()
        };
        let [some, none] = [0, 1].map(|side| sums.count(side).unwrap());
        assert!((some.events / some.over - 5.5).abs() < 1e-12);
        assert!((some.events / some.over.powi(2) - 10.01 / 4.0).abs() < 1e-12);
        assert!((none.over - 4.0 / 1.01).abs() < 1e-12 && none.events == 0.0);
    }
}
