//! A network device's driver.

use super::driver::{DATA, Driver, NEXT, Piece};
use crate::ring::RingFeatures;

/// A network device's driver with one pair of queues, in one guest's memory.
#[derive(Debug)]
pub struct NetDriver {
    /// The driver of the receive queue.
    pub receive: Driver,
    /// The driver of the transmit queue.
    pub transmit: Driver,
    /// The offered buffers by id: address and size.
    offered: Vec<(u64, u32)>,
    addresses: Vec<u64>,
    free_to_offer: Vec<u64>,
    free_to_send: Vec<u64>,
}

/// Room of a packet: header, the longest IP packet and its Ethernet header.
const ROOM: u64 = 0x1_1000;
/// Bytes of a header.
const HEADER: usize = 12;

impl NetDriver {
    /// A driver whose queues have `size` descriptors each.
    #[must_use]
    pub fn new(size: u16, features: RingFeatures) -> Self {
        let receive = Driver::new(size, features);
        let transmit = receive.another(1);
        let count = u64::from(size).min(80);
        let addresses = |from: u64| (0..count).map(|address| from + address * ROOM).collect::<Vec<_>>();
        Self {
            offered: vec![(0, 0); usize::from(size)],
            addresses: vec![0; usize::from(size)],
            free_to_offer: addresses(DATA),
            free_to_send: addresses(DATA + NEXT),
            receive,
            transmit,
        }
    }

    /// Sends a packet with the first 10 bytes of its header, in one piece. Returns its buffer id.
    pub fn send(&mut self, header: [u8; 10], frame: &[u8]) -> Option<u16> {
        self.send_cut(header, frame, &[])
    }

    /// The same in several pieces, which end at these offsets in header and packet together.
    pub fn send_cut(&mut self, header: [u8; 10], frame: &[u8], cuts: &[usize]) -> Option<u16> {
        let whole = [&header[..], &[0, 0], frame].concat();
        let address = self.free_to_send.pop()?;
        self.transmit.write(address, &whole);
        let ends: Vec<usize> = cuts.iter().copied().chain([whole.len()]).collect();
        let mut from = 0;
        let pieces = ends.iter().map(|end| {
            let piece = (address + from as u64, (end - from) as u32, false);
            from = *end;
            piece
        });
        let pieces: Vec<Piece> = pieces.collect();
        let added = self.transmit.add(&pieces);
        match added {
            Some(id) => self.addresses[usize::from(id)] = address,
            None => self.free_to_send.push(address),
        }
        added
    }

    /// The buffer id of the next packet that was sent, or dropped.
    pub fn sent(&mut self) -> Option<u16> {
        let (id, _) = self.transmit.take()?;
        let address = std::mem::take(&mut self.addresses[usize::from(id)]);
        if address != 0 {
            self.free_to_send.push(address);
        }
        Some(id)
    }

    /// Offers a buffer of this many bytes to receive into.
    pub fn offer(&mut self, size: u32) -> Option<u16> {
        let address = self.free_to_offer.pop()?;
        let added = self.receive.add(&[(address, size, true)]);
        match added {
            Some(id) => self.offered[usize::from(id)] = (address, size),
            None => self.free_to_offer.push(address),
        }
        added
    }

    /// A packet that was received: its header, its bytes, and the number of its buffers.
    pub fn received(&mut self) -> Option<([u8; HEADER], Vec<u8>, usize)> {
        let mut whole = self.received_part()?;
        let count =
            usize::from(*whole.get(10).unwrap_or(&0)) | usize::from(*whole.get(11).unwrap_or(&0)) << 8;
        for _ in 1..count {
            whole.extend(self.received_part()?);
        }
        let header = *whole.first_chunk::<HEADER>()?;
        Some((header, whole.split_off(HEADER), count))
    }

    fn received_part(&mut self) -> Option<Vec<u8>> {
        let (id, written) = self.receive.take()?;
        let (address, size) = self.offered[usize::from(id)];
        self.free_to_offer.push(address);
        Some(self.receive.read(address, written.min(size) as usize))
    }
}
