//! Requests under way, remembered in memory that outlives this process (vhost-user, "Inflight I/O tracking").
//!
//! The front-end keeps the memory and gives it to the next back-end, which makes again what this one had not ended. That
//! one need not be ours, so that the layout is the specification's. What is read back is not trusted: the front-end could
//! have written to it.
//!
//! A request at which a back-end ended would end the next ones too. So each is marked while it is looked at, in a byte that
//! the layout leaves unused: one at which two ended is answered with an error, unlike those that just were under way.

mod packed;
mod split;

use crate::memory::{MapError, Mapping};
use std::fs::File;
use std::sync::Arc;

pub use packed::PackedInflight;
pub use split::SplitInflight;

/// Memory for the requests under way of all queues of a device.
#[derive(Debug, Clone)]
pub struct InflightMemory {
    mapping: Arc<Mapping>,
    queues: u16,
    size: u16,
}

/// Each queue's part begins at a multiple of so many bytes.
const ALIGNMENT: u64 = 64;

impl InflightMemory {
    /// Bytes that so many queues of `size` descriptors need, whichever layout they will have.
    #[must_use]
    pub fn bytes(queues: u16, size: u16) -> u64 {
        let larger = Self::bytes_a_queue(size, false).max(Self::bytes_a_queue(size, true));
        u64::from(queues) * larger
    }

    fn bytes_a_queue(size: u16, packed: bool) -> u64 {
        let (head, entry) = if packed { packed::SIZES } else { split::SIZES };
        (head + entry * u64::from(size)).next_multiple_of(ALIGNMENT)
    }

    /// Maps it.
    ///
    /// # Errors
    /// [`MapError`].
    pub fn map(file: &File, offset: u64, queues: u16, size: u16) -> Result<Self, MapError> {
        let mapping = Mapping::of_file(file, offset, Self::bytes(queues, size).max(1))?;
        Ok(Self { mapping: Arc::new(mapping), queues, size })
    }

    /// Remembers the requests of one queue; `None` when the memory was not made for it.
    #[must_use]
    pub fn queue(&self, index: u16, size: u16, packed: bool) -> Option<Inflight> {
        if index >= self.queues || size > self.size {
            return None;
        }
        let start = u64::from(index) * Self::bytes_a_queue(self.size, packed);
        let cells = Cells { mapping: Arc::clone(&self.mapping), start };
        Some(match packed {
            true => Inflight::Packed(PackedInflight::new(cells, size)),
            false => Inflight::Split(SplitInflight::new(cells, size)),
        })
    }
}

/// Remembers the requests of one queue.
#[derive(Debug)]
pub enum Inflight {
    /// Of a split ring.
    Split(SplitInflight),
    /// Of a packed ring.
    Packed(PackedInflight),
}

impl Inflight {
    /// How many back-ends ended while they looked at a request.
    pub(super) fn tries(&self, id: u16) -> u8 {
        match self {
            Self::Split(one) => one.tries(id),
            Self::Packed(one) => one.tries(id),
        }
    }

    /// Sets [`Self::tries`].
    #[inline]
    pub(super) fn set_tries(&mut self, id: u16, tries: u8) {
        match self {
            Self::Split(one) => one.set_tries(id, tries),
            Self::Packed(one) => one.set_tries(id, tries),
        }
    }

    /// Whether a page of the memory was lost.
    pub(super) fn is_lost(&self) -> bool {
        match self {
            Self::Split(one) => one.is_lost(),
            Self::Packed(one) => one.is_lost(),
        }
    }
}

/// A part of the memory, by words.
#[derive(Debug)]
struct Cells {
    mapping: Arc<Mapping>,
    start: u64,
}

macro_rules! cell {
    ($read:ident, $write:ident, $type:ty) => {
        /// Reads the word at a byte.
        #[inline]
        fn $read(&self, at: u64) -> $type {
            let pointer = self.pointer(at, size_of::<$type>()).cast::<$type>();
            // SAFETY: `pointer` gives as many mapped bytes; they may be written by the front-end meanwhile.
            unsafe { pointer.read_volatile() }
        }

        /// Writes the word at a byte. The compiler keeps such writes in their order, and so does the CPU.
        #[inline]
        fn $write(&self, at: u64, value: $type) {
            let pointer = self.pointer(at, size_of::<$type>()).cast::<$type>();
            // SAFETY: as above.
            unsafe { pointer.write_volatile(value) }
        }
    };
}

impl Cells {
    #[inline]
    fn pointer(&self, at: u64, size: usize) -> *mut u8 {
        // All places are counted from sizes that were checked when the memory was mapped, and are multiples of theirs.
        debug_assert!(self.start + at + size as u64 <= self.mapping.size());
        debug_assert!((self.start + at).is_multiple_of(size as u64));
        self.mapping.at((self.start + at).min(self.mapping.size() - size as u64))
    }

    cell!(byte, set_byte, u8);
    cell!(word, set_word, u16);
    cell!(double, set_double, u32);
    cell!(quad, set_quad, u64);
}

#[cfg(test)]
#[path = "inflight/inflight_tests.rs"]
mod tests;
