//! What a request of a block device asks for (VIRTIO 1.3, 5.2.6).

use super::config::{MOST_BYTES, RANGE_SECTORS, RANGES};
use super::{BlockDevice, SECTOR};
use crate::ring::{Chain, Side};

/// Bytes of the header.
pub(super) const HEADER: u64 = 16;
/// Bytes of a range of a discard or of zeroes.
const RANGE: u64 = 16;

/// How a request ended (5.2.6: `VIRTIO_BLK_S_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Status {
    /// As asked.
    Ok = 0,
    /// It failed.
    Failed = 1,
    /// It is no request that this device knows.
    Unsupported = 2,
}

/// A part of the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    /// First byte.
    pub(super) offset: u64,
    /// Bytes.
    pub(super) size: u64,
    /// Zeroes only: whether the space may be given up.
    pub(super) may_discard: bool,
}

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum BlockRequest {
    /// Data from the disk at this byte; so many bytes.
    Read(u64, u64),
    /// Data to the disk.
    Write(u64, u64),
    /// Everything that was written before is to be on the disk.
    Flush,
    /// The disk's name.
    Identify,
    /// What is in these parts is of no use any more.
    Discard(Vec<Range>),
    /// These parts are to read as zeroes.
    WriteZeroes(Vec<Range>),
}

impl BlockRequest {
    /// Reads the header. The status byte, the last that can be written, is not counted as data.
    ///
    /// # Errors
    /// The status to answer with.
    pub(super) fn parse(chain: &Chain, device: &BlockDevice) -> Result<Self, Status> {
        let mut header = [0; HEADER as usize];
        if chain.read(0, &mut header) < header.len() {
            return Err(Status::Failed);
        }
        let word =
            |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        #[cfg(debug_assertions)]
        crate::testing::panic_if_armed(word(0));
        let sector = u64::from(word(8)) | u64::from(word(12)) << 32;
        let read_only = device.options.read_only;
        let out = chain.bytes(Side::Readable) - HEADER;
        let back = chain.bytes(Side::Writable).saturating_sub(1);
        if out > MOST_BYTES || back > MOST_BYTES {
            return Err(Status::Failed);
        }
        match word(0) {
            0 => data(sector, back, device).map(|offset| Self::Read(offset, back)),
            1 if read_only => Err(Status::Failed),
            1 => data(sector, out, device).map(|offset| Self::Write(offset, out)),
            4 => Ok(Self::Flush),
            8 => Ok(Self::Identify),
            11 | 13 if read_only => Err(Status::Failed),
            11 => ranges(chain, out, device).map(Self::Discard),
            13 => ranges(chain, out, device).map(Self::WriteZeroes),
            _ => Err(Status::Unsupported),
        }
    }
}

/// Where data is on the disk, in bytes, when all of it is within.
fn data(sector: u64, size: u64, device: &BlockDevice) -> Result<u64, Status> {
    let sectors = size / SECTOR;
    let end = sector.checked_add(sectors).ok_or(Status::Failed)?;
    match size.is_multiple_of(SECTOR) && end <= device.capacity() {
        true => Ok(sector * SECTOR),
        false => Err(Status::Failed),
    }
}

fn ranges(chain: &Chain, size: u64, device: &BlockDevice) -> Result<Vec<Range>, Status> {
    if size == 0 || !size.is_multiple_of(RANGE) || size / RANGE > u64::from(RANGES) {
        return Err(Status::Failed);
    }
    (0..size / RANGE)
        .map(|number| {
            let mut bytes = [0; RANGE as usize];
            chain.read(HEADER + number * RANGE, &mut bytes);
            let [a, b, c, d, e, f, g, h, i, j, k, l, flags @ ..] = bytes;
            let sectors = u32::from_le_bytes([i, j, k, l]);
            let flags = u32::from_le_bytes(flags);
            // All bits but the first are reserved (5.2.6.2).
            if flags & !1 != 0 {
                return Err(Status::Unsupported);
            }
            if sectors > RANGE_SECTORS {
                return Err(Status::Failed);
            }
            let size = u64::from(sectors) * SECTOR;
            let offset = data(u64::from_le_bytes([a, b, c, d, e, f, g, h]), size, device)?;
            Ok(Range { offset, size, may_discard: flags & 1 != 0 })
        })
        .collect()
}
