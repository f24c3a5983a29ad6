//! Requests of a block device (VIRTIO 1.3, 5.2.6).

use super::config::{MAX_BYTES, RANGE_SECTORS, RANGES};
use super::{BlockDevice, SECTOR};
use crate::ring::{Chain, Side};

/// Bytes of the header.
pub(super) const HEADER: u64 = 16;
/// The bytes of a range in a discard or write-zeroes request.
const RANGE: u64 = 16;
/// `VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP`, which a discard must not have (5.2.6.2). The other bits are reserved.
const UNMAP: u32 = 1;

/// The status of a request (5.2.6: `VIRTIO_BLK_S_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Status {
    /// The request was carried out.
    Ok = 0,
    /// It failed (`VIRTIO_BLK_S_IOERR`).
    Failed = 1,
    /// The device does not support it (`VIRTIO_BLK_S_UNSUPP`).
    Unsupported = 2,
}

/// A range of the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    /// First byte.
    pub(super) offset: u64,
    /// Bytes.
    pub(super) size: u64,
    /// Write-zeroes only: the range may be unmapped.
    pub(super) may_discard: bool,
}

/// A request of the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum BlockRequest {
    /// Reads: the offset on the disk, and the number of bytes.
    Read(u64, u64),
    /// Writes: the offset on the disk, and the number of bytes.
    Write(u64, u64),
    /// Flushes all earlier writes to the disk.
    Flush,
    /// Reads the serial number.
    Identify,
    /// The driver no longer needs the data in these ranges.
    Discard(Vec<Range>),
    /// These ranges must read as zeroes.
    WriteZeroes(Vec<Range>),
}

impl BlockRequest {
    /// Parses the header. The status byte, the last writable one, does not count as data.
    ///
    /// # Errors
    ///
    /// The status for the answer.
    pub(super) fn parse(chain: &Chain, device: &BlockDevice) -> Result<Self, Status> {
        let mut header = [0; HEADER as usize];
        if chain.read(0, &mut header) < header.len() {
            return Err(Status::Failed);
        }
        let word =
            |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        #[cfg(debug_assertions)]
        crate::testing::panic_if_enabled(word(0));
        let sector = u64::from(word(8)) | u64::from(word(12)) << 32;
        let read_only = device.options.read_only;
        let out = chain.bytes(Side::Readable) - HEADER;
        let back = chain.bytes(Side::Writable).saturating_sub(1);
        if out > MAX_BYTES || back > MAX_BYTES {
            return Err(Status::Failed);
        }
        match word(0) {
            0 => data(sector, back, device).map(|offset| Self::Read(offset, back)),
            1 if read_only => Err(Status::Failed),
            1 => data(sector, out, device).map(|offset| Self::Write(offset, out)),
            4 => Ok(Self::Flush),
            8 => Ok(Self::Identify),
            11 | 13 if read_only => Err(Status::Failed),
            11 => ranges(chain, out, device, 0).map(Self::Discard),
            13 => ranges(chain, out, device, UNMAP).map(Self::WriteZeroes),
            _ => Err(Status::Unsupported),
        }
    }
}

/// The offset of a request on the disk, in bytes, if the request lies within the disk.
fn data(sector: u64, size: u64, device: &BlockDevice) -> Result<u64, Status> {
    let sectors = size / SECTOR;
    let end = sector.checked_add(sectors).ok_or(Status::Failed)?;
    match size.is_multiple_of(SECTOR) && end <= device.capacity() {
        true => Ok(sector * SECTOR),
        false => Err(Status::Failed),
    }
}

/// The ranges of a request, each with no other flags than `allowed`.
fn ranges(chain: &Chain, size: u64, device: &BlockDevice, allowed: u32) -> Result<Vec<Range>, Status> {
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
            if flags & !allowed != 0 {
                return Err(Status::Unsupported);
            }
            if sectors > RANGE_SECTORS {
                return Err(Status::Failed);
            }
            let size = u64::from(sectors) * SECTOR;
            let offset = data(u64::from_le_bytes([a, b, c, d, e, f, g, h]), size, device)?;
            Ok(Range { offset, size, may_discard: flags & UNMAP != 0 })
        })
        .collect()
}
