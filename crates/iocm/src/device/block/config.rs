//! The configuration space and the features of a block device (VIRTIO 1.3, 5.2.3 and 5.2.4).

use super::BlockDevice;
use crate::protocol::VirtioFeatures;

/// `size_max`: the largest segment of a request, bytes.
const SEGMENT_BYTES: u32 = 1 << 20;
/// `seg_max`: the most segments of a request, without header and status.
const SEGMENTS: u32 = 254;
/// The largest request that a driver can make within both limits, bytes. Larger ones are answered with an error.
pub(super) const MAX_BYTES: u64 = SEGMENT_BYTES as u64 * SEGMENTS as u64;
/// The most sectors of a discard or write-zeroes range.
pub(super) const RANGE_SECTORS: u32 = 1 << 22;
/// The most ranges of a discard or write-zeroes request.
pub(super) const RANGES: u32 = 32;

const F_SIZE_MAX: u64 = 1 << 1;
const F_SEG_MAX: u64 = 1 << 2;
const F_RO: u64 = 1 << 5;
const F_BLK_SIZE: u64 = 1 << 6;
const F_FLUSH: u64 = 1 << 9;
const F_TOPOLOGY: u64 = 1 << 10;
const F_CONFIG_WCE: u64 = 1 << 11;
const F_MQ: u64 = 1 << 12;
const F_DISCARD: u64 = 1 << 13;
const F_WRITE_ZEROES: u64 = 1 << 14;
/// A legacy driver may divide a request into descriptors as it likes, as each driver of VIRTIO 1.0 may.
const F_ANY_LAYOUT: u64 = 1 << 27;

/// The size of the configuration space that is offered: up to the fields of write-zeroes.
const SIZE: usize = 60;
/// The offset of `writeback`.
const WRITEBACK: usize = 32;

/// An access to the configuration space that is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigSpaceError {
    /// It is out of bounds.
    #[error("{size} bytes at {offset} are beyond the {SIZE} bytes of the configuration space")]
    Beyond {
        /// The first byte of the access.
        offset: u32,
        /// The number of bytes.
        size: u32,
    },
    /// The field is read-only.
    #[error("byte {0} of the configuration space is read-only")]
    ReadOnly(u32),
    /// The disk always has a write cache.
    #[error("the write cache cannot be switched off")]
    WriteThrough,
}

/// The feature bits of the device type.
#[must_use]
pub fn features(device: &BlockDevice) -> u64 {
    let usual = F_SIZE_MAX | F_SEG_MAX | F_BLK_SIZE | F_FLUSH | F_TOPOLOGY;
    let several = if device.options.queues > 1 { F_MQ } else { 0 };
    let writable = match device.options.read_only {
        true => F_RO,
        false => F_DISCARD | F_WRITE_ZEROES,
    };
    usual | several | writable
}

/// Features that are not offered, but accepted. An earlier daemon offered `VIRTIO_BLK_F_CONFIG_WCE` for disks that can be
/// written. QEMU itself offers `VIRTIO_F_ANY_LAYOUT` to legacy guests and passes their answer on, because it is not among
/// the `user_feature_bits` of hw/block/vhost-user-blk.c. It needs no support: requests of each layout are understood.
pub(super) const fn accepted(read_only: bool) -> u64 {
    F_ANY_LAYOUT | if read_only { 0 } else { F_CONFIG_WCE }
}

/// Tests whether each write must be on stable storage before its answer: without `VIRTIO_BLK_F_FLUSH` the guest cannot
/// flush (5.2.6.2).
pub(super) const fn is_write_through(features: VirtioFeatures) -> bool {
    features.0 & F_FLUSH == 0
}

impl BlockDevice {
    /// Reads the configuration space. Bytes after its end are zero, because front-ends ask for more than there is.
    #[must_use]
    pub(crate) fn read_config(&self, offset: u32, size: u32) -> Vec<u8> {
        let block = self.options.block_size;
        let mut all = [0; SIZE];
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            all[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        put(&self.capacity().to_le_bytes());
        put(&SEGMENT_BYTES.to_le_bytes());
        put(&SEGMENTS.to_le_bytes());
        // No geometry.
        put(&[0; 4]);
        put(&block.to_le_bytes());
        // Topology: physical blocks are logical blocks, no alignment offset, the minimum I/O size in blocks. The optimal size
        // is not known: from 6.17 on, Linux reads ahead twice what is given (block/blk-settings.c, `blk_apply_bdi_limits`).
        put(&[0, 0]);
        put(&1_u16.to_le_bytes());
        put(&0_u32.to_le_bytes());
        put(&[1, 0]);
        put(&self.options.queues.to_le_bytes());
        let alignment = block.max(self.storage.granule()) / super::SECTOR as u32;
        for word in [RANGE_SECTORS, RANGES, alignment, RANGE_SECTORS, RANGES] {
            put(&word.to_le_bytes());
        }
        // `write_zeroes_may_unmap`.
        put(&[1]);
        let byte = |at: u32| all.get(at as usize).copied().unwrap_or(0);
        (offset..offset.saturating_add(size)).map(byte).collect()
    }

    /// Writes to the configuration space. Only `writeback` can be written, and only to turn the cache on. Front-ends do
    /// not repeat the write to the next daemon, which would not know that the guest has turned the cache off and does
    /// not flush.
    ///
    /// # Errors
    /// [`ConfigSpaceError`].
    pub(crate) fn write_config(&self, offset: u32, bytes: &[u8]) -> Result<(), ConfigSpaceError> {
        let size = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        match (offset as usize, bytes.len()) {
            (WRITEBACK, 1) if bytes == [1] => Ok(()),
            (WRITEBACK, 1) => Err(ConfigSpaceError::WriteThrough),
            _ if offset.saturating_add(size) as usize > SIZE => {
                Err(ConfigSpaceError::Beyond { offset, size })
            }
            _ => Err(ConfigSpaceError::ReadOnly(offset)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::BlockOptions;
    use super::*;

    #[test]
    fn each_field_is_at_its_place() {
        let options = BlockOptions { queues: 3, null_size: 1 << 20, ..BlockOptions::default() };
        let device = BlockDevice::open(options).unwrap();
        // `virtio_blk_config` (VIRTIO 1.3, 5.2.4): offset and bytes of each field.
        for (field, offset, size, value) in [
            ("capacity", 0, 8, 2048),
            ("size_max", 8, 4, 1 << 20),
            ("seg_max", 12, 4, 254),
            ("geometry", 16, 4, 0),
            ("blk_size", 20, 4, 512),
            ("topology.physical_block_exp", 24, 1, 0),
            ("topology.alignment_offset", 25, 1, 0),
            ("topology.min_io_size", 26, 2, 1),
            ("topology.opt_io_size", 28, 4, 0),
            ("writeback", 32, 1, 1),
            ("unused0", 33, 1, 0),
            ("num_queues", 34, 2, 3),
            ("max_discard_sectors", 36, 4, 1 << 22),
            ("max_discard_seg", 40, 4, 32),
            ("discard_sector_alignment", 44, 4, 1),
            ("max_write_zeroes_sectors", 48, 4, 1 << 22),
            ("max_write_zeroes_seg", 52, 4, 32),
            ("write_zeroes_may_unmap", 56, 1, 1),
            ("unused1", 57, 3, 0),
            ("what comes after them", 60, 8, 0),
        ] {
            let bytes = device.read_config(offset, size);
            assert_eq!(bytes.len(), size as usize, "{field}");
            let found = bytes.iter().rev().fold(0_u64, |found, byte| found << 8 | u64::from(*byte));
            assert_eq!(found, value, "{field}");
        }
    }

    #[test]
    fn the_number_of_ranges_is_that_of_the_documents() {
        for text in [
            include_str!("../../../../../docs/iocm-host.md"),
            include_str!("../../../../../scripts/iocm-peers"),
        ] {
            assert!(text.contains(&format!("ours takes {RANGES}")) && text.contains("max_discard_seg"));
        }
    }
}
