//! The block device (VIRTIO 1.3, 5.2).

mod bounce;
mod config;
mod discards;
mod queue;
mod request;
mod slot;
mod storage;

use super::{Device, Limit, ResizeError};
use crate::protocol::{ProtocolFeatures, VirtioFeatures};
use crate::queue::Handler;
use discards::Discards;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

pub use config::{ConfigSpaceError, features};
pub use queue::BlockQueue;
#[cfg(test)]
pub(crate) use storage::tests::disk_over;
pub use storage::{Storage, StorageError};

/// The size of a sector in bytes, whatever the block size of the disk.
pub const SECTOR: u64 = 512;

/// The bytes of a serial number (5.2.6: `VIRTIO_BLK_ID_BYTES`).
pub(crate) const SERIAL_BYTES: usize = 20;

/// The options of a block device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockOptions {
    /// The file or block device; `None` for a null disk, which discards what is written.
    pub path: Option<PathBuf>,
    /// The size of a null disk, bytes.
    pub null_size: u64,
    /// The guest may only read.
    pub read_only: bool,
    /// Bypass the host's page cache (`O_DIRECT`).
    pub direct: bool,
    /// It is a raw disk, whatever its first bytes look like.
    pub raw: bool,
    /// Others who also share it may write to the file meanwhile.
    pub share_rw: bool,
    /// The block size that the guest sees, bytes.
    pub block_size: u32,
    /// Its serial number, at most 20 bytes.
    pub serial: String,
    /// The largest number of queues.
    pub queues: u16,
    /// Requests per second, 0 for no limit.
    pub requests_a_second: u64,
    /// Bytes per second, 0 for no limit.
    pub bytes_a_second: u64,
}

impl Default for BlockOptions {
    fn default() -> Self {
        Self {
            path: None,
            null_size: 1 << 30,
            read_only: false,
            direct: false,
            raw: false,
            share_rw: false,
            block_size: SECTOR as u32,
            serial: String::new(),
            queues: 1,
            requests_a_second: 0,
            bytes_a_second: 0,
        }
    }
}

/// A block device, shared by all its queues.
#[derive(Debug)]
pub struct BlockDevice {
    storage: Storage,
    options: BlockOptions,
    /// In sectors.
    capacity: AtomicU64,
    /// Held while it is resized: of two at a time, the smaller one would cut the file that the other one has grown.
    resizing: Mutex<()>,
    requests: Limit,
    bytes: Limit,
    discards: Discards,
    /// It has the lock for writing, or is read-only and needs none.
    locked: Mutex<bool>,
}

/// The longest wait for the lock for writing: the last writes of a daemon that was killed take milliseconds, unless its
/// disk does not answer.
const LOCK_PATIENCE: Duration = Duration::from_millis(if cfg!(test) { 50 } else { 1000 });
/// The time between two attempts.
const LOCK_RETRY: Duration = Duration::from_millis(10);

/// The sectors of the whole blocks in this many bytes.
fn sectors(bytes: u64, block_size: u32) -> u64 {
    let block = u64::from(block_size);
    bytes / block * block / SECTOR
}

impl BlockDevice {
    /// Opens its file.
    ///
    /// # Errors
    /// [`StorageError`].
    pub fn open(options: BlockOptions) -> Result<Arc<Self>, StorageError> {
        let storage = match &options.path {
            Some(path) => Storage::open(path, &options)?,
            None => Storage::Null,
        };
        Self::over(storage, options)
    }

    /// Creates the device on storage that is already open.
    fn over(storage: Storage, options: BlockOptions) -> Result<Arc<Self>, StorageError> {
        storage.check_block_size(options.block_size)?;
        let size = storage.size()?.unwrap_or(options.null_size);
        Ok(Arc::new(Self {
            capacity: AtomicU64::new(sectors(size, options.block_size)),
            resizing: Mutex::default(),
            requests: Limit::new(options.requests_a_second),
            bytes: Limit::new(options.bytes_a_second),
            discards: Discards::default(),
            locked: Mutex::default(),
            storage,
            options,
        }))
    }

    /// Makes the handler of one of its queues, which has `size` descriptors.
    #[must_use]
    pub fn queue(self: &Arc<Self>, size: u16) -> BlockQueue {
        BlockQueue::new(Arc::clone(self), size, false)
    }

    /// The capacity in sectors.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.capacity.load(Ordering::Relaxed)
    }

    /// Its options.
    #[must_use]
    pub const fn options(&self) -> &BlockOptions {
        &self.options
    }

    /// Takes over the size of a file that another daemon may have grown: a guest that migrates here keeps the size that
    /// it knows from there.
    fn grow_with_file(&self) {
        let _alone = self.resizing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Ok(Some(has)) = self.storage.size() {
            self.capacity.fetch_max(sectors(has, self.options.block_size), Ordering::Relaxed);
        }
    }
}

impl Device for Arc<BlockDevice> {
    fn kind(&self) -> &'static str {
        "block"
    }

    fn features(&self) -> u64 {
        features(self)
    }

    fn accepted_features(&self) -> u64 {
        config::accepted(self.options.read_only)
    }

    fn protocol_features(&self) -> u64 {
        ProtocolFeatures::INFLIGHT
    }

    fn queues(&self) -> u16 {
        self.options.queues
    }

    fn handler(&self, _index: u16, size: u16, features: VirtioFeatures) -> Box<dyn Handler> {
        Box::new(BlockQueue::new(Arc::clone(self), size, config::is_write_through(features)))
    }

    /// Takes the lock for writing. During a live migration two daemons have the file open, and only the one whose queues
    /// are started has the lock.
    fn acquire(&self) -> Result<(), String> {
        let mut locked = self.locked.lock().unwrap_or_else(PoisonError::into_inner);
        if *locked {
            return Ok(());
        }
        let end = Instant::now() + LOCK_PATIENCE;
        while !self.options.read_only && !self.storage.lock(self.options.share_rw) {
            if Instant::now() >= end {
                let path = self.options.path.as_deref().unwrap_or_else(|| Path::new("the disk"));
                return Err(format!(
                    "another program or device writes to {} or has it locked (QEMU's image lock); end its use, or set \
                     `share-rw = true` for all its devices if guests can share it",
                    path.display()
                ));
            }
            std::thread::sleep(LOCK_RETRY);
        }
        *locked = true;
        drop(locked);
        self.grow_with_file();
        Ok(())
    }

    /// Only a device that has the lock for writing has written. The mutex is not held meanwhile, so that a disk that does
    /// not answer does not hold the thread that removes the device.
    fn write_back(&self) -> bool {
        let is_started = *self.locked.lock().unwrap_or_else(PoisonError::into_inner);
        self.options.read_only || !is_started || self.storage.write_back()
    }

    fn release(&self) {
        let mut locked = self.locked.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::take(&mut *locked) {
            self.storage.unlock();
        }
    }

    fn limits(&self) -> Vec<[&Limit; 2]> {
        vec![[&self.requests, &self.bytes]]
    }

    fn size(&self) -> Option<u64> {
        Some(self.capacity() * SECTOR)
    }

    /// Grows the disk. It never shrinks: the guest's data after the new end would be lost. Nor does it get smaller than its
    /// file: the guest is told the file's size when it asks.
    fn resize(&self, bytes: Option<u64>) -> Result<(), ResizeError> {
        let _alone = self.resizing.lock().unwrap_or_else(PoisonError::into_inner);
        let has = self.storage.size().map_err(|error| match error {
            StorageError::Size { path, source } => ResizeError::File { path, source },
            _ => ResizeError::Unsized,
        })?;
        let of_file = has.map_or(0, |has| sectors(has, self.options.block_size));
        let now = of_file.max(self.capacity()) * SECTOR;
        let wanted = bytes.or(has).unwrap_or(now);
        let block = u64::from(self.options.block_size);
        if wanted < now || !wanted.is_multiple_of(block) && bytes.is_some() {
            return Err(ResizeError::Size { now, block });
        }
        if has.is_some_and(|has| has < wanted) {
            self.storage.grow(wanted)?;
        }
        self.capacity.store(sectors(wanted, self.options.block_size), Ordering::Relaxed);
        Ok(())
    }

    fn config(&self, offset: u32, size: u32) -> Vec<u8> {
        self.grow_with_file();
        self.read_config(offset, size)
    }

    fn set_config(&self, offset: u32, bytes: &[u8]) -> Result<(), String> {
        self.write_config(offset, bytes).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn a_disk_that_another_daemon_has_grown_is_as_large_for_the_guest_that_comes() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let set_size = |mib: u64| file.as_file().set_len(mib << 20).unwrap();
        for read_only in [false, true] {
            set_size(1);
            let path = Some(file.path().to_owned());
            let options = BlockOptions { path, read_only, ..BlockOptions::default() };
            let device = BlockDevice::open(options).unwrap();
            let told = || u64::from_le_bytes(Device::config(&device, 0, 8).try_into().unwrap()) * SECTOR;
            set_size(2);
            assert_eq!(told(), 2 << 20);
            // The guest already uses what is new.
            set_size(3);
            assert_eq!(device.acquire(), Ok(()));
            assert_eq!(device.size(), Some(3 << 20), "read-only: {read_only}");
            set_size(4);
            assert_eq!((device.acquire(), device.size()), (Ok(()), Some(3 << 20)), "it has been started");
            device.release();
            set_size(1);
            assert_eq!(device.acquire(), Ok(()));
            assert_eq!((told(), device.size()), (3 << 20, Some(3 << 20)), "it does not shrink");
        }
    }

    #[test]
    fn a_disk_does_not_get_smaller_than_its_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        let options = BlockOptions { path: Some(file.path().to_owned()), ..BlockOptions::default() };
        let device = BlockDevice::open(options).unwrap();
        // The last bytes are not a whole block.
        file.as_file().set_len((4 << 20) + 100).unwrap();
        let error = device.resize(Some(2 << 20)).unwrap_err().to_string();
        assert!(error.contains("4194304"), "{error}");
        assert_eq!(device.size(), Some(1 << 20));
        device.resize(Some(4 << 20)).unwrap();
        assert_eq!(device.size(), Some(4 << 20));
        device.resize(None).unwrap();
        assert_eq!(device.size(), Some(4 << 20));
        device.resize(Some(5 << 20)).unwrap();
        assert_eq!((device.size(), file.as_file().metadata().unwrap().len()), (Some(5 << 20), 5 << 20));
    }

    #[test]
    fn only_one_that_writes_through_the_page_cache_has_data_to_write_back() {
        for (alignment, read_only, has_data) in [(1, false, true), (1, true, false), (512, false, false)] {
            // It cannot be flushed.
            let file = std::fs::File::open("/dev/null").unwrap();
            let options = BlockOptions { read_only, share_rw: true, ..BlockOptions::default() };
            let device = disk_over(file.into(), alignment, options).unwrap();
            assert!(device.write_back(), "nothing was written yet");
            assert_eq!(device.acquire(), Ok(()));
            assert_eq!(device.write_back(), !has_data, "{alignment}, {read_only}");
            assert_eq!(device.storage.is_inconsistent(), has_data, "as after a flush that failed");
            device.release();
        }
        let file = tempfile::tempfile().unwrap();
        let device = disk_over(file.into(), 1, BlockOptions::default()).unwrap();
        assert_eq!((device.acquire(), device.write_back()), (Ok(()), true));
    }

    #[test]
    fn a_disk_that_several_resize_at_once_gets_the_largest_size() {
        const THREADS: u64 = 4;
        const ROUNDS: u64 = 500;
        let file = tempfile::NamedTempFile::new().unwrap();
        let options = BlockOptions { path: Some(file.path().to_owned()), ..BlockOptions::default() };
        let device = BlockDevice::open(options).unwrap();
        let barrier = Barrier::new(THREADS as usize);
        std::thread::scope(|scope| {
            for thread in 1..=THREADS {
                let (device, barrier, file) = (&device, &barrier, &file);
                scope.spawn(move || {
                    let mut seen = Vec::new();
                    for round in 0..ROUNDS {
                        let largest = (round + 1) * THREADS * SECTOR;
                        barrier.wait();
                        // Those that come after a larger one are refused.
                        let _ = device.resize(Some((round * THREADS + thread) * SECTOR));
                        barrier.wait();
                        let has = file.as_file().metadata().map_or(0, |file| file.len());
                        seen.push((has, device.size()) == (largest, Some(largest)));
                    }
                    // Not before: the others would wait for this thread.
                    assert!(seen.iter().all(|is_largest| *is_largest));
                });
            }
        });
    }
}
