//! Virtqueues as the device sees them, in both layouts of VIRTIO 1.3 (2.7 split, 2.8 packed).
//!
//! Everything in a ring is the guest's word: each index, address and length is copied once and then checked, so that what
//! was checked is what is used. A ring that breaks the rules is given up: nothing more is taken from it.

mod chain;
mod packed;
mod split;

use crate::memory::GuestMemory;
use std::sync::Arc;

pub(crate) use chain::pieces;
pub use chain::{Chain, Side};
pub use packed::{PackedRing, RawDescriptor};
pub use split::SplitRing;

/// Largest number of descriptors in a ring (VIRTIO 1.3, 2.7 and 2.8).
pub const LARGEST: u16 = 1 << 15;

/// What was negotiated that changes how a ring works.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RingFeatures {
    /// `VIRTIO_F_RING_PACKED`.
    pub packed: bool,
    /// `VIRTIO_F_EVENT_IDX`.
    pub event_index: bool,
    /// `VIRTIO_F_INDIRECT_DESC`.
    pub indirect: bool,
}

/// Where a ring's three parts are, as addresses of the front-end's process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RingLayout {
    /// Descriptors: the table of a split ring, the ring itself of a packed one.
    pub descriptors: u64,
    /// What the driver writes: the available ring, or its event suppression structure.
    pub driver: u64,
    /// What the device writes: the used ring, or its event suppression structure.
    pub device: u64,
    /// Where the device's part is in the guest when writes to it are to be marked as dirty.
    pub logged: Option<u64>,
}

/// How a ring breaks the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RingError {
    /// Its size is no size of such a ring.
    #[error("a ring of {0} descriptors is none: 1 to 32768, and a power of two if it is split")]
    Size(u32),
    /// One of its parts is not within one region of the guest's memory, or not aligned.
    #[error("its {0} at {1:#x} are not wholly within one region of the guest's memory, or not aligned")]
    Unmapped(&'static str, u64),
    /// More buffers are available than it has descriptors.
    #[error("{0} buffers are said to be available, of {1} at most")]
    TooManyAvailable(u16, u16),
    /// A descriptor's number is beyond the table.
    #[error("descriptor {0} is beyond the last")]
    Index(u16),
    /// A chain has more descriptors than the ring.
    #[error("a chain has a loop, or more than {0} descriptors")]
    TooLong(u16),
    /// A buffer is not in the guest's memory.
    #[error("a buffer of {size:#x} bytes at {guest:#x} is not in the guest's memory")]
    OutOfMemory {
        /// Address in the guest.
        guest: u64,
        /// Bytes.
        size: u32,
    },
    /// A buffer for the device to read follows one to write.
    #[error("a buffer to be read follows one to be written")]
    Order,
    /// A table of indirect descriptors where none may be, or of a size that none has.
    #[error("an indirect table where none may be, or of a size that none has")]
    Indirect,
    /// What is remembered of its requests under way cannot have been.
    #[error(
        "the memory of requests under way has lists that are none: an entry beyond the last, or one that is in two"
    )]
    Remembered,
    /// The memory that it and its buffers lie in is no longer what the guest has.
    #[error(
        "a page of the guest's memory was lost: its file was made shorter, found no room, or the machine's memory failed"
    )]
    Lost,
    /// A buffer has the name of one that is still in use.
    #[error("buffer {0} is made available while it is in use")]
    InUse(u16),
}

/// A virtqueue.
#[derive(Debug)]
pub enum Ring {
    /// With tables apart for descriptors, available and used buffers.
    Split(SplitRing),
    /// With one table for all.
    Packed(PackedRing),
}

impl Ring {
    /// A ring of `size` descriptors that goes on at `base`, as `VHOST_USER_SET_VRING_BASE` gives it.
    ///
    /// # Errors
    /// [`RingError::Size`] and [`RingError::Unmapped`].
    pub fn new(
        memory: &Arc<GuestMemory>,
        layout: &RingLayout,
        size: u32,
        base: u32,
        features: RingFeatures,
    ) -> Result<Self, RingError> {
        Ok(match features.packed {
            true => Self::Packed(PackedRing::new(memory, layout, size, base, features)?),
            false => Self::Split(SplitRing::new(memory, layout, size, base, features)?),
        })
    }

    /// Takes the next buffer that the driver made available into `chain`. Whether there was one.
    ///
    /// # Errors
    /// [`RingError`], after which the ring must not be used.
    #[inline]
    pub fn pop(&mut self, chain: &mut Chain) -> Result<bool, RingError> {
        match self {
            Self::Split(ring) => ring.pop(chain),
            Self::Packed(ring) => ring.pop(chain),
        }
    }

    /// Gives a buffer back, of which `written` bytes were written. The driver sees it after [`Self::publish`].
    #[inline]
    pub fn push(&mut self, id: u16, written: u32) {
        match self {
            Self::Split(ring) => ring.push(id, written),
            Self::Packed(ring) => ring.push(id, written),
        }
    }

    /// Leaves the buffer that was taken last to be taken again. Several are put back from the last one on.
    #[inline]
    pub fn put_back(&mut self, id: u16) {
        match self {
            Self::Split(ring) => ring.put_back(),
            Self::Packed(ring) => ring.put_back(id),
        }
    }

    /// Lets the driver see all buffers that were given back. Whether it wants to be called for them.
    #[inline]
    pub fn publish(&mut self) -> bool {
        match self {
            Self::Split(ring) => ring.publish(),
            Self::Packed(ring) => ring.publish(),
        }
    }

    /// Whether a buffer is available.
    #[inline]
    #[must_use]
    pub fn has_more(&self) -> bool {
        match self {
            Self::Split(ring) => ring.has_more(),
            Self::Packed(ring) => ring.has_more(),
        }
    }

    /// Asks the driver to kick for the next buffer. Whether there is one already, for which it does not.
    #[inline]
    pub fn enable_kicks(&mut self) -> bool {
        match self {
            Self::Split(ring) => ring.enable_kicks(),
            Self::Packed(ring) => ring.enable_kicks(),
        }
    }

    /// Tells the driver that it need not kick.
    #[inline]
    pub fn disable_kicks(&mut self) {
        match self {
            Self::Split(ring) => ring.disable_kicks(),
            Self::Packed(ring) => ring.disable_kicks(),
        }
    }

    /// The memory that it lies in.
    #[must_use]
    pub const fn memory(&self) -> &Arc<GuestMemory> {
        match self {
            Self::Split(ring) => ring.memory(),
            Self::Packed(ring) => ring.memory(),
        }
    }

    /// Uses another map of the same memory from now on.
    ///
    /// # Errors
    /// [`RingError::Unmapped`] when the ring itself is not where it was in it: then it goes on with the old one.
    pub fn use_memory(&mut self, memory: &Arc<GuestMemory>) -> Result<(), RingError> {
        match self {
            Self::Split(ring) => ring.use_memory(memory),
            Self::Packed(ring) => ring.use_memory(memory),
        }
    }

    /// Where it stands, as `VHOST_USER_GET_VRING_BASE` gives it.
    #[must_use]
    pub fn base(&self) -> u32 {
        match self {
            Self::Split(ring) => ring.base(),
            Self::Packed(ring) => ring.base(),
        }
    }

    /// Descriptors in it.
    #[must_use]
    pub fn size(&self) -> u16 {
        match self {
            Self::Split(ring) => ring.size(),
            Self::Packed(ring) => ring.size(),
        }
    }
}

/// A descriptor, as it is in a table of either layout.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Descriptor {
    /// Address in the guest.
    guest: u64,
    /// Bytes.
    size: u32,
    /// Split: flags and the next one's number, in the halves. Packed: the buffer's name and flags.
    halves: [u16; 2],
}

/// Bytes of a descriptor.
const DESCRIPTOR: u32 = 16;
const _: () = assert!(size_of::<Descriptor>() == DESCRIPTOR as usize);

impl Descriptor {
    /// Takes a descriptor of a table that need not be aligned. Each byte is read once, for the guest may write meanwhile.
    ///
    /// # Safety
    /// As many bytes are mapped there.
    #[inline]
    unsafe fn take(pointer: *const Self) -> Self {
        if pointer.is_aligned() {
            // SAFETY: the caller says that it is mapped.
            return unsafe { pointer.read_volatile() };
        }
        // SAFETY: as above; bytes need no alignment.
        let bytes = unsafe { pointer.cast::<[u8; DESCRIPTOR as usize]>().read_volatile() };
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = bytes;
        Self {
            guest: u64::from_ne_bytes([a, b, c, d, e, f, g, h]),
            size: u32::from_ne_bytes([i, j, k, l]),
            halves: [u16::from_ne_bytes([m, n]), u16::from_ne_bytes([o, p])],
        }
    }
}

/// `VIRTQ_DESC_F_NEXT`.
const NEXT: u16 = 1;
/// `VIRTQ_DESC_F_WRITE`.
const WRITE: u16 = 2;
/// `VIRTQ_DESC_F_INDIRECT`.
const INDIRECT: u16 = 4;

/// A part of a ring: where its first byte is here. The memory is kept mapped by whoever has the pointer.
fn part_of_ring(
    memory: &GuestMemory,
    what: &'static str,
    user: u64,
    size: u32,
    alignment: u64,
) -> Result<*mut u8, RingError> {
    let part = memory.of_user(user, size).ok_or(RingError::Unmapped(what, user))?;
    match part.pointer.addr() as u64 % alignment {
        0 => Ok(part.pointer),
        _ => Err(RingError::Unmapped(what, user)),
    }
}

#[cfg(test)]
#[path = "ring/ring_tests.rs"]
mod tests;
