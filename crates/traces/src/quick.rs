//! The short way from a tracepoint's bytes to an event.
//!
//! It does what [`crate::decoder::Decoder`] does field by field, without a branch for each: a record is seen as a
//! window of fixed size in which every offset of one byte is valid, and each number is eight bytes of it under a mask.
//! Records that do not fit take the long way.

use crate::event::{Event, Kind};

/// Any offset of one byte and the eight bytes from there on lie in it.
pub(crate) type Window = [u8; 256 + 8];

/// Eight bytes at an offset, less those that a mask hides.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Load {
    offset: u8,
    mask: u64,
}

impl Load {
    /// A number of `size` bytes, `None` when it is out of reach; `size` 0 gives zero.
    pub(crate) fn new(offset: usize, size: u8) -> Option<Self> {
        let mask = match size {
            0 => 0,
            1 | 2 | 4 => (1 << (8 * size)) - 1,
            8 => u64::MAX,
            _ => return None,
        };
        Some(Self { offset: u8::try_from(offset).ok()?, mask })
    }

    /// All eight bytes at an offset.
    pub(crate) const fn whole(offset: u8) -> Self {
        Self { offset, mask: u64::MAX }
    }

    #[inline(always)]
    pub(crate) fn read(self, window: &Window) -> u64 {
        let at = usize::from(self.offset);
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&window[at..at + 8]);
        u64::from_le_bytes(bytes) & self.mask
    }
}

/// The recipe for reading one event.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Quick {
    /// Bytes that the record must have at least.
    pub(crate) length: u32,
    pub(crate) value: Load,
    pub(crate) extra: Load,
    /// The number that decides on the kind.
    pub(crate) select: Load,
    /// The kind for the numbers 0, 1, 2 and all others; `None` goes the long way.
    pub(crate) kinds: [Option<Kind>; 4],
    /// Added to the value for these numbers.
    pub(crate) added: [u64; 4],
}

impl Quick {
    /// Sets kind, value and extra of an event; `false` when the long way has to be gone.
    #[inline(always)]
    pub(crate) fn fill(&self, window: &Window, event: &mut Event) -> bool {
        let number = self.select.read(window).min(3) as usize;
        let Some(kind) = self.kinds[number] else { return false };
        event.kind = kind;
        event.value = self.value.read(window) | self.added[number];
        event.extra = self.extra.read(window);
        true
    }
}
