//! The inflight records of a split ring.

use super::Cells;

/// The sizes of the head and of each entry, bytes.
pub(super) const SIZES: (u64, u64) = (16, 16);

/// The version of the layout.
const VERSION: u16 = 1;
/// The offsets of the head's fields.
const VERSION_AT: u64 = 8;
const COUNT_AT: u64 = 10;
const BATCH_AT: u64 = 12;
const USED_AT: u64 = 14;
/// The offsets of an entry's fields.
const INFLIGHT: u64 = 0;
const TRIES: u64 = 1;
const NEXT: u64 = 6;
const COUNTER: u64 = 8;

/// The inflight records of a split ring.
#[derive(Debug)]
pub struct SplitInflight {
    cells: Cells,
    size: u16,
    counter: u64,
    /// The completed requests that the driver does not see yet, the last one first.
    batch: Vec<u16>,
}

impl SplitInflight {
    pub(super) fn new(cells: Cells, size: u16) -> Self {
        let one = Self { cells, size, counter: 0, batch: Vec::new() };
        if one.cells.word(VERSION_AT) == 0 {
            one.cells.set_word(VERSION_AT, VERSION);
            one.cells.set_word(COUNT_AT, size);
        }
        one
    }

    pub(super) fn is_lost(&self) -> bool {
        self.cells.mapping.is_lost()
    }

    fn entry(id: u16, field: u64) -> u64 {
        SIZES.0 + u64::from(id) * SIZES.1 + field
    }

    /// The requests that were in flight when the last back-end ended, in the order in which they were taken. `used` is
    /// the used index that the driver sees.
    pub fn left(&mut self, used: u16) -> Vec<u16> {
        let cells = &self.cells;
        let batch = used.wrapping_sub(cells.word(USED_AT));
        // The last batch was published, and perhaps not all of it was recorded.
        let mut id = cells.word(BATCH_AT);
        for _ in 0..batch.min(self.size) {
            if id >= self.size {
                break;
            }
            cells.set_byte(Self::entry(id, INFLIGHT), 0);
            id = cells.word(Self::entry(id, NEXT));
        }
        cells.set_word(USED_AT, used);
        let mut left: Vec<(u64, u16)> = (0..self.size)
            .filter(|id| cells.byte(Self::entry(*id, INFLIGHT)) == 1)
            .map(|id| (cells.quad(Self::entry(id, COUNTER)), id))
            .collect();
        left.sort_unstable();
        self.counter = left.last().map_or(0, |(counter, _)| counter.wrapping_add(1));
        left.into_iter().map(|(_, id)| id).collect()
    }

    /// Records a request that was taken.
    #[inline]
    pub fn taken(&mut self, id: u16) {
        if id >= self.size {
            return;
        }
        self.cells.set_quad(Self::entry(id, COUNTER), self.counter);
        self.counter = self.counter.wrapping_add(1);
        self.cells.set_byte(Self::entry(id, INFLIGHT), 1);
        self.set_tries(id, 1);
    }

    /// The number of back-ends that ended while they handled a request, in a byte that the layout leaves unused.
    pub fn tries(&self, id: u16) -> u8 {
        if id < self.size { self.cells.byte(Self::entry(id, TRIES)) } else { 0 }
    }

    /// Sets [`Self::tries`].
    #[inline]
    pub(crate) fn set_tries(&mut self, id: u16, tries: u8) {
        if id < self.size {
            self.cells.set_byte(Self::entry(id, TRIES), tries);
        }
    }

    /// Records a completed request that the driver does not see yet.
    #[inline]
    pub fn given(&mut self, id: u16) {
        if id >= self.size {
            return;
        }
        self.cells.set_word(Self::entry(id, NEXT), self.cells.word(BATCH_AT));
        self.cells.set_word(BATCH_AT, id);
        self.batch.push(id);
    }

    /// Records that the driver sees all completed requests, up to the used index `used`.
    #[inline]
    pub fn published(&mut self, used: u16) {
        for id in self.batch.drain(..) {
            self.cells.set_byte(Self::entry(id, INFLIGHT), 0);
        }
        self.cells.set_word(USED_AT, used);
    }
}
