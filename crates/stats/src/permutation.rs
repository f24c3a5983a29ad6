//! Permutation tests. They make no assumption about the distribution of the noise.
//!
//! If the arms do not differ, their labels are arbitrary. A dealing is one way to assign the labels to the values. The p
//! value is the share of dealings whose statistic is at least as far from 0 as the observed one (Fisher, "The Design of
//! Experiments", 1935, section 21). If there are at most [`DEALINGS`], all are tried. Otherwise that many are drawn at
//! random, and the observed one is added, so that a p value is never 0 (Phipson and Smyth, "Permutation P-values Should
//! Never Be Zero", 2010,
//! <https://doi.org/10.2202/1544-6115.1585>).

use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

/// The significance level: a p value below this counts as a difference.
pub const LEVEL: f64 = 0.05;

/// The maximum number of dealings to try exhaustively, and the number to draw at random if there are more.
pub const DEALINGS: u64 = 20_000;

/// The relative tolerance of comparisons: rounding must not make a dealing look less extreme than its mirror image.
const TOLERANCE: f64 = 1e-12;

/// Values of two sides that share no blocks.
#[derive(Debug, Clone, Copy)]
pub struct Labels<'a> {
    /// The values of one side.
    pub before: &'a [f64],
    /// The values of the other side.
    pub after: &'a [f64],
}

/// The two-sided p value for "the mean of these differences is 0", by flipping signs: exchanging the labels of a block
/// flips the sign of the block's difference.
///
/// `None` if there are too few dealings for a p value below [`LEVEL`]: with fewer than six differences. `seed` is used to
/// draw dealings if there are too many to try all.
#[must_use]
pub fn signs_p_value(differences: &[f64], seed: u64) -> Option<f64> {
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

/// The two-sided p value for "both sides have the same mean", by assigning all values to the sides anew.
///
/// The statistic is the difference of the means divided by its standard error, which keeps the test valid if the sides
/// scatter differently (Janssen, "Studentized permutation tests for non-i.i.d. hypotheses", Statistics and Probability
/// Letters 36, 1997).
///
/// That does not suffice for small sides (`tests/coverage.rs`). At the level of 5 %, there are false alarms in 8 of 100
/// cases with 5 values a side if one side scatters four times as much, in 7 with 10 a side, and in 14 with 3 values against
/// 10 if the 3 scatter more.
///
/// `None` if there are too few dealings for a p value below [`LEVEL`] (three values a side), or if a side has fewer than
/// two values. `seed` is used to draw dealings if there are too many to try all.
#[must_use]
pub fn labels_p_value(labels: Labels<'_>, seed: u64) -> Option<f64> {
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
        // If sums overflow, all comparisons with NaN are false. The observed dealing is always one of the extreme ones.
        extreme.max(1) as f64 / all as f64
    } else {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut dealt = values;
        drawn(|| {
            // A partial Fisher-Yates shuffle: only the values of the first side matter.
            for at in 0..first {
                let other = random.random_range(at..dealt.len());
                dealt.swap(at, other);
            }
            studentized(&dealt[..first], &dealt[first..]) >= seen
        })
    })
}

/// The ways to call two of four runs "on"; bit n stands for run n.
const OF_FOUR: [u8; 6] = [0b0011, 0b0101, 0b1001, 0b0110, 0b1010, 0b1100];

/// The two-sided p value for "the arms do not differ", over blocks of four runs, the first two of which are the arm's, by
/// permuting the labels within each block.
///
/// It is at least 2/36 with two blocks and 2/216 with three, because the mirror image of a dealing is equally extreme.
/// `None` without blocks or with a value that is not finite. `seed` is used to draw dealings if there are too many to try
/// all.
#[must_use]
pub fn blocks_p_value(blocks: &[[f64; 4]], seed: u64) -> Option<f64> {
    if blocks.is_empty() || !blocks.iter().flatten().all(|value| value.is_finite()) {
        return None;
    }
    let seen = dealt_mean(blocks, |_| OF_FOUR[0]).abs() - TOLERANCE;
    let exact = u32::try_from(blocks.len())
        .ok()
        .and_then(|count| (OF_FOUR.len() as u64).checked_pow(count))
        .filter(|&all| all <= DEALINGS);
    Some(match exact {
        Some(all) => {
            let extreme = (0..all).filter(|&dealing| {
                let digit = |block: usize| OF_FOUR[(dealing / 6_u64.pow(block as u32) % 6) as usize];
                dealt_mean(blocks, digit).abs() >= seen
            });
            extreme.count() as f64 / all as f64
        }
        None => {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            drawn(|| dealt_mean(blocks, |_| OF_FOUR[random.random_range(0..OF_FOUR.len())]).abs() >= seen)
        }
    })
}

/// The mean over the blocks of the sum of the runs labelled "on" minus the sum of the others.
fn dealt_mean(blocks: &[[f64; 4]], mut dealing: impl FnMut(usize) -> u8) -> f64 {
    let sum: f64 = blocks
        .iter()
        .enumerate()
        .map(|(index, runs)| {
            let on = dealing(index);
            let signed = |run: usize| if on & (1 << run) == 0 { -runs[run] } else { runs[run] };
            (0..4).map(signed).sum::<f64>()
        })
        .sum();
    sum / blocks.len() as f64
}

/// Tests whether there are enough dealings for a p value below [`LEVEL`]: the most extreme one and its mirror image count.
fn can_be_small(all: u64) -> bool {
    2.0 / (all as f64) < LEVEL
}

/// The p value from dealings drawn at random.
fn drawn(mut is_extreme: impl FnMut() -> bool) -> f64 {
    let extreme = (0..DEALINGS).filter(|_| is_extreme()).count();
    (extreme + 1) as f64 / (DEALINGS + 1) as f64
}

/// The absolute difference of the means, divided by its standard error.
fn studentized(before: &[f64], after: &[f64]) -> f64 {
    let moments = |values: &[f64]| {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        (mean, squares / (count - 1.0) / count)
    };
    let ((first, of_first), (second, of_second)) = (moments(before), moments(after));
    let (distance, error) = ((second - first).abs(), (of_first + of_second).sqrt());
    // Without scatter the standard error is 0: any distance is extreme, and no distance is 0.
    if distance <= TOLERANCE * (first.abs() + second.abs()) {
        0.0
    } else {
        distance / error.max(f64::MIN_POSITIVE)
    }
}

/// The binomial coefficient "`all` choose `few`"; `u64::MAX` if it overflows.
fn choices(all: u64, few: u64) -> u64 {
    (0..few.min(all - few))
        .try_fold(1_u64, |count, at| Some(count.checked_mul(all - at)? / (at + 1)))
        .unwrap_or(u64::MAX)
}

/// Calls `seen` with every assignment of `values` to two sides, the first of which gets `first` values.
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
        // Two of all 48,620 dealings are as extreme, so a few of those drawn may be.
        let found = labels_p_value(Labels { before: &before, after: &after }, 3).unwrap();
        assert!((1.0 / 20_001.0..6.0 / 20_001.0).contains(&found), "{found}");
        assert_eq!((choices(18, 9), choices(400, 200)), (48_620, u64::MAX));
    }

    fn blocks_of(count: u32, off: f64, on: f64) -> Vec<[f64; 4]> {
        let wobble = |block: u32| 1.0 + f64::from(block) / 1000.0;
        let of = |block| [on, on * wobble(block), off * wobble(block), off].map(f64::ln);
        (0..count).map(of).collect()
    }

    #[test]
    fn a_clear_difference_of_blocks_has_the_smallest_p_value_there_is() {
        for (blocks, expected) in [(1, 2.0 / 6.0), (2, 2.0 / 36.0), (3, 2.0 / 216.0)] {
            let found = blocks_p_value(&blocks_of(blocks, 100.0, 50.0), 0).unwrap();
            assert!((found - expected).abs() < 1e-12, "{found}");
        }
        assert_eq!(blocks_p_value(&blocks_of(1, 100.0, 100.0), 0), Some(1.0));
    }

    #[test]
    fn many_blocks_are_drawn_and_never_give_zero() {
        assert_eq!(blocks_p_value(&blocks_of(12, 100.0, 50.0), 7), Some(1.0 / 20_001.0));
    }

    #[test]
    fn without_blocks_or_with_no_number_there_is_no_p_value() {
        assert_eq!(blocks_p_value(&[], 0), None);
        assert_eq!(blocks_p_value(&[[f64::NEG_INFINITY, 1.0, 1.0, 1.0]], 0), None);
    }

    proptest! {
        #[test]
        fn blocks_do_not_care_which_arm_is_which(
            blocks in prop::collection::vec(prop::array::uniform4(0.0..9.0_f64), 1..5), seed: u64,
        ) {
            let swapped: Vec<[f64; 4]> = blocks.iter().map(|&[a, b, c, d]| [c, d, a, b]).collect();
            let p = blocks_p_value(&blocks, seed).unwrap();
            prop_assert!(p > 0.0 && p <= 1.0);
            prop_assert!((p - blocks_p_value(&swapped, seed).unwrap()).abs() < 1e-9);
        }

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
