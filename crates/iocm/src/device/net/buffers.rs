//! Delivery of packets to receive buffers, several for one packet with mergeable buffers (VIRTIO 1.3, 5.1.6.3).

use super::header::SIZE;
use super::packet::LARGEST;
use crate::queue::Virtqueue;
use crate::ring::{Chain, Side, units_of};

/// The result of delivering a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// The packet was delivered.
    Done,
    /// There are too few buffers for now.
    Short,
    /// The guest's buffers are too small for it.
    TooLarge,
}

/// The most buffers for a packet: enough for the largest one and its header in buffers of 256 bytes. The process keeps a
/// list of pieces for each, so the guest must not choose the number.
const MAX_MERGED: usize = (SIZE + LARGEST).div_ceil(256);

/// A packet gets no further buffer once this many descriptors have been read for it: a buffer may have a thousand
/// descriptors without any room.
const MAX_DESCRIPTORS: usize = 1024;

/// Tests whether a packet gets no further buffer.
#[inline]
const fn is_most(buffers: usize, descriptors: usize) -> bool {
    buffers == MAX_MERGED || descriptors >= MAX_DESCRIPTORS
}

/// The number of buffers that are taken together.
const TOGETHER: usize = 16;

/// The placement of packets in a guest's receive buffers.
#[derive(Debug)]
pub struct Buffers {
    /// The buffers of a packet, kept for reuse.
    chains: Vec<Chain>,
    /// A packet may use several buffers (`VIRTIO_NET_F_MRG_RXBUF`).
    merges: bool,
    /// The size of the guest's header.
    header: usize,
    /// See [`Self::extra`].
    extra: usize,
}

impl Buffers {
    /// Delivery with or without mergeable buffers, and with this size of header.
    #[must_use]
    pub fn new(merges: bool, header: usize) -> Self {
        Self { chains: vec![Chain::new()], merges, header: header.min(SIZE), extra: 0 }
    }

    /// The units of work since the last [`Self::take_extra`] that packets and their bytes do not show: long chains of
    /// descriptors.
    #[inline]
    pub(crate) const fn extra(&self) -> u32 {
        self.extra as u32
    }

    /// Returns [`Self::extra`], and resets it.
    #[inline]
    pub(crate) fn take_extra(&mut self) -> u32 {
        std::mem::take(&mut self.extra) as u32
    }

    /// Delivers packets that each fit in one buffer: the first of `packets`, up to one that does not fit or finds no
    /// buffer. Returns their number and their bytes.
    #[inline]
    pub(crate) fn deliver_small<'a>(
        &mut self,
        queue: &mut Virtqueue,
        count: usize,
        packets: impl Iterator<Item = ([u8; SIZE], &'a [u8])>,
    ) -> (usize, u64) {
        self.chain(TOGETHER - 1);
        let (mut taken, mut descriptors) = (0, 0);
        for chain in &mut self.chains[..count.min(TOGETHER)] {
            if descriptors >= MAX_DESCRIPTORS || !queue.pop(chain) {
                break;
            }
            chain.prefetch(64);
            descriptors += chain.descriptors();
            taken += 1;
        }
        let (mut given, mut bytes) = (0, 0);
        for ((header, frame), chain) in packets.zip(&self.chains[..taken]) {
            let needs = (self.header + frame.len()) as u64;
            if chain.bytes(Side::Writable) < needs {
                break;
            }
            fill_one(queue, chain, &header[..self.header], frame);
            queue.give(chain.id, needs as u32);
            given += 1;
            bytes += frame.len() as u64;
        }
        self.chains[given..taken].iter().rev().for_each(|chain| queue.put_back(chain.id));
        self.extra += units_of(descriptors, queue.memory());
        (given, bytes)
    }

    /// Delivers a packet with its header.
    #[inline]
    pub fn deliver(&mut self, queue: &mut Virtqueue, header: &[u8; SIZE], frame: &[u8]) -> Delivery {
        let needs = (self.header + frame.len()) as u64;
        let first = &mut self.chains[0];
        if !queue.pop(first) {
            return Delivery::Short;
        }
        self.extra += first.extra_units(queue.memory());
        let room = first.bytes(Side::Writable);
        if room >= needs {
            fill_one(queue, first, &header[..self.header], frame);
            queue.give(first.id, needs as u32);
            return Delivery::Done;
        }
        match self.merges && room >= self.header as u64 {
            true => self.deliver_merged(queue, *header, frame, room),
            false => {
                // A buffer without room for the header would block all packets: return it, and count an error.
                if room < self.header as u64 {
                    queue.count_error();
                    queue.give(first.id, 0);
                } else {
                    queue.put_back(first.id);
                }
                Delivery::TooLarge
            }
        }
    }

    fn deliver_merged(
        &mut self,
        queue: &mut Virtqueue,
        mut header: [u8; SIZE],
        frame: &[u8],
        mut room: u64,
    ) -> Delivery {
        let needs = (self.header + frame.len()) as u64;
        let (mut taken, mut descriptors) = (1, self.chains[0].descriptors());
        while room < needs {
            if is_most(taken, descriptors) {
                self.put_back(queue, taken);
                return Delivery::TooLarge;
            }
            let chain = self.chain(taken);
            if !queue.pop(chain) {
                return self.give_up(queue, taken);
            }
            room += chain.bytes(Side::Writable);
            descriptors += chain.descriptors();
            let units = chain.extra_units(queue.memory());
            self.extra += units;
            taken += 1;
        }
        // A ring has at most 32768 descriptors.
        header[SIZE - 2..].copy_from_slice(&(taken as u16).to_le_bytes());
        let mut left = frame;
        for (index, chain) in self.chains[..taken].iter().enumerate() {
            let skip = if index == 0 { chain.write(0, &header[..self.header]) } else { 0 };
            let done = chain.write(skip as u64, left);
            left = &left[done..];
            mark(queue, chain, (skip + done) as u64);
        }
        // After a kill the driver gets what was given, which should be whole packets.
        let mut left = needs;
        for chain in &self.chains[..taken] {
            let done = left.min(chain.bytes(Side::Writable));
            left -= done;
            queue.give(chain.id, done as u32);
        }
        Delivery::Done
    }

    /// Puts all buffers back. If half the ring has no room for the packet, it will never fit: guests refill rings that
    /// are half empty.
    fn give_up(&mut self, queue: &mut Virtqueue, taken: usize) -> Delivery {
        let chains = self.chains[..taken].iter();
        let descriptors: usize = chains.map(|chain| chain.parts(Side::Writable).len().max(1)).sum();
        self.put_back(queue, taken);
        match descriptors >= usize::from(queue.size()).div_ceil(2) {
            true => Delivery::TooLarge,
            false => Delivery::Short,
        }
    }

    /// Asks for a kick for more than the present buffers, which are too few. `true` if there are more already.
    pub fn enable_kicks(&mut self, queue: &mut Virtqueue) -> bool {
        let (mut taken, mut descriptors) = (0, 0);
        while !is_most(taken, descriptors) && queue.pop(self.chain(taken)) {
            descriptors += self.chains[taken].descriptors();
            taken += 1;
        }
        let more = is_most(taken, descriptors) || queue.enable_kicks();
        self.put_back(queue, taken);
        more
    }

    fn chain(&mut self, index: usize) -> &mut Chain {
        if index >= self.chains.len() {
            self.chains.resize_with(index + 1, Chain::default);
        }
        &mut self.chains[index]
    }

    fn put_back(&self, queue: &mut Virtqueue, taken: usize) {
        self.chains[..taken].iter().rev().for_each(|chain| queue.put_back(chain.id));
    }
}

/// Fills a buffer that is large enough.
// The compiler does not inline this by itself, which costs 50 instructions a packet.
#[inline(always)]
fn fill_one(queue: &Virtqueue, chain: &Chain, header: &[u8], frame: &[u8]) {
    match chain.parts(Side::Writable) {
        // The usual case: one descriptor.
        [part, ..] if part.size as usize >= header.len() + frame.len() => {
            match header.first_chunk::<SIZE>() {
                // SAFETY: the part is mapped guest memory with room for both, and neither is guest memory. The size is
                // a constant: a copy of variable size reads the header in other pieces than it was written in, so store
                // forwarding fails, and the CPU waits for all earlier stores, to cache lines that the guest's CPU has.
                Some(header) => unsafe { part.pointer.cast::<[u8; SIZE]>().write_unaligned(*header) },
                // SAFETY: as above.
                None => unsafe { std::ptr::copy_nonoverlapping(header.as_ptr(), part.pointer, header.len()) },
            }
            let data = part.pointer.wrapping_add(header.len());
            // SAFETY: as above.
            unsafe { std::ptr::copy_nonoverlapping(frame.as_ptr(), data, frame.len()) };
        }
        _ => {
            let skip = chain.write(0, header);
            chain.write(skip as u64, frame);
        }
    }
    mark(queue, chain, (header.len() + frame.len()) as u64);
}

/// Logs the first bytes of a buffer as written, if writes are logged.
#[inline]
fn mark(queue: &Virtqueue, chain: &Chain, size: u64) {
    if queue.memory().is_logged() {
        for part in chain.pieces(Side::Writable, 0, size) {
            queue.memory().wrote(part.guest, u64::from(part.size));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::QueueState;
    use crate::ring::RingFeatures;
    use crate::testing::{DATA, Driver};
    use std::sync::Arc;

    #[test]
    fn the_largest_packet_fits_in_buffers_of_256_bytes() {
        let features = RingFeatures { packed: false, event_index: true, indirect: true };
        let mut driver = Driver::new(512, features);
        for buffer in 0..300 {
            driver.add(&[(DATA + buffer * 256, 256, true)]).unwrap();
        }
        let mut queue = Virtqueue::new(driver.ring().unwrap(), None, Arc::<QueueState>::default());
        let mut buffers = Buffers::new(true, SIZE);
        assert_eq!(buffers.deliver(&mut queue, &[0; SIZE], &vec![7; LARGEST]), Delivery::Done);
    }

    #[test]
    fn buffers_of_empty_descriptors_are_not_all_read_for_each_packet() {
        let features = RingFeatures { packed: false, event_index: true, indirect: true };
        let mut driver = Driver::new(64, features);
        driver.add(&[(DATA, SIZE as u32, true)]).unwrap();
        for _ in 0..40 {
            driver.add_indirect(&[(DATA, 0, true); 1000]).unwrap();
        }
        let mut queue = Virtqueue::new(driver.ring().unwrap(), None, Arc::<QueueState>::default());
        let mut buffers = Buffers::new(true, SIZE);
        assert_eq!(buffers.deliver(&mut queue, &[0; SIZE], &[7; 60]), Delivery::TooLarge);
        assert_eq!(buffers.chains.len(), 3);
        assert!(buffers.enable_kicks(&mut queue), "there are enough for a packet that is dropped");
        assert_eq!(buffers.chains.len(), 3);
        let packets = || std::iter::repeat_n(([0; SIZE], &[7; 60][..]), TOGETHER);
        assert_eq!(buffers.deliver_small(&mut queue, TOGETHER, packets()), (0, 0));
        assert!(queue.broken().is_none());
    }
}
