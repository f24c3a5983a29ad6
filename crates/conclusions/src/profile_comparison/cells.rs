//! A recording divided into cells of equal time, and the exits in each cell.

use stats::blocks::BLOCKS;

use exits::{Slice, Span};

/// The maximum number of cells of a recording. The width of cells is doubled until there are no more.
const MOST_CELLS: u64 = 2048;

/// The cells from the first event of a recording to its last. The first and the last cell were only observed partly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Grid {
    width_ns: u64,
    first: u64,
    /// The observed time of each cell, in nanoseconds.
    pub(super) observed_ns: Vec<u64>,
}

impl Grid {
    /// Cells of width `width_ns`, a power of two, or wider if there would be too many. `None` for a span of
    /// zero length.
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

    /// Adds slices of a timeline that begins at `start_ns`. Slices outside the grid are added to the first or last cell. If
    /// not `timed`, handling times are ignored, because the guest sleeps in these exits.
    pub(super) fn add(&self, cells: &mut Cells, start_ns: u64, width_ns: u64, slices: &[Slice], timed: bool) {
        let last = self.len() - 1;
        for sums in [&mut cells.counts, &mut cells.timed, &mut cells.handling_ns] {
            sums.resize(self.len(), 0.0);
        }
        for (at, slice) in (0_u64..).zip(slices) {
            let time_ns = start_ns.saturating_add(at.saturating_mul(width_ns));
            let cell = (time_ns / self.width_ns).saturating_sub(self.first);
            let cell = usize::try_from(cell).map_or(last, |cell| cell.min(last));
            cells.counts[cell] += slice.count as f64;
            if timed {
                cells.timed[cell] += slice.count as f64;
                cells.handling_ns[cell] += slice.handling_ns as f64;
            }
        }
    }
}

/// The exits of one kind by cell; empty if there are none.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Cells {
    pub(super) counts: Vec<f64>,
    /// The exits with a handling time.
    pub(super) timed: Vec<f64>,
    pub(super) handling_ns: Vec<f64>,
}

/// The sums over each tenth of `cells`. A tenth is as long as a block of the bootstrap.
pub(super) fn tenths(cells: &[f64]) -> [f64; BLOCKS] {
    let edge = |part: usize| part * cells.len() / BLOCKS;
    std::array::from_fn(|part| cells[edge(part)..edge(part + 1)].iter().sum())
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
        grid.add(&mut cells, WIDTH, WIDTH, &slices, true);
        grid.add(&mut cells, WIDTH, WIDTH, &slices[..2], false);
        // The last slice is beyond the recording's end.
        assert_eq!((cells.counts, cells.timed), (vec![2.0, 16.0], vec![1.0, 14.0]));
        assert_eq!(cells.handling_ns, [10.0, 140.0]);
    }

    #[test]
    fn every_cell_is_in_one_tenth() {
        let cells: Vec<f64> = (0..25).map(f64::from).collect();
        assert_eq!(tenths(&cells).iter().sum::<f64>(), 300.0);
        assert_eq!(tenths(&cells)[9], 22.0 + 23.0 + 24.0);
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
