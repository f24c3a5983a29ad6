//! A descriptor chain: its device-readable buffers, then its device-writable ones.

use super::{Descriptor, INDIRECT, NEXT, RingError, WRITE};
use crate::memory::{GuestMemory, Part, lost_pages};
use std::sync::Arc;

/// The two kinds of buffers of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Device-readable buffers.
    Readable,
    /// Device-writable buffers.
    Writable,
}

/// A descriptor chain that was taken from a ring. It is reused.
#[derive(Debug, Default)]
pub struct Chain {
    /// The id of the chain: its first descriptor, or its buffer id in a packed ring.
    pub id: u16,
    /// Keeps the memory of all pointers mapped.
    memory: Option<Arc<GuestMemory>>,
    parts: Vec<Part>,
    /// The number of device-readable parts; the device-writable ones follow them.
    readable: usize,
    /// The number of its descriptors, of which empty ones leave no part.
    descriptors: usize,
}

/// The number of descriptors that count as one unit of work, like a request: each takes a look-up of its address.
const DESCRIPTORS_A_UNIT: usize = 64;

/// The number of regions up to which a look-up is counted as one.
const FEW_REGIONS: usize = 8;

/// The units of work ([`crate::queue::WorkDone`]) of this many descriptors. With many regions each takes longer,
/// because the regions are searched one after another.
#[inline]
pub(crate) fn units_of(descriptors: usize, memory: &GuestMemory) -> usize {
    descriptors * memory.regions().div_ceil(FEW_REGIONS) / DESCRIPTORS_A_UNIT
}

/// The most pieces of a chain: the limit of writev(2).
const PIECES: usize = 1024;

impl Chain {
    /// An empty chain.
    #[must_use]
    pub fn new() -> Self {
        Self { parts: Vec::with_capacity(64), ..Self::default() }
    }

    /// The parts of a side, in order.
    #[inline]
    #[must_use]
    pub fn parts(&self, side: Side) -> &[Part] {
        match side {
            Side::Readable => &self.parts[..self.readable],
            Side::Writable => &self.parts[self.readable..],
        }
    }

    /// The number of its descriptors, empty ones too.
    #[inline]
    pub(crate) const fn descriptors(&self) -> usize {
        self.descriptors
    }

    /// The units of work of its descriptors, besides the one for the request.
    #[inline]
    pub(crate) fn extra_units(&self, memory: &GuestMemory) -> usize {
        units_of(self.descriptors, memory)
    }

    /// Prefetches the first bytes of the buffer, at most 64, in one or two cache lines: they were last in another CPU's
    /// cache.
    #[inline]
    pub fn prefetch(&self, bytes: usize) {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        if let Some(part) = self.parts.first() {
            for at in [0, bytes - 1] {
                let line = part.pointer.cast_const().wrapping_add(at).cast();
                // SAFETY: a prefetch reads nothing, and every x86-64 CPU has the instruction.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(line) };
            }
        }
    }

    /// Tests whether a page of its memory was lost: what was read from there since is not the guest's.
    #[inline]
    pub(crate) fn is_lost(&self) -> bool {
        lost_pages() > 0 && self.memory.as_ref().is_some_and(|memory| memory.is_cut())
    }

    /// The number of bytes of a side.
    #[inline]
    #[must_use]
    pub fn bytes(&self, side: Side) -> u64 {
        match self.parts(side) {
            // The usual case: one piece.
            [part] => u64::from(part.size),
            parts => parts.iter().map(|part| u64::from(part.size)).sum(),
        }
    }

    /// Copies device-readable bytes from byte `skip` on to `to`. Returns their number.
    pub fn read(&self, skip: u64, to: &mut [u8]) -> usize {
        let mut done = 0;
        for Part { pointer, size, .. } in self.pieces(Side::Readable, skip, to.len() as u64) {
            let size = size as usize;
            // SAFETY: the piece is mapped guest memory of that size, and `to` has as much room; they cannot overlap,
            // for `to` is this process's own.
            unsafe { std::ptr::copy_nonoverlapping(pointer, to[done..].as_mut_ptr(), size) };
            done += size;
        }
        done
    }

    /// Copies the device-readable bytes from byte `skip` on into an array, which has zeroes beyond their end.
    #[inline]
    #[must_use]
    pub fn array<const SIZE: usize>(&self, skip: u32) -> [u8; SIZE] {
        match self.parts(Side::Readable) {
            // The usual case: one piece, and a copy of known size.
            [part, ..] if u64::from(part.size) >= u64::from(skip) + SIZE as u64 => {
                let from = part.pointer.cast_const().wrapping_add(skip as usize).cast::<[u8; SIZE]>();
                // SAFETY: the piece is mapped guest memory, with this many bytes from `skip` on.
                unsafe { from.read_unaligned() }
            }
            _ => {
                let mut bytes = [0; SIZE];
                self.read(u64::from(skip), &mut bytes);
                bytes
            }
        }
    }

    /// Copies `from` to the device-writable bytes from byte `skip` on. Returns the number of bytes that fit.
    pub fn write(&self, skip: u64, from: &[u8]) -> usize {
        let mut done = 0;
        for Part { pointer, size, .. } in self.pieces(Side::Writable, skip, from.len() as u64) {
            let size = size as usize;
            // SAFETY: as in `read`, the other way round.
            unsafe { std::ptr::copy_nonoverlapping(from[done..].as_ptr(), pointer, size) };
            done += size;
        }
        done
    }

    /// The pieces of `take` bytes of a side from byte `skip` on.
    pub fn pieces(&self, side: Side, skip: u64, take: u64) -> impl Iterator<Item = Part> {
        pieces(self.parts(side), skip, take)
    }

    /// Makes it the chain of one descriptor. `false` if the buffer is not one piece of memory; the chain is then undefined.
    #[inline]
    pub(super) fn set(
        &mut self,
        id: u16,
        memory: &Arc<GuestMemory>,
        descriptor: &Descriptor,
        flags: u16,
    ) -> bool {
        let Some(part) = memory.one_part(descriptor.guest, descriptor.size) else { return false };
        self.clear(id, memory);
        self.parts.push(part);
        (self.readable, self.descriptors) = (usize::from(flags & WRITE == 0), 1);
        // An empty buffer leaves no part.
        part.size > 0
    }

    #[inline]
    pub(super) fn clear(&mut self, id: u16, memory: &Arc<GuestMemory>) {
        self.id = id;
        // The memory is mostly the same, and counting references would be the most expensive part.
        if !self.memory.as_ref().is_some_and(|kept| Arc::ptr_eq(kept, memory)) {
            self.memory = Some(Arc::clone(memory));
        }
        self.parts.clear();
        (self.readable, self.descriptors) = (0, 0);
    }

    /// Adds the buffer of a descriptor. Its flags are passed separately, because each layout has them elsewhere.
    #[inline]
    pub(super) fn add(
        &mut self,
        memory: &GuestMemory,
        descriptor: &Descriptor,
        flags: u16,
    ) -> Result<(), RingError> {
        let (guest, size) = (descriptor.guest, descriptor.size);
        let writable = flags & WRITE != 0;
        if !writable && self.readable != self.parts.len() {
            return Err(RingError::Order);
        }
        let parts = &mut self.parts;
        let whole = memory.parts(guest, size, |part| parts.push(part));
        if !whole {
            return Err(RingError::OutOfMemory { guest, size });
        }
        self.descriptors += 1;
        if self.descriptors.max(self.parts.len()) > PIECES {
            return Err(RingError::TooLong(PIECES as u16));
        }
        if !writable {
            self.readable = self.parts.len();
        }
        Ok(())
    }

    /// Checks that a descriptor may be an indirect one here. Returns the number of descriptors in its table.
    pub(super) fn indirect(descriptor: &Descriptor, flags: u16, allowed: bool) -> Result<u32, RingError> {
        let entries = descriptor.size / super::DESCRIPTOR;
        let odd = !descriptor.size.is_multiple_of(super::DESCRIPTOR) || flags & NEXT != 0;
        if !allowed || odd || entries == 0 || entries > u32::from(super::LARGEST) {
            return Err(RingError::Indirect);
        }
        debug_assert!(flags & INDIRECT != 0);
        Ok(entries)
    }
}

// SAFETY: a chain points into guest memory, which any thread may use, and which it keeps mapped.
unsafe impl Send for Chain {}

/// The pieces of `take` bytes of `parts` from byte `skip` on.
pub(crate) fn pieces(parts: &[Part], skip: u64, take: u64) -> impl Iterator<Item = Part> {
    let (mut skip, mut left) = (skip, take);
    parts.iter().filter_map(move |part| {
        let size = u64::from(part.size);
        let skipped = skip.min(size);
        skip -= skipped;
        let taken = (size - skipped).min(left);
        left -= taken;
        let pointer = part.pointer.wrapping_add(skipped as usize);
        (taken > 0).then_some(Part { pointer, guest: part.guest + skipped, size: taken as u32 })
    })
}
