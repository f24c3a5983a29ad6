//! Rings of virtqueues from the device's side, in both layouts of VIRTIO 1.3 (2.7 split, 2.8 packed).
//!
//! Nothing in a ring is trusted: each index, address and length is copied once and then checked, so that what was
//! checked is what is used. After a violation of the format nothing more is taken from the ring.

mod chain;
mod packed;
mod split;

use crate::memory::GuestMemory;
use std::sync::Arc;

pub use chain::{Chain, Side};
pub(crate) use chain::{pieces, units_of};
pub use packed::{PackedRing, RawDescriptor};
pub use split::SplitRing;

/// The largest number of descriptors of a ring (VIRTIO 1.3, 2.7 and 2.8).
pub const LARGEST: u16 = 1 << 15;

/// The negotiated features that change the format of a ring.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RingFeatures {
    /// `VIRTIO_F_RING_PACKED`.
    pub packed: bool,
    /// `VIRTIO_F_EVENT_IDX`.
    pub event_index: bool,
    /// `VIRTIO_F_INDIRECT_DESC`.
    pub indirect: bool,
}

/// The addresses of a ring's three parts, in the front-end's process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RingLayout {
    /// The descriptor area: the table of a split ring, the ring itself of a packed one.
    pub descriptors: u64,
    /// The driver area: the available ring, or the driver's event suppression structure.
    pub driver: u64,
    /// The device area: the used ring, or the device's event suppression structure.
    pub device: u64,
    /// The guest address of the device area, if writes to the ring are logged.
    pub logged: Option<u64>,
}

/// A violation of the ring's format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RingError {
    /// The number of descriptors is not valid.
    #[error("a ring cannot have {0} descriptors: 1 to 32768 are valid, and a power of two if it is split")]
    Size(u32),
    /// A part is not within one region of the guest's memory, or not aligned.
    #[error("its {0} at {1:#x} are not wholly within one region of the guest's memory, or not aligned")]
    Unmapped(&'static str, u64),
    /// The available index is too far ahead.
    #[error("the available index claims {0} buffers in a ring of {1}")]
    TooManyAvailable(u16, u16),
    /// The index of a descriptor is out of bounds.
    #[error("descriptor {0} is out of bounds")]
    Index(u16),
    /// A chain has more descriptors than the ring.
    #[error("a chain has a loop, or more than {0} descriptors")]
    TooLong(u16),
    /// A buffer is outside of the guest's memory.
    #[error("a buffer of {size:#x} bytes at {guest:#x} is not in the guest's memory")]
    OutOfMemory {
        /// The guest address.
        guest: u64,
        /// The size in bytes.
        size: u32,
    },
    /// A device-readable buffer follows a device-writable one.
    #[error("a device-readable buffer follows a device-writable one")]
    Order,
    /// An indirect table where none is allowed, or of an invalid size.
    #[error("an indirect table is not allowed here, or its size is not valid")]
    Indirect,
    /// The records of requests in flight contradict each other.
    #[error("the inflight memory is damaged: an entry of a list is out of bounds, or in two lists")]
    InflightMemory,
    /// A page that the ring or its buffers use was lost.
    #[error(
        "a page of the guest's memory was lost: its file was made shorter, found no room, or the machine's memory failed"
    )]
    Lost,
    /// A buffer of a control queue has room, and no command.
    #[error(
        "a buffer of the control queue has no command: does the front-end have more queue pairs than the device?"
    )]
    NoCommand,
    /// The buffer id is in use.
    #[error("buffer {0} is made available while it is in use")]
    InUse(u16),
    /// A request ended too many back-ends.
    #[error("request {0} ended three back-ends and is not tried again: restart the guest")]
    Fatal(u16),
}

/// A ring.
#[derive(Debug)]
pub enum Ring {
    /// Descriptor table, available ring and used ring (2.7).
    Split(SplitRing),
    /// One descriptor ring (2.8).
    Packed(PackedRing),
}

impl Ring {
    /// A ring of `size` descriptors that continues at `base`, in the form of `VHOST_USER_SET_VRING_BASE`.
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

    /// Continues for a device that has no buffers while its queue is stopped, at the place that the ring itself tells: a
    /// front-end whose back-end was killed says another one. `false` if a packed ring does not tell it, and cannot continue
    /// where the front-end says.
    pub(crate) fn rest(&mut self) -> bool {
        match self {
            Self::Split(ring) => {
                ring.go_back_to(ring.used_index());
                true
            }
            Self::Packed(ring) => ring.rest(),
        }
    }

    /// Takes the next available buffer into `chain`. `false` when there is none.
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

    /// Adds a used buffer of which `written` bytes were written. The driver sees it after [`Self::publish`].
    #[inline]
    pub fn push(&mut self, id: u16, written: u32) {
        match self {
            Self::Split(ring) => ring.push(id, written),
            Self::Packed(ring) => ring.push(id, written),
        }
    }

    /// Puts the buffer that was taken last back. Several are put back in reverse order.
    #[inline]
    pub(crate) fn put_back(&mut self, id: u16) {
        match self {
            Self::Split(ring) => ring.put_back(),
            Self::Packed(ring) => ring.put_back(id),
        }
    }

    /// Publishes the used buffers to the driver. `true` if it wants a call for them.
    #[inline]
    pub fn publish(&mut self) -> bool {
        match self {
            Self::Split(ring) => ring.publish(),
            Self::Packed(ring) => ring.publish(),
        }
    }

    /// Tests whether a buffer is available.
    #[inline]
    #[must_use]
    pub(crate) fn has_more(&self) -> bool {
        match self {
            Self::Split(ring) => ring.has_more(),
            Self::Packed(ring) => ring.has_more(),
        }
    }

    /// Asks the driver to kick for the next buffer. `true` if one is available already, for which it does not.
    #[inline]
    pub fn enable_kicks(&mut self) -> bool {
        match self {
            Self::Split(ring) => ring.enable_kicks(),
            Self::Packed(ring) => ring.enable_kicks(),
        }
    }

    /// Tells the driver that kicks are not needed.
    #[inline]
    pub fn disable_kicks(&mut self) {
        match self {
            Self::Split(ring) => ring.disable_kicks(),
            Self::Packed(ring) => ring.disable_kicks(),
        }
    }

    /// The guest's memory.
    #[must_use]
    pub const fn memory(&self) -> &Arc<GuestMemory> {
        match self {
            Self::Split(ring) => ring.memory(),
            Self::Packed(ring) => ring.memory(),
        }
    }

    /// Switches to another mapping of the same memory.
    ///
    /// # Errors
    ///
    /// [`RingError::Unmapped`] if the ring is not in it; the ring keeps the old mapping then.
    pub(crate) fn use_memory(&mut self, memory: &Arc<GuestMemory>) -> Result<(), RingError> {
        match self {
            Self::Split(ring) => ring.use_memory(memory),
            Self::Packed(ring) => ring.use_memory(memory),
        }
    }

    /// The position in the form of `VHOST_USER_GET_VRING_BASE`.
    #[must_use]
    pub fn base(&self) -> u32 {
        match self {
            Self::Split(ring) => ring.base(),
            Self::Packed(ring) => ring.base(),
        }
    }

    /// The number of descriptors.
    #[must_use]
    pub fn size(&self) -> u16 {
        match self {
            Self::Split(ring) => ring.size(),
            Self::Packed(ring) => ring.size(),
        }
    }
}

/// A descriptor in the form of both layouts.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Descriptor {
    /// The guest address.
    guest: u64,
    /// The size in bytes.
    size: u32,
    /// Split: flags and next, in this order. Packed: buffer id and flags.
    halves: [u16; 2],
}

/// The size of a descriptor.
const DESCRIPTOR: u32 = 16;
const _: () = assert!(size_of::<Descriptor>() == DESCRIPTOR as usize);

impl Descriptor {
    /// Reads a descriptor from a table that may be unaligned. Each byte is read once, because the guest may write
    /// meanwhile.
    ///
    /// # Safety
    ///
    /// The bytes of a descriptor are mapped there.
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

/// Translates the address of a part of the ring. The caller keeps the memory mapped.
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
