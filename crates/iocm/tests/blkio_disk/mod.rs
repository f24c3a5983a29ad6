//! A disk as libblkio sees it: an independent implementation of the protocol and of rings.

use blkio::{Blkio, Blkioq, Completion, MemoryRegion};
use std::mem::MaybeUninit;
use std::path::Path;
use std::time::Duration;

/// Bytes of the disk.
pub(crate) const DISK: u64 = 8 << 20;
/// Bytes of a block.
pub(crate) const BLOCK: usize = 4096;

/// A disk and its front-end, with room for 16 blocks.
pub(crate) struct Disk {
    _blkio: Blkio,
    /// Its queue.
    pub(crate) queue: Blkioq,
    memory: MemoryRegion,
}

impl Disk {
    /// Connects to a device.
    pub(crate) fn connect(socket: &Path) -> Self {
        let mut blkio = Blkio::new("virtio-blk-vhost-user").unwrap();
        blkio.set_str("path", socket.to_str().unwrap()).unwrap();
        blkio.connect().unwrap();
        assert_eq!(blkio.get_u64("capacity").unwrap(), DISK);
        let mut queue = blkio.start().unwrap().queues.remove(0);
        queue.set_completion_fd_enabled(true);
        let memory = blkio.alloc_mem_region(16 * BLOCK).unwrap();
        blkio.map_mem_region(&memory).unwrap();
        Self { _blkio: blkio, queue, memory }
    }

    /// Connects to a device of any size.
    #[allow(dead_code, reason = "not all tests need it")]
    pub(crate) fn connect_to_any(socket: &Path) -> Blkio {
        let mut blkio = Blkio::new("virtio-blk-vhost-user").unwrap();
        blkio.set_str("path", socket.to_str().unwrap()).unwrap();
        blkio.connect().unwrap();
        blkio
    }

    /// The address of a block in the front-end's memory.
    pub(crate) fn block(&self, slot: usize) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.memory.addr + slot * BLOCK)
    }

    /// Fills a block.
    #[allow(dead_code, reason = "not all tests need it")]
    pub(crate) fn fill(&self, slot: usize, byte: u8) {
        // SAFETY: the region has 16 blocks.
        unsafe { self.block(slot).write_bytes(byte, BLOCK) };
    }

    /// Tests whether all bytes of a block have this value.
    #[allow(dead_code, reason = "not all tests need it")]
    pub(crate) fn holds(&self, slot: usize, byte: u8) -> bool {
        // SAFETY: as above; no request is in flight.
        let bytes = unsafe { std::slice::from_raw_parts(self.block(slot), BLOCK) };
        bytes.iter().all(|one| *one == byte)
    }

    /// Waits until this many requests have completed. Returns their results.
    pub(crate) fn wait(&mut self, count: usize) -> Vec<i32> {
        let mut ended: Vec<MaybeUninit<Completion>> = (0..count).map(|_| MaybeUninit::uninit()).collect();
        let mut time = Duration::from_secs(20);
        let done = self.queue.do_io(&mut ended, count, Some(&mut time), None).unwrap();
        assert_eq!(done, count);
        // SAFETY: libblkio has initialized all of them.
        ended.iter().map(|one| unsafe { one.assume_init_read() }.ret).collect()
    }
}
