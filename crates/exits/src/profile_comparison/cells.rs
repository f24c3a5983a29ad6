//! The time of a recording in cells of one width, and the exits in each.

use crate::{Slice, Span};

/// No recording has more cells; they double in width rather than pass it.
const MOST_CELLS: u64 = 2048;
/// A recording is looked at in so many parts.
pub(super) const PARTS: usize = 10;

/// The cells from the first event of a recording to its last. The first and the last one are watched for a part of
/// their time only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Grid {
    width_ns: u64,
    first: u64,
    /// How long each was watched, nanoseconds.
    pub(super) observed_ns: Vec<u64>,
}

impl Grid {
    /// Cells as wide as `width_ns`, a power of two, or wider where there would be too many. `None` for a span
    /// without length.
    pub(super) fn new(span: Span, width_ns: u64) -> Option<Self> {
        if span.length_ns() == 0 {
            return None;
        }
        let mut bits = width_ns.max(1).ilog2();
        while (span.last_ns >> bits) - (span.first_ns >> bits) >= MOST_CELLS {
            bits += 1;
        }
        let (first, last) = (span.first_ns >> bits, span.last_ns >> bits);
        let width_ns = 1_u64 << bits;
        let observed_ns = (first..=last).map(|cell| {
            let begin = (cell << bits).max(span.first_ns);
            let end = (cell << bits).saturating_add(width_ns).min(span.last_ns);
            end.saturating_sub(begin)
        });
        Some(Self { width_ns, first, observed_ns: observed_ns.collect() })
    }

    pub(super) fn len(&self) -> usize {
        self.observed_ns.len()
    }

    /// Slices of a timeline that begins at `start_ns` as cells. What lies outside goes to the ends.
    pub(super) fn add(&self, cells: &mut Cells, start_ns: u64, width_ns: u64, slices: &[Slice]) {
        let last = self.len() - 1;
        cells.counts.resize(self.len(), 0.0);
        cells.handling_ns.resize(self.len(), 0.0);
        for (at, slice) in (0_u64..).zip(slices) {
            let time_ns = start_ns.saturating_add(at.saturating_mul(width_ns));
            let cell = (time_ns / self.width_ns).saturating_sub(self.first);
            let cell = usize::try_from(cell).map_or(last, |cell| cell.min(last));
            cells.counts[cell] += slice.count as f64;
            cells.handling_ns[cell] += slice.handling_ns as f64;
        }
    }
}

/// The exits of one kind, cell by cell; empty where there are none.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Cells {
    pub(super) counts: Vec<f64>,
    pub(super) handling_ns: Vec<f64>,
}

/// The sums over each tenth of `cells`.
pub(super) fn tenths(cells: &[f64]) -> [f64; PARTS] {
    let edge = |part: usize| part * cells.len() / PARTS;
    std::array::from_fn(|part| cells[edge(part)..edge(part + 1)].iter().sum())
}

/// How much more the counts of some parts of a recording vary than those of independent exits would: the variance
/// over the mean, by Pearson's chi-squared over its degrees of freedom. Parts that were watched for less than half
/// as long as others say too little. `None` without exits.
pub(super) fn dispersion(counts: &[f64], observed: &[f64]) -> Option<f64> {
    let longest = observed.iter().copied().fold(0.0, f64::max);
    let parts = || counts.iter().zip(observed).filter(|&(_, &observed)| 2.0 * observed >= longest);
    let rate = parts().map(|part| part.0).sum::<f64>() / parts().map(|part| part.1).sum::<f64>();
    if !(rate > 0.0 && rate.is_finite()) {
        return None;
    }
    let chi_squared: f64 =
        parts().map(|(count, observed)| (count - rate * observed).powi(2) / (rate * observed)).sum();
    Some(chi_squared / (parts().count().max(2) - 1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WIDTH: u64 = 1 << 20;

    #[test]
    fn the_ends_are_watched_for_a_part_of_their_time() {
        let grid = Grid::new(Span { first_ns: WIDTH / 2, last_ns: 3 * WIDTH + 5 }, WIDTH).unwrap();
        assert_eq!(grid.observed_ns, [WIDTH / 2, WIDTH, WIDTH, 5]);
        assert_eq!(Grid::new(Span { first_ns: 7, last_ns: 7 }, WIDTH), None);
    }

    #[test]
    fn slices_fall_into_the_cells_of_their_time() {
        let grid = Grid::new(Span { first_ns: 0, last_ns: 4 * WIDTH - 1 }, 2 * WIDTH).unwrap();
        let mut cells = Cells::default();
        let slices = [1, 2, 4, 8].map(|count| Slice { count, handling_ns: 10 * count });
        grid.add(&mut cells, WIDTH, WIDTH, &slices);
        // The last slice lies beyond the recording's end.
        assert_eq!((cells.counts, cells.handling_ns), (vec![1.0, 14.0], vec![10.0, 140.0]));
    }

    #[test]
    fn clumps_are_found() {
        let observed = vec![1.0; 100];
        let even = vec![2.0; 100];
        let clumps: Vec<f64> = (0..100).map(|cell| if cell == 55 { 200.0 } else { 0.0 }).collect();
        for parts in [|cells: &[f64]| cells.to_vec(), |cells: &[f64]| tenths(cells).to_vec()] {
            assert_eq!(dispersion(&parts(&even), &parts(&observed)), Some(0.0));
            assert!(dispersion(&parts(&clumps), &parts(&observed)).unwrap() > 100.0);
            assert_eq!(dispersion(&parts(&[0.0; 100]), &parts(&observed)), None);
        }
        // One exit in the sliver of a cell that a recording ends in is no clump.
        let (mut even, mut observed) = (even, observed);
        even.push(1.0);
        observed.push(1e-6);
        assert_eq!(dispersion(&even, &observed), Some(0.0));
    }

    proptest! {
        #[test]
        fn all_of_a_span_is_watched_once(first in any::<u64>(), last in any::<u64>()) {
            let span = Span { first_ns: first.min(last), last_ns: first.max(last) };
            if let Some(grid) = Grid::new(span, WIDTH) {
                prop_assert!(grid.len() as u64 <= MOST_CELLS);
                let watched: u64 = grid.observed_ns.iter().sum();
                prop_assert_eq!(watched, span.length_ns());
            }
        }
    }
}
