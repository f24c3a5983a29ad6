//! Timed runs as pairs of neighbours, one of each arm.

use std::collections::BTreeMap;

use probe::run::{Arm, Run};
use stats::quantile;

use super::TimedRun;
use super::difference::Pair;
use super::plan::RUNS_PER_BLOCK;

/// The statistic that represents a run.
#[derive(Debug, Clone, Copy)]
pub(super) enum Statistic {
    Median,
    Mean,
    P99,
}

impl Statistic {
    /// The statistic in cycles; `None` for a run without samples.
    pub(super) fn of(self, run: &Run) -> Option<f64> {
        let at = |fraction| {
            let mut sorted = run.cycles.clone();
            sorted.sort_unstable();
            quantile(&sorted, fraction)
        };
        match self {
            Self::Median => at(0.5),
            Self::P99 => at(0.99),
            Self::Mean if run.cycles.is_empty() => None,
            Self::Mean => {
                let sum: u128 = run.cycles.iter().map(|&cycles| u128::from(cycles)).sum();
                Some(sum as f64 / run.cycles.len() as f64)
            }
        }
    }
}

/// The pairs of the complete blocks, and the incomplete blocks.
pub(super) struct Pairing {
    pub(super) pairs: Vec<Pair>,
    pub(super) broken: Vec<u32>,
}

/// Pairs the first run of each block with the second, and the fourth with the third.
///
/// A block that lacks a run gives no pair: with only one pair of a block a drift would not cancel.
pub(super) fn pair<'a>(runs: impl Iterator<Item = &'a TimedRun>, statistic: Statistic) -> Pairing {
    let mut blocks: BTreeMap<u32, Vec<&TimedRun>> = BTreeMap::new();
    for timed in runs {
        blocks.entry(timed.block).or_default().push(timed);
    }
    let mut pairing = Pairing { pairs: Vec::new(), broken: Vec::new() };
    for (block, mut runs) in blocks {
        runs.sort_by_key(|timed| timed.position);
        match pairs_of(block, &runs, statistic) {
            Some(pairs) => pairing.pairs.extend(pairs),
            None => pairing.broken.push(block),
        }
    }
    pairing
}

fn pairs_of(block: u32, runs: &[&TimedRun], statistic: Statistic) -> Option<[Pair; 2]> {
    if runs.len() != RUNS_PER_BLOCK as usize {
        return None;
    }
    let pair = |one: usize, other: usize| {
        let [one, other] = [one, other].map(|index| &runs[index].run);
        let (off, on) = match (one.arm, other.arm) {
            (Arm::Off, Arm::On) => (one, other),
            (Arm::On, Arm::Off) => (other, one),
            _ => return None,
        };
        Some(Pair { block, off: statistic.of(off)?, on: statistic.of(on)? })
    };
    Some([pair(0, 1)?, pair(3, 2)?])
}

#[cfg(test)]
mod tests {
    use probe::measure::Measure;

    use super::*;

    fn runs(arms: &[Arm]) -> Vec<TimedRun> {
        arms.iter()
            .zip(0..)
            .map(|(&arm, position)| TimedRun {
                position,
                block: position / 4,
                began_us: 0,
                took_us: 0,
                run: Run {
                    measure: Measure::Eoi,
                    arm,
                    target: None,
                    warm_up: 0,
                    cycles: vec![u64::from(position) + 1; 3],
                    statistics: BTreeMap::new(),
                },
            })
            .collect()
    }

    #[test]
    fn neighbours_are_paired_and_a_half_block_is_named() {
        use Arm::{Off, On};
        let runs = runs(&[Off, On, On, Off, Off, On]);
        let found = pair(runs.iter(), Statistic::Median);
        assert_eq!(found.pairs, [Pair { block: 0, off: 1.0, on: 2.0 }, Pair { block: 0, off: 4.0, on: 3.0 }]);
        assert_eq!(found.broken, [1]);
    }

    #[test]
    fn the_order_in_the_file_does_not_matter() {
        use Arm::{Off, On};
        let mut shuffled = runs(&[Off, On, On, Off]);
        shuffled.reverse();
        let found = pair(shuffled.iter(), Statistic::Mean);
        assert_eq!(found.pairs[0], Pair { block: 0, off: 1.0, on: 2.0 });
        assert!(found.broken.is_empty());
    }
}
