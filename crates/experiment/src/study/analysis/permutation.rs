//! p values by dealing the arms' names again.
//!
//! If the arms did not differ, which value of a block is called the arm's would be arbitrary, so each block's difference
//! could as well have the other sign. The p value is the share of all such dealings whose mean is at least as far from 0
//! as the one seen (Fisher, "The Design of Experiments", 1935, section 21). It is at least 2 over their number; where
//! that number is too small to come below [`LEVEL`], there is none.

use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

use super::change::LEVEL;

/// Up to this many dealings all are tried; above, this many are drawn at random.
const DEALINGS: u64 = 20_000;

/// Rounding must not make a dealing look smaller than its mirror image: this share of the sum of all differences.
const TOLERANCE: f64 = 1e-12;

/// Values of two sides that share no blocks.
#[derive(Clone, Copy)]
pub(super) struct Labels<'a> {
    pub(super) before: &'a [f64],
    pub(super) after: &'a [f64],
}

/// The two-sided p value for "the mean of these differences is 0", by turning their signs.
pub(super) fn signs_p_value(differences: &[f64], seed: u64) -> Option<f64> {
    let all = 1_u64.checked_shl(u32::try_from(differences.len()).ok()?).unwrap_or(u64::MAX);
    can_be_small(all).then_some(())?;
    let tolerance = TOLERANCE * differences.iter().map(|difference| difference.abs()).sum::<f64>();
    let seen = differences.iter().sum::<f64>().abs() - tolerance;
    Some(if all <= DEALINGS {
        let extreme =
            (0..all).filter(|signs| turned_sum(differences, |at| signs >> at & 1 == 1).abs() >= seen);
        extreme.count() as f64 / all as f64
    } else {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        drawn(|| turned_sum(differences, |_| random.random_bool(0.5)).abs() >= seen)
    })
}

fn turned_sum(differences: &[f64], mut is_turned: impl FnMut(usize) -> bool) -> f64 {
    differences.iter().enumerate().map(|(at, value)| if is_turned(at) { -value } else { *value }).sum()
}

/// The two-sided p value for "both sides are alike", by dealing all values to the sides again.
///
/// What is compared is the difference of the means over its standard error, so that sides of unlike scatter do no harm
/// (Janssen, "Studentized permutation tests for non-i.i.d. hypotheses", Statistics and Probability Letters 36, 1997).
pub(super) fn labels_p_value(labels: Labels<'_>, seed: u64) -> Option<f64> {
    let values: Vec<f64> = labels.before.iter().chain(labels.after).copied().collect();
    let first = labels.before.len();
    let all = choices(values.len() as u64, first as u64);
    can_be_small(all).then_some(())?;
    if first < 2 || labels.after.len() < 2 {
        return None;
    }
    let seen = studentized(labels.before, labels.after) * (1.0 - TOLERANCE);
    Some(if all <= DEALINGS {
        let mut extreme = 0_u64;
        each_choice(&values, first, &mut |before, after| {
            extreme += u64::from(studentized(before, after) >= seen);
        });
        // Values so large that their sums overflow compare with nothing; what was seen is one of the dealings.
        extreme.max(1) as f64 / all as f64
    } else {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut dealt = values;
        drawn(|| {
            // The first places of a shuffle are enough.
            for at in 0..first {
                let other = random.random_range(at..dealt.len());
                dealt.swap(at, other);
            }
            studentized(&dealt[..first], &dealt[first..]) >= seen
        })
    })
}

/// Whether the most extreme dealing and its mirror image alone are rare enough.
fn can_be_small(all: u64) -> bool {
    2.0 / (all as f64) < LEVEL
}

/// The share of extreme ones among dealings drawn at random, never 0 (Phipson and Smyth, "Permutation P-values Should
/// Never Be Zero", 2010, <https://doi.org/10.2202/1544-6115.1585>).
fn drawn(mut is_extreme: impl FnMut() -> bool) -> f64 {
    let extreme = (0..DEALINGS).filter(|_| is_extreme()).count();
    (extreme + 1) as f64 / (DEALINGS + 1) as f64
}

/// The difference of means over its standard error, without its sign.
fn studentized(before: &[f64], after: &[f64]) -> f64 {
    let moments = |values: &[f64]| {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        (mean, squares / (count - 1.0) / count)
    };
    let ((first, of_first), (second, of_second)) = (moments(before), moments(after));
    let (distance, error) = ((second - first).abs(), (of_first + of_second).sqrt());
    // Without any scatter every distance is infinitely many standard errors, and none is no distance.
    if distance <= TOLERANCE * (first.abs() + second.abs()) {
        0.0
    } else {
        distance / error.max(f64::MIN_POSITIVE)
    }
}

/// How many ways there are to choose `few` of `all`; the largest number where there are more.
fn choices(all: u64, few: u64) -> u64 {
    (0..few.min(all - few))
        .try_fold(1_u64, |count, at| Some(count.checked_mul(all - at)? / (at + 1)))
        .unwrap_or(u64::MAX)
}

/// Calls `seen` with every way to deal `values` to two sides, the first of which gets `first`.
fn each_choice(values: &[f64], first: usize, seen: &mut dyn FnMut(&[f64], &[f64])) {
    fn deal(
        values: &[f64],
        sides: &mut [Vec<f64>; 2],
        room: [usize; 2],
        seen: &mut dyn FnMut(&[f64], &[f64]),
    ) {
        let Some((value, rest)) = values.split_first() else { return seen(&sides[0], &sides[1]) };
        for side in [0, 1] {
            if room[side] > 0 {
                let mut room = room;
                room[side] -= 1;
                sides[side].push(*value);
                deal(rest, sides, room, seen);
                sides[side].pop();
            }
        }
    }
    deal(values, &mut [Vec::new(), Vec::new()], [first, values.len() - first], seen);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn darwins_maize_gives_fishers_own_count() {
        // Fisher, "The Design of Experiments", section 21: heights of 15 pairs of plants, crossed less self-fertilized,
        // in eighths of an inch; 863 of 32768 dealings sum to 314 or more, and as many to -314 or less.
        let differences =
            [49.0, -67.0, 8.0, 16.0, 6.0, 23.0, 28.0, 41.0, 14.0, 29.0, 56.0, 24.0, 75.0, 60.0, -48.0];
        assert_eq!(differences.iter().sum::<f64>(), 314.0);
        let drawn = signs_p_value(&differences, 1).unwrap();
        assert!((drawn - 1726.0 / 32768.0).abs() < 0.005, "{drawn}");
        // Without the second and the last pair all dealings are tried.
        let fewer: Vec<f64> = differences.iter().copied().filter(|difference| *difference > 0.0).collect();
        assert_eq!(signs_p_value(&fewer, 1), Some(2.0 / 8192.0));
    }

    #[test]
    fn too_few_dealings_are_no_test() {
        assert_eq!(signs_p_value(&[1.0; 5], 0), None);
        assert_eq!(signs_p_value(&[1.0; 6], 0), Some(2.0 / 64.0));
        assert_eq!(labels_p_value(Labels { before: &[1.0, 2.0, 3.0], after: &[7.0, 8.0, 9.0] }, 0), None);
        let labels = Labels { before: &[1.0, 2.0, 3.0, 4.0], after: &[7.0, 8.0, 9.0, 9.5] };
        assert_eq!(labels_p_value(labels, 0), Some(2.0 / 70.0));
    }

    #[test]
    fn nothing_but_equal_values_is_no_difference() {
        assert_eq!(signs_p_value(&[0.0; 8], 0), Some(1.0));
        assert_eq!(labels_p_value(Labels { before: &[5.0; 4], after: &[5.0; 4] }, 0), Some(1.0));
    }

    #[test]
    fn many_dealings_are_drawn_and_never_give_zero() {
        assert_eq!(signs_p_value(&[1.0; 40], 3), Some(1.0 / 20_001.0));
        let (before, after) =
            ([1.0, 1.1, 0.9, 1.05, 0.95, 1.0, 1.1, 0.9, 1.0], [9.0, 9.1, 8.9, 9.05, 9.2, 9.0, 9.1, 8.8, 9.3]);
        // Of all 48,620 dealings two are as extreme, so some of those drawn may be.
        let found = labels_p_value(Labels { before: &before, after: &after }, 3).unwrap();
        assert!((1.0 / 20_001.0..6.0 / 20_001.0).contains(&found), "{found}");
        assert_eq!((choices(18, 9), choices(400, 200)), (48_620, u64::MAX));
    }

    proptest! {
        #[test]
        fn it_is_a_share_and_does_not_care_which_side_is_which(
            before in prop::collection::vec(-1e3..1e3_f64, 4..8),
            after in prop::collection::vec(-1e3..1e3_f64, 4..8),
            seed: u64,
        ) {
            let there = labels_p_value(Labels { before: &before, after: &after }, seed).unwrap();
            let back = labels_p_value(Labels { before: &after, after: &before }, seed).unwrap();
            prop_assert!(there > 0.0 && there <= 1.0);
            prop_assert!((there - back).abs() < 1e-9, "{} and {}", there, back);
        }

        #[test]
        fn turning_all_signs_changes_nothing(values in prop::collection::vec(-1e3..1e3_f64, 6..14), seed: u64) {
            let turned: Vec<f64> = values.iter().map(|value| -value).collect();
            let p = signs_p_value(&values, seed).unwrap();
            prop_assert!(p > 0.0 && p <= 1.0);
            prop_assert!((p - signs_p_value(&turned, seed).unwrap()).abs() < 1e-9);
        }
    }
}
