//! The block bootstrap: what figures a recording might have given, had its time been dealt differently.
//!
//! A recording is a row of cells of time, each with a count or a sum: of exits, or of the time they took. Exits come in bursts, so neighbouring cells of time are alike, and intervals that take each exit, or each cell,
//! for an independent one are far too narrow. Blocks of neighbouring cells keep what is alike together: they are
//! drawn with replacement until they are as long as the recording (the circular block bootstrap: Politis and
//! Romano, "A circular block-resampling procedure for stationary data", 1992, in LePage and Billard, "Exploring the
//! Limits of Bootstrap").
//!
//! A block is a tenth of the recording. Ten blocks know little of the tails of their distribution, so the interval
//! between the percentiles is stretched as Student's quantile is wider than the normal one, and by sqrt(10/9), as
//! the variance of ten means about their own mean is too small by that. Overlapping blocks have 1.5 times the
//! degrees of freedom of as many separate ones (Meketon and Schmeiser, "Overlapping batch means: something for
//! nothing?", Winter Simulation Conference 1984).
//!
//! A simulation chose the length: the share of intervals of a rate ratio that hold the truth, of 400 with 1000
//! cells a side, and in brackets their median width (of the logarithm):
//!
//! | exits | Poisson | blocks of n^(1/3) cells | of n/20 | of n/10, as here |
//! |---|---|---|---|---|
//! | independent, 0.1 a cell | 96 % (0.55) | 96 % (0.55) | 96 % (0.57) | 96 % (0.60) |
//! | in clumps of 20 | 32 % (0.18) | 95 % (0.81) | 96 % (0.84) | 97 % (0.87) |
//! | on for 5 cells, off for 20 | 14 % (0.08) | 88 % (0.79) | 94 % (1.00) | 96 % (1.06) |
//! | on for 20 cells, off for 60 | 8 % (0.08) | 72 % (0.90) | 92 % (1.58) | 94 % (1.81) |
//! | a rate that drifts (AR(1), 0.9) | 12 % (0.04) | 80 % (0.24) | 93 % (0.36) | 94 % (0.40) |
//! | one that drifts slowly (0.98) | 8 % (0.04) | 42 % (0.26) | 74 % (0.52) | 86 % (0.67) |
//!
//! Lengths chosen from the data (Politis and White, 2004) did no better than n/20. What changes over times as long
//! as a tenth of the recording, no method can tell from that recording alone.

use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

use crate::{Interval, TAIL, normal, quantile, student};

/// A recording is drawn in so many blocks.
pub const BLOCKS: usize = 10;
/// So often a recording is dealt anew.
pub const RESAMPLES: usize = 2000;
/// Fewer cells than these are too few: a block has two then.
pub const FEWEST_CELLS: usize = 20;

/// The draws of one side, the same for all of its figures: what varies together stays together.
#[derive(Debug)]
pub struct Resampling {
    recordings: Vec<Draws>,
}

#[derive(Debug)]
struct Draws {
    cells: usize,
    block: usize,
    /// The first cells of [`BLOCKS`] blocks for each resample.
    starts: Vec<usize>,
}

impl Resampling {
    /// Draws for recordings of so many cells; `None` where one has too few.
    #[must_use]
    pub fn new(cells: &[usize], seed: u64) -> Option<Self> {
        if cells.is_empty() || cells.iter().any(|&cells| cells < FEWEST_CELLS) {
            return None;
        }
        let recordings = (0..).zip(cells).map(|(number, &cells)| {
            let mut random = ChaCha8Rng::seed_from_u64(seed.wrapping_add(number));
            let starts = (0..RESAMPLES * BLOCKS).map(|_| random.random_range(0..cells)).collect();
            Draws { cells, block: (cells + BLOCKS / 2) / BLOCKS, starts }
        });
        Some(Self { recordings: recordings.collect() })
    }

    /// The sum over the drawn cells, once for each resample. `cells` gives those of one recording; none are zeros.
    #[must_use]
    pub fn sums<'a>(&self, cells: impl Fn(usize) -> &'a [f64]) -> Vec<f64> {
        let mut sums = vec![0.0; RESAMPLES];
        for (number, draws) in self.recordings.iter().enumerate() {
            let cells = cells(number);
            if cells.is_empty() {
                continue;
            }
            let blocks = draws.block_sums(cells);
            for (sum, starts) in sums.iter_mut().zip(draws.starts.chunks_exact(BLOCKS)) {
                *sum += starts.iter().map(|&start| blocks[start]).sum::<f64>();
            }
        }
        sums
    }

    /// Degrees of freedom of a variance over the blocks.
    fn freedom(&self) -> f64 {
        1.5 * (BLOCKS * self.recordings.len() - self.recordings.len()) as f64
    }
}

impl Draws {
    /// The sum of the block that begins at each cell; past the last cell it goes on with the first.
    fn block_sums(&self, cells: &[f64]) -> Vec<f64> {
        // Cells hold whole numbers, so differences of running sums are exact up to 2^53.
        let mut up_to = Vec::with_capacity(self.cells + self.block + 1);
        let mut sum = 0.0;
        up_to.push(sum);
        for cell in cells.iter().cycle().take(self.cells + self.block) {
            sum += cell;
            up_to.push(sum);
        }
        (0..self.cells).map(|start| up_to[start + self.block] - up_to[start]).collect()
    }
}

/// The distance of the truth from the ln(after / before) that was found, given the ratios of the resamples of each
/// side. `None` where too many of these are no number to be of use.
///
/// Both sides draw with the same seed, so equal recordings have equal resamples. Each resample of one side
/// therefore meets its neighbour of the other, and the other way round: exchanging the sides exchanges the ends.
#[must_use]
pub fn offsets(before: (&Resampling, &[f64]), after: (&Resampling, &[f64]), found: f64) -> Option<Interval> {
    let logarithms = |ratios: &[f64]| -> Vec<f64> { ratios.iter().map(|ratio| ratio.ln()).collect() };
    let (a, b) = (logarithms(before.1), logarithms(after.1));
    let next = |index: usize| (index + 1) % RESAMPLES;
    let mut differences: Vec<f64> =
        (0..RESAMPLES).flat_map(|index| [b[index] - a[next(index)], b[next(index)] - a[index]]).collect();
    differences.retain(|difference| difference.is_finite());
    // A resample without exits has no ratio. Where that is likely, the rest are not a fair sample of all.
    if differences.len() < 2 * RESAMPLES * 99 / 100 {
        return None;
    }
    differences.sort_unstable_by(f64::total_cmp);
    let parts = BLOCKS as f64;
    let freedom = before.0.freedom().min(after.0.freedom());
    let stretch = student::quantile(freedom)? / normal::QUANTILE * (parts / (parts - 1.0)).sqrt();
    let low = (quantile(&differences, TAIL)? - found) * stretch;
    let high = (quantile(&differences, 1.0 - TAIL)? - found) * stretch;
    (low.is_finite() && high.is_finite()).then_some(Interval { low: low.min(0.0), high: high.max(0.0) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constant_cells_have_constant_sums() {
        let draws = Resampling::new(&[100, 40], 1).unwrap();
        let (one, two) = (vec![2.0; 100], vec![3.0; 40]);
        let sums = draws.sums(|number| if number == 0 { &one } else { &two });
        assert!(sums.iter().all(|&sum| (sum - 320.0).abs() < 1e-9));
        assert!(Resampling::new(&[100, FEWEST_CELLS - 1], 1).is_none());
    }

    #[test]
    fn a_seed_gives_the_same_draws_and_another_gives_others() {
        let cells: Vec<f64> = (0..50).map(f64::from).collect();
        let sums = |seed| Resampling::new(&[50], seed).unwrap().sums(|_| &cells);
        assert_eq!(sums(3), sums(3));
        assert_ne!(sums(3), sums(4));
    }

    #[test]
    fn equal_sides_are_not_equal_resample_by_resample() {
        let cells: Vec<f64> = (0..100).map(|cell| f64::from(cell % 7 + 1)).collect();
        let draws = Resampling::new(&[100], 3).unwrap();
        let sums = draws.sums(|_| &cells);
        let found = offsets((&draws, &sums), (&draws, &sums), 0.0).unwrap();
        assert!(found.low < -0.01 && found.high > 0.01, "{found:?}");
        assert!((found.low + found.high).abs() < 1e-12, "{found:?}");
    }

    #[test]
    fn resamples_without_exits_give_no_interval() {
        let draws = Resampling::new(&[100], 3).unwrap();
        let mut burst = vec![0.0; 100];
        burst[50] = 1000.0;
        let sums = draws.sums(|_| &burst);
        assert_eq!(offsets((&draws, &sums), (&draws, &sums), 0.0), None);
    }
}
