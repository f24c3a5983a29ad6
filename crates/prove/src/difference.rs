//! The relative difference of the arms, and its interval.
//!
//! Runs are made in blocks of Off, On, On, Off. Each block holds two pairs of neighbours (1 and 2, 4 and 3), and each pair
//! gives one logarithm of a ratio, on over off. The difference is the mean of those logarithms, and the interval is
//! Student's t interval of that mean, both converted back to a ratio.
//!
//! - A drift that is linear in time enters the two pairs of a block with opposite signs: it cancels in the mean
//!   and can only widen the interval.
//! - Ratios, because costs differ by factors; logarithms, so that swapping the arms only changes the sign.
//! - Neighbours, because what two runs next to each other share cancels.
//!
//! The method was chosen by the simulation in `coverage_tests.rs`. Each row is 300 experiments with a true difference of
//! -30 % and run effects of 5 %. The figures are the share of intervals that contain the true difference, and in brackets
//! their median width in percentage points:
//!
//! | scenario | blocks | pairs, t (chosen) | whole blocks, t | percentile bootstrap |
//! |---|---|---|---|---|
//! | independent runs | 2 | 95 % (15) | 95 % (49) | 83 % (9) |
//! | | 4 | 96 % (9) | 95 % (11) | 96 % (8) |
//! | | 8 | 97 % (6) | 96 % (6) | 96 % (6) |
//! | one arm four times noisier | 2 | 96 % (17) | 95 % (52) | 85 % (11) |
//! | heavy tails (t, 3 degrees) | 2 | 96 % (21) | 97 % (72) | 85 % (12) |
//! | blocks differ, drift of 10 % | 2 | 95 % (16) | 95 % (49) | 85 % (10) |
//! | random walk of 5 % a run | 2 | 95 % (13) | 95 % (42) | 90 % (9) |
//! | the arms differ by block (5 %) | 2 | 95 % (18) | 97 % (68) | 81 % (11) |
//! | | 8 | 91 % (7) | 95 % (8) | 97 % (7) |
//!
//! The percentile bootstrap (Davison and Hinkley, "Bootstrap Methods and their Application", 1997, section 5.3)
//! underestimates the tails if there are few runs, so its intervals are too narrow. Student's t with whole blocks as
//! replicates has the right coverage too, but with two blocks the interval is three times wider than necessary. Its only
//! advantage is in the last scenario, in which the errors of a block's two pairs are correlated: there the interval of the
//! chosen method is too narrow.

use std::collections::BTreeMap;

use serde::Serialize;
use stats::student::Moments;
use stats::{Interval, percent, permutation};

/// The minimum number of pairs for an interval: four runs in each arm.
pub const MINIMUM_PAIRS: usize = 4;

/// Two neighbouring runs of the same block, one of each arm, reduced to one number each (for example their
/// medians).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pair {
    /// The block that both runs belong to.
    pub block: u32,
    /// The value with interrupt virtualization off.
    pub off: f64,
    /// The value with interrupt virtualization on.
    pub on: f64,
}

/// The change from off to on in percent of off: -71 means 71 % less.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Difference {
    /// The point estimate.
    pub percent: f64,
    /// The 95 % interval, in percent of off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<Interval>,
    /// The reason why there is no interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_interval: Option<NoInterval>,
    /// The number of pairs of runs.
    pub pairs: usize,
}

/// The reason why a difference has no interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub enum NoInterval {
    /// There are fewer than [`MINIMUM_PAIRS`] pairs.
    #[error("fewer than {MINIMUM_PAIRS} runs an arm")]
    TooFewRuns,
}

/// The relative difference of `pairs`.
///
/// `None` if there are no pairs, or if a value is not positive, so that there is no meaningful ratio.
pub fn difference(pairs: &[Pair]) -> Option<Difference> {
    if pairs.is_empty() || pairs.iter().any(|pair| !is_positive(pair.off) || !is_positive(pair.on)) {
        return None;
    }
    let ratios: Vec<f64> = pairs.iter().map(|pair| (pair.on / pair.off).ln()).collect();
    let moments = Moments::of(&ratios)?;
    let interval =
        moments.interval().filter(|_| ratios.len() >= MINIMUM_PAIRS).map(|found| found.map(percent));
    let no_interval = interval.is_none().then_some(NoInterval::TooFewRuns);
    Some(Difference { percent: percent(moments.mean), interval, no_interval, pairs: pairs.len() })
}

/// The p value of `pairs`: the share of random reassignments of the arms' labels within the blocks, over
/// blocks of two pairs, that give a difference at least as large ([`permutation::blocks_p_value`]).
///
/// Blocks with another number of pairs are left out. `None` if no block remains or a value is not positive.
pub fn p_value(pairs: &[Pair], seed: u64) -> Option<f64> {
    let mut by_block: BTreeMap<u32, Vec<&Pair>> = BTreeMap::new();
    for pair in pairs {
        by_block.entry(pair.block).or_default().push(pair);
    }
    let blocks: Vec<[f64; 4]> = by_block
        .values()
        .filter_map(|block| match block[..] {
            [first, second] => Some([first.on.ln(), second.on.ln(), first.off.ln(), second.off.ln()]),
            _ => None,
        })
        .collect();
    permutation::blocks_p_value(&blocks, seed)
}

fn is_positive(value: f64) -> bool {
    value.is_finite() && value > 0.0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pairs(values: &[(f64, f64)]) -> Vec<Pair> {
        values.iter().enumerate().map(|(i, &(off, on))| Pair { block: i as u32 / 2, off, on }).collect()
    }

    fn log_ratio(percent: f64) -> f64 {
        (percent / 100.0).ln_1p()
    }

    #[test]
    fn a_known_case_agrees_with_scipy() {
        // scipy.stats.t.ppf(0.975, 3) and the logarithms of the four ratios: 0.480274, 0.504889, 0.530765
        let found = difference(&pairs(&[(100.0, 50.0), (100.0, 52.0), (101.0, 49.0), (99.0, 51.0)])).unwrap();
        let interval = found.interval.unwrap();
        for (found, expected) in
            [(interval.low, -51.9726), (found.percent, -49.5111), (interval.high, -46.9235)]
        {
            assert!((found - expected).abs() < 1e-3, "{found} instead of {expected}");
        }
    }

    #[test]
    fn three_pairs_give_a_difference_without_an_interval() {
        let found = difference(&pairs(&[(100.0, 50.0); 3])).unwrap();
        assert!((found.percent - -50.0).abs() < 1e-9);
        assert_eq!((found.interval, found.no_interval), (None, Some(NoInterval::TooFewRuns)));
    }

    #[test]
    fn a_linear_drift_leaves_the_estimate_alone() {
        let drift = |position: i32| 1.1_f64.powi(position);
        let blocks: Vec<(f64, f64)> = (0..4)
            .flat_map(|block| {
                let at = |slot: i32| drift(4 * block + slot);
                [(100.0 * at(0), 50.0 * at(1)), (100.0 * at(3), 50.0 * at(2))]
            })
            .collect();
        let found = difference(&pairs(&blocks)).unwrap();
        assert!((found.percent - -50.0).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn a_value_of_nothing_gives_nothing() {
        assert_eq!(difference(&pairs(&[(0.0, 5.0); 4])), None);
        assert_eq!(difference(&pairs(&[(5.0, f64::NAN); 4])), None);
        assert_eq!(difference(&[]), None);
    }

    fn some_pairs() -> impl Strategy<Value = Vec<Pair>> {
        prop::collection::vec((1.0..1e6_f64, 1.0..1e6_f64), 4..40).prop_map(|values| pairs(&values))
    }

    #[test]
    fn half_a_block_takes_no_part_in_the_p_value() {
        let mut pairs = pairs(&[(100.0, 50.0), (101.0, 50.0), (100.0, 50.0), (100.0, 51.0)]);
        assert!((p_value(&pairs, 0).unwrap() - 2.0 / 36.0).abs() < 1e-12);
        pairs.pop();
        assert!((p_value(&pairs, 0).unwrap() - 2.0 / 6.0).abs() < 1e-12);
        assert_eq!((p_value(&[], 0), p_value(&[Pair { block: 0, off: 0.0, on: 1.0 }; 2], 0)), (None, None));
    }

    proptest! {
        #[test]
        fn the_interval_holds_its_estimate(pairs in some_pairs()) {
            let found = difference(&pairs).unwrap();
            let interval = found.interval.unwrap();
            prop_assert!(interval.low <= found.percent && found.percent <= interval.high);
        }

        #[test]
        fn swapping_the_arms_changes_only_the_sign_of_the_logarithm(pairs in some_pairs()) {
            let swapped: Vec<Pair> =
                pairs.iter().map(|pair| Pair { off: pair.on, on: pair.off, ..*pair }).collect();
            let (there, back) = (difference(&pairs).unwrap(), difference(&swapped).unwrap());
            prop_assert!((log_ratio(there.percent) + log_ratio(back.percent)).abs() < 1e-6);
            let (there, back) = (there.interval.unwrap(), back.interval.unwrap());
            prop_assert!((log_ratio(there.low) + log_ratio(back.high)).abs() < 1e-6);
        }

        #[test]
        fn constant_runs_give_an_interval_without_width(
            off in 1.0..1e6_f64, on in 1.0..1e6_f64, count in 4..20_usize,
        ) {
            let found = difference(&pairs(&vec![(off, on); count])).unwrap();
            let interval = found.interval.unwrap();
            let tolerance = 1e-9 * (100.0 + found.percent.abs());
            prop_assert!(interval.high - interval.low < tolerance);
        }

        #[test]
        fn a_change_of_unit_changes_nothing(pairs in some_pairs(), unit in 1e-3..1e3_f64) {
            let scaled: Vec<Pair> = pairs
                .iter()
                .map(|pair| Pair { off: pair.off * unit, on: pair.on * unit, ..*pair })
                .collect();
            let (before, after) = (difference(&pairs).unwrap(), difference(&scaled).unwrap());
            prop_assert!((log_ratio(before.percent) - log_ratio(after.percent)).abs() < 1e-9);
        }
    }
}
