//! The fast path from a tracepoint's raw data to an event.
//!
//! It does what [`crate::decoder::Decoder`] does, but without a branch for each field: a record is viewed as a window
//! of fixed size in which every 1-byte offset is valid, and each number is eight bytes of it with a mask. Records
//! that do not fit are decoded in the normal way.

use crate::event::{Event, Kind};

/// Large enough for eight bytes at any 1-byte offset.
pub(crate) type Window = [u8; 256 + 8];

/// Eight bytes at an offset, with a mask.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Load {
    offset: u8,
    mask: u64,
}

impl Load {
    /// A number of `size` bytes; `None` if it is out of range; `size` 0 is always zero.
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

/// The fields to read from an event.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Quick {
    /// The minimum length of the record.
    pub(crate) length: u32,
    pub(crate) value: Load,
    pub(crate) extra: Load,
    /// The number that selects the kind.
    pub(crate) select: Load,
    /// The kind for the numbers 0, 1, 2 and all others; `None` needs the normal decoder.
    pub(crate) kinds: [Option<Kind>; 4],
    /// The number to add to the value, by the same number.
    pub(crate) added: [u64; 4],
}

impl Quick {
    /// Sets kind, value and extra of an event; `false` if the normal decoder is needed.
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
