//! Packets on their way between two guests, in memory of this process.

use crate::device::net::header::NetHeader;
use crate::memory::Part;

/// A packet in a batch.
#[derive(Debug, Clone, Copy)]
struct Packet {
    /// The offloads that the packet still needs.
    header: NetHeader,
    start: u32,
    size: u32,
}

/// A list of packets in one buffer, which is reused.
///
/// The packets are copies. The receiver gets what was checked, even if the sender changes its memory meanwhile, and the
/// sender gets its buffers back at once, even if the receiver is slow.
#[derive(Debug, Default)]
pub struct Batch {
    bytes: Vec<u8>,
    packets: Vec<Packet>,
}

/// The memory that an empty batch keeps: bytes, and room for the packets of a turn.
const KEEP: usize = 1 << 18;
const KEEP_PACKETS: usize = 256;

impl Batch {
    /// Packets in it.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// Tests whether the batch is empty.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Bytes of all its packets.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// A packet: its header and its bytes.
    #[inline]
    #[must_use]
    pub fn get(&self, index: usize) -> Option<(&NetHeader, &[u8])> {
        let packet = self.packets.get(index)?;
        let start = packet.start as usize;
        Some((&packet.header, self.bytes.get(start..start + packet.size as usize)?))
    }

    /// Adds a packet of two pieces.
    pub fn add(&mut self, header: NetHeader, head: &[u8], data: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(head);
        self.bytes.extend_from_slice(data);
        self.end(start, header);
    }

    /// Copies a guest's packet whose head was copied and checked before; that replaces what the guest may have written
    /// there since. [`Self::end`] completes the packet.
    #[inline]
    pub(super) fn begin(&mut self, head: &[u8], parts: impl Iterator<Item = Part>) -> &mut [u8] {
        let start = self.bytes.len();
        parts.for_each(|part| self.copy(part));
        let whole = &mut self.bytes[start..];
        whole[..head.len()].copy_from_slice(head);
        whole
    }

    /// Adds a guest's packet that needs no offload, and whose first bytes were copied and checked before.
    #[inline]
    pub(super) fn add_plain<const FIRST: usize>(&mut self, first: &[u8; FIRST], part: Part) {
        let start = self.bytes.len();
        self.copy(part);
        if let Some(copied) = self.bytes[start..].first_chunk_mut() {
            *copied = *first;
        }
        self.end(start, NetHeader::NOTHING);
    }

    #[inline]
    fn copy(&mut self, part: Part) {
        let size = part.size as usize;
        self.bytes.reserve(size);
        let room = self.bytes.spare_capacity_mut();
        // SAFETY: the part is mapped guest memory of this size, and as much room was reserved. They do not overlap,
        // because guest memory is not part of this process's heap.
        unsafe { std::ptr::copy_nonoverlapping(part.pointer, room.as_mut_ptr().cast(), size) };
        // SAFETY: the bytes were just written.
        unsafe { self.bytes.set_len(self.bytes.len() + size) };
    }

    /// Ends the packet that starts at byte `start`.
    #[inline]
    pub(super) fn end(&mut self, start: usize, header: NetHeader) {
        let size = self.bytes.len() - start;
        // A batch has at most one turn's packets of 64 KiB each.
        self.packets.push(Packet { header, start: start as u32, size: size as u32 });
    }

    /// Removes the bytes from `start` on.
    pub(super) fn cut(&mut self, start: usize) {
        self.bytes.truncate(start);
    }

    /// The bytes from `start` on.
    pub(super) fn from(&mut self, start: usize) -> &mut [u8] {
        self.bytes.get_mut(start..).unwrap_or_default()
    }

    /// The memory that it holds, bytes.
    pub(super) fn capacity(&self) -> usize {
        self.bytes.capacity() + self.packets.capacity() * size_of::<Packet>()
    }

    /// Gives back memory beyond twice what its packets need, as much as the growth of a new batch leaves unused.
    pub(super) fn trim(&mut self) {
        self.bytes.shrink_to(2 * self.bytes.len());
        self.packets.shrink_to(2 * self.packets.len());
    }

    /// Makes it empty.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.packets.clear();
        self.bytes.shrink_to(KEEP);
        self.packets.shrink_to(KEEP_PACKETS);
    }
}
