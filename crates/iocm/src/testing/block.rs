//! A block device's driver.

use super::driver::{DATA, Driver, SIZE};
use crate::ring::RingFeatures;

/// Requests of a block device's driver: each has its own place for header, data and status.
#[derive(Debug)]
pub struct BlockDriver {
    /// The ring's driver.
    pub driver: Driver,
    /// The place of each buffer in use.
    addresses: Vec<u64>,
    free: Vec<u64>,
    room: u32,
}

/// Bytes of data that a request has room for.
const ROOM: u32 = 0x8000;

impl BlockDriver {
    /// A driver with requests of up to 32 KiB.
    #[must_use]
    pub fn new(size: u16, features: RingFeatures) -> Self {
        let driver = Driver::new(size, features);
        let count = (SIZE - DATA) / u64::from(2 * ROOM);
        let free =
            (0..count.min(u64::from(size))).map(|address| DATA + address * u64::from(2 * ROOM)).collect();
        Self { driver, addresses: vec![0; usize::from(size)], free, room: ROOM }
    }

    /// Makes a request available: its type (0 reads, 1 writes, 4 flushes), its sector, and the data to write or the
    /// number of bytes to read. Returns its buffer id; `None` if there is no room.
    pub fn submit(&mut self, kind: u32, sector: u64, write: &[u8], read: u32) -> Option<u16> {
        let address = self.free.pop()?;
        let header: Vec<u8> = [&kind.to_le_bytes()[..], &[0; 4], &sector.to_le_bytes()].concat();
        self.driver.write(address, &header);
        let data = address + u64::from(self.room);
        let status = address + 0x100;
        self.driver.write(status, &[0xff]);
        let mut pieces = vec![(address, 16, false)];
        if !write.is_empty() {
            self.driver.write(data, write);
            pieces.push((data, write.len() as u32, false));
        }
        if read > 0 {
            pieces.push((data, read, true));
        }
        pieces.push((status, 1, true));
        let added = match self.driver.features.indirect {
            true => self.driver.add_indirect(&pieces),
            false => self.driver.add(&pieces),
        };
        let Some(id) = added else {
            self.free.push(address);
            return None;
        };
        self.addresses[usize::from(id)] = address;
        Some(id)
    }

    /// The next completed request: its buffer id, its status, and the data that was read.
    pub fn ended(&mut self) -> Option<(u16, u8, Vec<u8>)> {
        let (id, written) = self.driver.take()?;
        let address = self.addresses[usize::from(id)];
        let status = self.driver.read(address + 0x100, 1)[0];
        let size = (written.max(1) - 1).min(self.room) as usize;
        let data = self.driver.read(address + u64::from(self.room), size);
        self.free.push(address);
        Some((id, status, data))
    }
}
