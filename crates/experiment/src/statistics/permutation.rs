//! A permutation test, as a second opinion that assumes no shape of the noise.
//!
//! If interrupt virtualization did nothing, the names of the arms within a block would be arbitrary. So the names
//! are dealt again within each block, and the p value is the share of dealings whose difference is at least as
//! large as the one seen (Phipson and Smyth, "Permutation P-values Should Never Be Zero", 2010,
//! <https://doi.org/10.2202/1544-6115.1585>). It cannot be smaller than one over the number of dealings: 1/36 with
//! two blocks, 1/216 with three; twice that, as the mirror image of a dealing is as extreme as itself.

use std::collections::BTreeMap;

use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

use super::Pair;

/// Up to this many dealings all are tried; above, this many are drawn at random.
pub const PERMUTATIONS: usize = 20_000;

/// The six ways to call two of four runs "on"; bit n stands for run n.
const DEALINGS: [u8; 6] = [0b0011, 0b0101, 0b1001, 0b0110, 0b1010, 0b1100];

/// Rounding must not make a dealing look smaller than its mirror image.
const TOLERANCE: f64 = 1e-12;

/// The two-sided p value for "the arms do not differ", over blocks of two pairs.
///
/// Blocks with another number of pairs take no part. `None` where no block remains or a value is not positive.
/// `seed` decides the dealings where there are too many to try all.
pub fn permutation_p_value(pairs: &[Pair], seed: u64) -> Option<f64> {
    let blocks = blocks(pairs)?;
    let seen = statistic(&blocks, |_| DEALINGS[0]).abs() - TOLERANCE;
    let exact = u32::try_from(blocks.len())
        .ok()
        .and_then(|count| DEALINGS.len().checked_pow(count))
        .filter(|&all| all <= PERMUTATIONS);
    Some(match exact {
        Some(all) => {
            let extreme = (0..all).filter(|&dealing| {
                let digit = |block: usize| DEALINGS[dealing / DEALINGS.len().pow(block as u32) % 6];
                statistic(&blocks, digit).abs() >= seen
            });
            extreme.count() as f64 / all as f64
        }
        None => {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            let extreme = (0..PERMUTATIONS)
                .filter(|_| {
                    statistic(&blocks, |_| DEALINGS[random.random_range(0..DEALINGS.len())]).abs() >= seen
                })
                .count();
            (extreme + 1) as f64 / (PERMUTATIONS + 1) as f64
        }
    })
}

/// The logarithms of each whole block's four runs, the two of "on" first.
fn blocks(pairs: &[Pair]) -> Option<Vec<[f64; 4]>> {
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
    (!blocks.is_empty() && blocks.iter().flatten().all(|value| value.is_finite())).then_some(blocks)
}

fn statistic(blocks: &[[f64; 4]], mut dealing: impl FnMut(usize) -> u8) -> f64 {
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn blocks_of(count: u32, off: f64, on: f64) -> Vec<Pair> {
        (0..count)
            .flat_map(|block| {
                let wobble = 1.0 + f64::from(block) / 1000.0;
                [Pair { block, off: off * wobble, on }, Pair { block, off, on: on * wobble }]
            })
            .collect()
    }

    #[test]
    fn a_clear_difference_has_the_smallest_p_value_there_is() {
        let found = permutation_p_value(&blocks_of(2, 100.0, 50.0), 0).unwrap();
        assert!((found - 2.0 / 36.0).abs() < 1e-12, "{found}");
        let found = permutation_p_value(&blocks_of(3, 100.0, 50.0), 0).unwrap();
        assert!((found - 2.0 / 216.0).abs() < 1e-12, "{found}");
    }

    #[test]
    fn no_difference_at_all_has_a_p_value_of_one() {
        assert_eq!(permutation_p_value(&blocks_of(1, 100.0, 100.0), 0), Some(1.0));
    }

    #[test]
    fn many_blocks_are_drawn_at_random_and_never_give_zero() {
        let found = permutation_p_value(&blocks_of(12, 100.0, 50.0), 7).unwrap();
        assert_eq!(found, 1.0 / 20_001.0);
    }

    #[test]
    fn half_a_block_takes_no_part() {
        let mut pairs = blocks_of(2, 100.0, 50.0);
        pairs.pop();
        assert!((permutation_p_value(&pairs, 0).unwrap() - 2.0 / 6.0).abs() < 1e-12);
        assert_eq!(permutation_p_value(&[], 0), None);
    }

    proptest! {
        #[test]
        fn it_is_a_share_and_does_not_care_which_arm_is_which(
            values in prop::collection::vec((1.0..1e4_f64, 1.0..1e4_f64), 2..9), seed: u64,
        ) {
            let pairs: Vec<Pair> = values
                .iter()
                .enumerate()
                .map(|(i, &(off, on))| Pair { block: i as u32 / 2, off, on })
                .collect();
            let swapped: Vec<Pair> =
                pairs.iter().map(|pair| Pair { off: pair.on, on: pair.off, ..*pair }).collect();
            let p = permutation_p_value(&pairs, seed).unwrap();
            prop_assert!(p > 0.0 && p <= 1.0);
            prop_assert_eq!(p, permutation_p_value(&pairs, seed).unwrap());
            let back = permutation_p_value(&swapped, seed).unwrap();
            prop_assert!((p - back).abs() < 1e-9, "{} and {}", p, back);
        }
    }
}
