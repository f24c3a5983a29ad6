//! Inflight I/O tracking: records of requests in flight, in memory that outlives this process (vhost-user, "Inflight
//! I/O tracking").
//!
//! The front-end keeps the memory and passes it to the next back-end, which resubmits what this one had not completed.
//! The next one may be another program, so the layout is the specification's. What is read back is not trusted, because
//! the front-end may have written to it.
//!
//! A request that crashes one back-end would crash the next ones, too. So a request is marked while it is handled, in a
//! byte that the layout leaves unused. If two back-ends ended while they handled it, it is answered with an error; a
//! request that was merely in flight is not.

mod packed;
mod split;

use crate::memory::{MapError, Mapping};
use crate::ring::LARGEST;
use std::fs::File;
use std::sync::Arc;

pub use packed::PackedInflight;
pub use split::SplitInflight;

/// The inflight memory of all queues of a device.
#[derive(Debug, Clone)]
pub struct InflightMemory {
    mapping: Arc<Mapping>,
    queues: u16,
    /// The descriptors of each queue, as the front-end says.
    size: u16,
}

/// The alignment of each queue's part.
const ALIGNMENT: u64 = 64;

impl InflightMemory {
    /// The size for this many queues of `size` descriptors, in either layout.
    #[must_use]
    pub fn bytes(queues: u16, size: u16) -> u64 {
        let larger = Self::bytes_a_queue(size, false).max(Self::bytes_a_queue(size, true));
        u64::from(queues) * larger
    }

    fn bytes_a_queue(size: u16, packed: bool) -> u64 {
        Self::needs(size, packed).next_multiple_of(ALIGNMENT)
    }

    fn needs(size: u16, packed: bool) -> u64 {
        let (head, entry) = if packed { packed::SIZES } else { split::SIZES };
        head + entry * u64::from(size)
    }

    /// The same with a reserve for rings with more descriptors. It follows the layout of the specification.
    #[must_use]
    pub(crate) fn bytes_with_reserve(queues: u16, size: u16) -> u64 {
        Self::bytes(queues, size) + Self::bytes(queues, LARGEST)
    }

    /// Maps memory of the least size for this many queues of `size` descriptors.
    ///
    /// # Errors
    /// [`MapError`].
    pub fn map(file: &File, offset: u64, queues: u16, size: u16) -> Result<Self, MapError> {
        Self::map_bytes(file, offset, queues, size, Self::bytes(queues, size))
    }

    /// Maps memory of this many bytes, which any back-end may have made.
    ///
    /// # Errors
    /// [`MapError`].
    pub fn map_bytes(file: &File, offset: u64, queues: u16, size: u16, bytes: u64) -> Result<Self, MapError> {
        if !offset.is_multiple_of(8) {
            return Err(MapError::Unaligned { offset });
        }
        let least = u64::from(queues) * Self::needs(size, false);
        if bytes < least {
            return Err(MapError::Short { has: bytes, needs: least });
        }
        let bytes = bytes.min(Self::bytes_with_reserve(queues, size));
        let mapping = Mapping::of_file(file, offset, bytes.max(1))?;
        Ok(Self { mapping: Arc::new(mapping), queues, size })
    }

    /// The records of one queue. With a reserve it may have more descriptors than the front-end said. `None` if there
    /// is no room.
    #[must_use]
    pub fn queue(&self, index: u16, size: u16, packed: bool) -> Option<Inflight> {
        if index >= self.queues {
            return None;
        }
        let (usual, has) = (Self::bytes_a_queue(self.size, packed), self.mapping.size());
        let reserve = usual * u64::from(self.queues);
        let (first, each) = match size <= self.size {
            true => (0, usual),
            false => {
                let each = has.saturating_sub(reserve) / u64::from(self.queues);
                (reserve, each / ALIGNMENT * ALIGNMENT)
            }
        };
        let (start, needs) = (first + u64::from(index) * each, Self::needs(size, packed));
        if needs > each || start + needs > has {
            return None;
        }
        let cells = Cells { mapping: Arc::clone(&self.mapping), start };
        Some(match packed {
            true => Inflight::Packed(PackedInflight::new(cells, size)),
            false => Inflight::Split(SplitInflight::new(cells, size)),
        })
    }
}

/// The records of one queue.
#[derive(Debug)]
pub enum Inflight {
    /// The records of a split ring.
    Split(SplitInflight),
    /// The records of a packed ring.
    Packed(PackedInflight),
}

impl Inflight {
    /// The number of back-ends that ended while they handled a request.
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

    /// Tests whether a page of the memory was lost.
    pub(super) fn is_lost(&self) -> bool {
        match self {
            Self::Split(one) => one.is_lost(),
            Self::Packed(one) => one.is_lost(),
        }
    }
}

/// A part of the memory, which is read and written in words.
#[derive(Debug)]
struct Cells {
    mapping: Arc<Mapping>,
    start: u64,
}

macro_rules! cell {
    ($read:ident, $write:ident, $type:ty) => {
        /// Reads the word at a byte offset.
        #[inline]
        fn $read(&self, at: u64) -> $type {
            let pointer = self.pointer(at, size_of::<$type>()).cast::<$type>();
            // SAFETY: `pointer` gives as many mapped bytes; they may be written by the front-end meanwhile.
            unsafe { pointer.read_volatile() }
        }

        /// Writes the word at a byte offset. Neither the compiler nor an x86-64 CPU reorders such writes.
        #[inline]
        fn $write(&self, at: u64, value: $type) {
            #[cfg(test)]
            if tests::is_killed() {
                return;
            }
            let pointer = self.pointer(at, size_of::<$type>()).cast::<$type>();
            // SAFETY: as above.
            unsafe { pointer.write_volatile(value) }
        }
    };
}

impl Cells {
    #[inline]
    fn pointer(&self, at: u64, size: usize) -> *mut u8 {
        // All offsets come from sizes that were checked when the memory was mapped, and are aligned.
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
