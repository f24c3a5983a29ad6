//! The inflight records of a packed ring. Used entries overwrite its descriptors, so the descriptors of requests in
//! flight are recorded too.

use super::Cells;
use crate::ring::{PackedRing, RawDescriptor, RingError};

/// The sizes of the head and of each entry, bytes.
pub(super) const SIZES: (u64, u64) = (32, 32);

const VERSION: u16 = 1;
/// The offsets of the head's fields. Fields called old have the values at the last batch that the driver saw.
const VERSION_AT: u64 = 8;
const COUNT_AT: u64 = 10;
const FREE_AT: u64 = 12;
const OLD_FREE_AT: u64 = 14;
const USED_AT: u64 = 16;
const OLD_USED_AT: u64 = 18;
const WRAP_AT: u64 = 20;
const OLD_WRAP_AT: u64 = 21;
/// The offsets of an entry's fields.
const INFLIGHT: u64 = 0;
const TRIES: u64 = 1;
const NEXT: u64 = 2;
const LAST: u64 = 4;
const COUNT: u64 = 6;
const COUNTER: u64 = 8;
const ID: u64 = 16;
const FLAGS: u64 = 18;
const LENGTH: u64 = 20;
const ADDRESS: u64 = 24;

/// The inflight records of a packed ring.
#[derive(Debug)]
pub struct PackedInflight {
    cells: Cells,
    size: u16,
    counter: u64,
    /// The first entry of each request in flight, by buffer id.
    heads: Vec<Option<u16>>,
    /// The first entries of completed requests that the driver does not see yet.
    batch: Vec<u16>,
}

/// A request that was in flight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackedLeft {
    /// Its buffer id.
    pub id: u16,
    /// Its descriptors.
    pub descriptors: Vec<RawDescriptor>,
}

impl PackedInflight {
    pub(super) fn new(cells: Cells, size: u16) -> Self {
        let heads = vec![None; usize::from(size)];
        Self { cells, size, counter: 0, heads, batch: Vec::new() }
    }

    /// Tests whether no back-end has used it before.
    #[must_use]
    pub(crate) fn is_fresh(&self) -> bool {
        self.cells.word(VERSION_AT) == 0
    }

    /// Initializes the records for a ring whose next used entry is `used`.
    pub fn begin(&self, used: u16) {
        for index in 0..self.size {
            self.cells.set_word(Self::entry(index, NEXT), index + 1);
        }
        self.cells.set_word(COUNT_AT, self.size);
        self.set_used(used);
        self.commit();
        self.cells.set_word(VERSION_AT, VERSION);
    }

    fn set_used(&self, used: u16) {
        self.cells.set_word(USED_AT, used & 0x7fff);
        self.cells.set_byte(WRAP_AT, (used >> 15) as u8);
    }

    pub(super) fn is_lost(&self) -> bool {
        self.cells.mapping.is_lost()
    }

    fn entry(index: u16, field: u64) -> u64 {
        SIZES.0 + u64::from(index) * SIZES.1 + field
    }

    /// The index of the next used entry, with the wrap counter in the highest bit.
    #[must_use]
    pub fn used(&self) -> u16 {
        self.cells.word(USED_AT) & 0x7fff | u16::from(self.cells.byte(WRAP_AT)) << 15
    }

    /// The requests that were in flight when the last back-end ended, in the order in which they were taken. `ring`
    /// tells whether the driver saw the last batch.
    ///
    /// # Errors
    ///
    /// [`RingError::InflightMemory`]: the front-end may have written anything there.
    pub fn left(&mut self, ring: &PackedRing) -> Result<Vec<PackedLeft>, RingError> {
        let cells = &self.cells;
        let (at, wrap) = (cells.word(OLD_USED_AT), cells.byte(OLD_WRAP_AT));
        // A batch of a whole lap changes the wrap counter only.
        let has_batch = (cells.word(USED_AT), cells.byte(WRAP_AT)) != (at, wrap);
        if has_batch && ring.was_seen_at(at, wrap != 0) {
            self.commit();
        }
        cells.set_word(FREE_AT, cells.word(OLD_FREE_AT));
        cells.set_word(USED_AT, cells.word(OLD_USED_AT));
        cells.set_byte(WRAP_AT, cells.byte(OLD_WRAP_AT));
        let mut free = cells.word(FREE_AT);
        for _ in 0..self.size {
            if free >= self.size {
                break;
            }
            cells.set_byte(Self::entry(free, INFLIGHT), 0);
            free = cells.word(Self::entry(free, NEXT));
        }
        let mut heads: Vec<(u64, u16)> = (0..self.size)
            .filter(|index| cells.byte(Self::entry(*index, INFLIGHT)) == 1)
            .map(|index| (cells.quad(Self::entry(index, COUNTER)), index))
            .collect();
        heads.sort_unstable();
        self.counter = heads.last().map_or(0, |(counter, _)| counter.wrapping_add(1));
        let mut is_read = vec![false; usize::from(self.size)];
        heads.into_iter().map(|(_, head)| self.read(head, &mut is_read)).collect()
    }

    /// Reads the request whose first entry is `head`. No entry may be in two requests, which also bounds the loop.
    fn read(&mut self, head: u16, is_read: &mut [bool]) -> Result<PackedLeft, RingError> {
        let cells = &self.cells;
        let count = cells.word(Self::entry(head, COUNT));
        let mut descriptors = Vec::new();
        let mut index = head;
        for _ in 0..count {
            let is_read = is_read.get_mut(usize::from(index)).ok_or(RingError::InflightMemory)?;
            if std::mem::replace(is_read, true) {
                return Err(RingError::InflightMemory);
            }
            descriptors.push(RawDescriptor {
                guest: cells.quad(Self::entry(index, ADDRESS)),
                size: cells.double(Self::entry(index, LENGTH)),
                id: cells.word(Self::entry(index, ID)),
                flags: cells.word(Self::entry(index, FLAGS)),
            });
            index = cells.word(Self::entry(index, NEXT));
        }
        let id = descriptors.last().ok_or(RingError::InflightMemory)?.id;
        *self.heads.get_mut(usize::from(id)).ok_or(RingError::InflightMemory)? = Some(head);
        Ok(PackedLeft { id, descriptors })
    }

    fn head(&self, id: u16) -> Option<u16> {
        self.heads.get(usize::from(id)).copied().flatten().filter(|head| *head < self.size)
    }

    /// The number of back-ends that ended while they handled a request, in a byte that the layout leaves unused.
    pub fn tries(&self, id: u16) -> u8 {
        self.head(id).map_or(0, |head| self.cells.byte(Self::entry(head, TRIES)))
    }

    /// Sets [`Self::tries`].
    #[inline]
    pub(crate) fn set_tries(&mut self, id: u16, tries: u8) {
        if let Some(head) = self.head(id) {
            self.cells.set_byte(Self::entry(head, TRIES), tries);
        }
    }

    /// Records a request that was taken.
    pub fn taken(&mut self, descriptors: &[RawDescriptor]) {
        let cells = &self.cells;
        let head = cells.word(OLD_FREE_AT);
        let (Some(last), true) = (descriptors.last(), head < self.size) else { return };
        cells.set_word(Self::entry(head, COUNT), 0);
        cells.set_quad(Self::entry(head, COUNTER), self.counter);
        self.counter = self.counter.wrapping_add(1);
        cells.set_byte(Self::entry(head, INFLIGHT), 1);
        for (number, descriptor) in descriptors.iter().enumerate() {
            let free = cells.word(FREE_AT);
            if free >= self.size {
                return;
            }
            if number + 1 == descriptors.len() {
                cells.set_word(Self::entry(head, LAST), free);
            }
            cells.set_word(Self::entry(head, COUNT), number as u16 + 1);
            cells.set_quad(Self::entry(free, ADDRESS), descriptor.guest);
            cells.set_double(Self::entry(free, LENGTH), descriptor.size);
            cells.set_word(Self::entry(free, FLAGS), descriptor.flags);
            cells.set_word(Self::entry(free, ID), descriptor.id);
            cells.set_word(FREE_AT, cells.word(Self::entry(free, NEXT)));
        }
        cells.set_word(OLD_FREE_AT, cells.word(FREE_AT));
        if let Some(slot) = self.heads.get_mut(usize::from(last.id)) {
            *slot = Some(head);
        }
        self.set_tries(last.id, 1);
    }

    /// Records a completed request that the driver does not see yet; `used` is the next used entry after it.
    pub fn given(&mut self, id: u16, used: u16) {
        let Some(head) = self.heads.get_mut(usize::from(id)).and_then(Option::take) else { return };
        let cells = &self.cells;
        let last = cells.word(Self::entry(head, LAST));
        if last >= self.size {
            return;
        }
        cells.set_word(Self::entry(last, NEXT), cells.word(FREE_AT));
        cells.set_word(FREE_AT, head);
        self.set_used(used);
        self.batch.push(head);
    }

    /// Records that the driver sees all completed requests.
    pub fn published(&mut self) {
        for head in self.batch.drain(..) {
            self.cells.set_byte(Self::entry(head, INFLIGHT), 0);
        }
        self.commit();
    }

    fn commit(&self) {
        let cells = &self.cells;
        cells.set_word(OLD_FREE_AT, cells.word(FREE_AT));
        // The index and the wrap counter, each with the old one, and two bytes of padding: in one store, because a place with
        // the index of one batch and the wrap counter of another is a lap away.
        let ([a, b], wrap) = (cells.word(USED_AT).to_ne_bytes(), cells.byte(WRAP_AT));
        cells.set_quad(USED_AT, u64::from_ne_bytes([a, b, a, b, wrap, wrap, 0, 0]));
    }
}
