//! The file behind a block device.

use super::BlockOptions;
use crate::device::ResizeError;
use crate::queue::Carrier;
use rustix::fs::{FileType, Mode, OFlags, SeekFrom};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// The file behind a block device.
#[derive(Debug)]
pub enum Storage {
    /// A null disk: writes are discarded, and reads leave the guest's memory as it is.
    Null,
    /// A raw file or a block device.
    File {
        /// The open file.
        file: OwnedFd,
        /// The path of the file.
        path: PathBuf,
        /// The alignment of offsets and memory, bytes.
        alignment: u32,
        /// The alignment of ranges to discard or zero, bytes: the block size of a block device, else 1.
        granule: u32,
        /// The block size that its partition table (GPT) was written for, if it has one.
        partitioned: Option<u32>,
        /// It is on tmpfs.
        is_tmpfs: bool,
        /// It is on FUSE.
        is_fuse: bool,
        /// Data in the page cache could not be written.
        is_inconsistent: AtomicBool,
    },
}

/// A failure to use a file as storage.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StorageError {
    /// It cannot be opened.
    #[error("Cannot open {path} {how}; give a raw file or a block device that this user may use")]
    Open {
        /// The file.
        path: PathBuf,
        /// The access that was asked for.
        how: &'static str,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// It is neither a file nor a block device.
    #[error("{path} is neither a file nor a block device")]
    Kind {
        /// The file.
        path: PathBuf,
    },
    /// It is an image of another format.
    #[error(
        "{path} begins like an image of the format {format}, and only raw images are served: convert it with `qemu-img \
         convert -O raw`, or serve a raw device above it; if it is a raw disk on which a guest wrote this, set \
         `format = \"raw\"` (`iocm device`: --format raw)"
    )]
    Format {
        /// The file.
        path: PathBuf,
        /// Its format.
        format: &'static str,
    },
    /// Its blocks are larger than those of the guest.
    #[error(
        "{path} can be used with `direct` in blocks of {alignment} bytes only: set `block-size = {alignment}`, which is right for \
         a disk that has no data yet or was installed with such blocks, or leave out `direct`"
    )]
    BlockSize {
        /// The file.
        path: PathBuf,
        /// The size of its blocks, bytes.
        alignment: u32,
    },
    /// Its size cannot be read.
    #[error("Cannot tell the size of {path}")]
    Size {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

/// The magic numbers of image formats. A guest must not get such a file as a raw disk: it would see the tables of the
/// format, and could write the name of another file into them.
const FORMATS: &[(&[u8], &str)] =
    &[(b"QFI\xfb", "qcow2"), (b"KDMV", "VMDK"), (b"vhdxfile", "VHDX"), (b"QED\0", "QED")];

/// The beginning of a partition table's header, which is in the second block (UEFI 2.10, 5.3.2).
const GPT: &[u8] = b"EFI PART";

impl Storage {
    /// Opens a raw file or a block device.
    ///
    /// # Errors
    /// [`StorageError`].
    pub fn open(path: &Path, options: &BlockOptions) -> Result<Self, StorageError> {
        let direct = options.direct;
        let (access, how) = match options.read_only {
            true => (OFlags::RDONLY, "for reading"),
            false => (OFlags::RDWR, "for reading and writing"),
        };
        let caching = if direct { OFlags::DIRECT } else { OFlags::empty() };
        let cannot = |source: rustix::io::Errno| StorageError::Open {
            path: path.to_owned(),
            how,
            source: source.into(),
        };
        // Opening a FIFO blocks until its other end is opened, so find out the type first.
        let found = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_err(cannot)?;
        let kind =
            rustix::fs::fstat(&found).map(|stat| FileType::from_raw_mode(stat.st_mode)).map_err(cannot)?;
        if !matches!(kind, FileType::RegularFile | FileType::BlockDevice) {
            return Err(StorageError::Kind { path: path.to_owned() });
        }
        let link = format!("/proc/self/fd/{}", found.as_raw_fd());
        let opened = |flags| rustix::fs::open(&link, flags | OFlags::CLOEXEC, Mode::empty());
        // These bytes are read without O_DIRECT and its alignment.
        let plain = opened(OFlags::RDONLY).map_err(cannot)?;
        let mut first = [0; 4096 + GPT.len()];
        rustix::io::pread(&plain, &mut first, 0).map_err(cannot)?;
        if !options.raw
            && let Some((_, format)) = FORMATS.iter().find(|(begin, _)| first.starts_with(begin))
        {
            return Err(StorageError::Format { path: path.to_owned(), format });
        }
        let partitioned = match [512, 4096].map(|size: usize| first[size..].starts_with(GPT)) {
            [true, false] => Some(512),
            [false, true] => Some(4096),
            _ => None,
        };
        let file = opened(access | caching).map_err(cannot)?;
        let alignment = if direct { alignment(&file) } else { 1 };
        let granule = match kind {
            FileType::BlockDevice => rustix::fs::ioctl_blksszget(&file).map_err(cannot)?,
            _ => 1,
        };
        let system = rustix::fs::fstatfs(&file).map(|found| found.f_type);
        let (is_tmpfs, is_fuse) = (system == Ok(libc::TMPFS_MAGIC), system == Ok(libc::FUSE_SUPER_MAGIC));
        let (path, is_inconsistent) = (path.to_owned(), AtomicBool::new(false));
        Ok(Self::File { file, path, alignment, granule, partitioned, is_tmpfs, is_fuse, is_inconsistent })
    }

    /// The size in bytes; `None` for a null disk.
    ///
    /// # Errors
    /// [`StorageError::Size`].
    pub fn size(&self) -> Result<Option<u64>, StorageError> {
        let Self::File { file, path, .. } = self else { return Ok(None) };
        // lseek(2) finds the end of a block device; nothing else uses the position.
        let end = rustix::fs::seek(file, SeekFrom::End(0));
        end.map(Some).map_err(|source| StorageError::Size { path: path.clone(), source: source.into() })
    }

    /// Grows a file to this many bytes; a block device cannot be grown.
    pub(super) fn grow(&self, bytes: u64) -> Result<(), ResizeError> {
        let Self::File { file, path, .. } = self else { return Ok(()) };
        let failed =
            |source: rustix::io::Errno| ResizeError::File { path: path.clone(), source: source.into() };
        let stat = rustix::fs::fstat(file).map_err(failed)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            let has = self.size().ok().flatten().unwrap_or(0);
            return Err(ResizeError::Fixed { path: path.clone(), has });
        }
        rustix::fs::ftruncate(file, bytes).map_err(failed)
    }

    /// Checks that the file can be used with this block size. Only warns if the guest will not find its partitions with
    /// it: the guest writes the partition table.
    pub(super) fn check_block_size(&self, size: u32) -> Result<(), StorageError> {
        if let Self::File { path, partitioned: Some(other), .. } = self
            && *other != size
        {
            tracing::warn!(
                "The partition table of {} is for blocks of {other} bytes, and the guest has blocks of {size}: it finds no \
                 partitions unless `block-size = {other}`",
                path.display()
            );
        }
        match self {
            Self::File { path, alignment, .. } if *alignment > size => {
                Err(StorageError::BlockSize { path: path.clone(), alignment: *alignment })
            }
            _ => Ok(()),
        }
    }

    pub(super) const fn granule(&self) -> u32 {
        match self {
            Self::Null => 1,
            Self::File { granule, .. } => *granule,
        }
    }

    pub(super) fn alignment(&self) -> u64 {
        match self {
            Self::Null => 1,
            Self::File { alignment, .. } => u64::from(*alignment),
        }
    }

    /// Tests whether a read takes no longer than its copy: the file is on tmpfs, and no page of it can be swapped out,
    /// because the host has no swap space now. io_uring would hand the read to a kernel thread (tmpfs has no
    /// `FMODE_NOWAIT`), which takes three times the CPU time.
    pub(super) fn is_in_memory(&self) -> bool {
        matches!(self, Self::File { is_tmpfs: true, .. }) && rustix::system::sysinfo().totalswap == 0
    }

    /// Tests whether the file has no holes, so that a write needs no memory, which a thread may have to wait for.
    pub(super) fn is_allocated(&self) -> bool {
        let Self::File { file, .. } = self else { return false };
        // `st_blocks` counts units of 512 bytes (inode(7)).
        rustix::fs::fstat(file).is_ok_and(|stat| stat.st_blocks.saturating_mul(512) >= stat.st_size)
    }

    /// The one that carries out its reads and writes. Submitting I/O to FUSE may block until it completes, although
    /// FUSE tells io_uring that it does not (Linux 6.18, `fuse_direct_io`). A server that does not answer would stop
    /// the worker. tmpfs copies its data even with O_DIRECT.
    pub(super) const fn carrier(&self) -> Carrier {
        match self {
            Self::File { is_fuse: true, .. } => Carrier::Thread,
            Self::Null | Self::File { is_tmpfs: true, .. } | Self::File { alignment: 1, .. } => {
                Carrier::Kernel
            }
            Self::File { .. } => Carrier::Disk,
        }
    }

    /// Remembers that a flush failed. If the data was in the page cache, Linux has marked its pages clean and does not
    /// write them again, and the next fdatasync(2) would succeed (fsync(2); QEMU's block/file-posix.c,
    /// `page_cache_inconsistent`).
    ///
    /// It logs a warning, because this is a worker's thread, which also serves other disks: as the process may end after an
    /// error, a line of that level waits for the log's reader.
    pub(super) fn flush_failed(&self) {
        let Self::File { path, alignment: 1, is_inconsistent, .. } = self else { return };
        if !is_inconsistent.swap(true, Ordering::SeqCst) {
            tracing::warn!(
                "{}: a flush failed, so data that was written may be lost, and all flushes fail from now on; once the disk is \
                 repaired, remove the device and create it again, or restart the daemon",
                path.display()
            );
        }
    }

    /// Tests whether a flush has failed so that no later one can succeed.
    pub(super) fn is_inconsistent(&self) -> bool {
        matches!(self, Self::File { is_inconsistent, .. } if is_inconsistent.load(Ordering::SeqCst))
    }

    /// Writes data in the page cache to the disk. `false` if it may be lost.
    pub(super) fn write_back(&self) -> bool {
        let Self::File { file, alignment: 1, .. } = self else { return true };
        if rustix::io::retry_on_intr(|| rustix::fs::fdatasync(file)).is_err() {
            self.flush_failed();
        }
        !self.is_inconsistent()
    }

    /// Takes QEMU's lock for writing the image. `false` if another open file has it, and, unless both `share`, this one
    /// may not write beside it.
    ///
    /// The lock belongs to the open file, which each request in flight keeps: that of a daemon that was killed is free
    /// when the last of its writes has ended.
    pub(super) fn lock(&self, share: bool) -> bool {
        let Self::File { file, .. } = self else { return true };
        let (own, others): (&[i64], &[i64]) = match share {
            true => (&[WRITES], &[EXCLUDES_WRITES]),
            false => (&[WRITES, EXCLUDES_WRITES], &[WRITES, EXCLUDES_WRITES]),
        };
        let is_free = own.iter().all(|byte| lock_byte(file, libc::F_OFD_SETLK, libc::F_RDLCK, *byte))
            && others.iter().all(|byte| lock_byte(file, libc::F_OFD_GETLK, libc::F_WRLCK, *byte));
        if !is_free {
            self.unlock();
        }
        is_free
    }

    /// Gives the lock back.
    pub(super) fn unlock(&self) {
        let Self::File { file, .. } = self else { return };
        for byte in [WRITES, EXCLUDES_WRITES] {
            lock_byte(file, libc::F_OFD_SETLK, libc::F_UNLCK, byte);
        }
    }

    pub(super) fn file(&self) -> Option<RawFd> {
        match self {
            Self::Null => None,
            Self::File { file, .. } => Some(file.as_raw_fd()),
        }
    }
}

/// The byte that QEMU locks in a file that it writes (block/file-posix.c: `RAW_LOCK_PERM_BASE`, and the bit
/// `BLK_PERM_WRITE`). All its locks are shared ones: a program takes one, then looks for those of others.
const WRITES: i64 = 101;
/// The byte that it locks in a file that nobody else may write (`RAW_LOCK_SHARED_BASE`).
const EXCLUDES_WRITES: i64 = 201;

/// Calls fcntl(2) for a lock of one byte. `false` if another open file has a lock there that excludes it. A file system
/// without locks excludes nobody.
fn lock_byte(file: &OwnedFd, command: libc::c_int, kind: libc::c_int, byte: i64) -> bool {
    let (l_type, l_whence) = (kind as libc::c_short, libc::SEEK_SET as libc::c_short);
    let mut lock = libc::flock { l_type, l_whence, l_start: byte, l_len: 1, l_pid: 0 };
    // SAFETY: the descriptor is open, and these commands read and write a `flock`.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) } {
        0 => command != libc::F_OFD_GETLK || libc::c_int::from(lock.l_type) == libc::F_UNLCK,
        _ => !matches!(io::Error::last_os_error().raw_os_error(), Some(libc::EAGAIN | libc::EACCES)),
    }
}

/// The alignment for O_DIRECT: the one that the kernel reports, else the smallest with which a read succeeds, else a
/// page. An empty file gets 512.
fn alignment(file: &OwnedFd) -> u32 {
    use rustix::fs::{AtFlags, StatxFlags, statx};
    /// `STATX_DIOALIGN` (Linux 6.1).
    const DIRECT_ALIGNMENT: u32 = 0x2000;
    let wanted = StatxFlags::from_bits_retain(DIRECT_ALIGNMENT);
    match statx(file, c"", AtFlags::EMPTY_PATH, wanted) {
        Ok(found) if found.stx_mask & DIRECT_ALIGNMENT != 0 && found.stx_dio_offset_align > 0 => {
            found.stx_dio_offset_align.max(found.stx_dio_mem_align)
        }
        _ => [512, 1024, 2048].into_iter().find(|size| reads_with(file, *size)).unwrap_or(4096),
    }
}

/// Tests whether a block of this size can be read into memory of that alignment, or there is no data.
fn reads_with(file: &OwnedFd, size: u32) -> bool {
    #[repr(align(4096))]
    struct Page([u8; 4096]);
    let mut page = Page([0; 4096]);
    let size = size as usize;
    page.0.get_mut(size..2 * size).is_some_and(|block| rustix::io::pread(file, block, 0).is_ok())
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::{BlockDevice, BlockOptions};
    use super::*;
    use std::sync::{Arc, Mutex};
    use std::time::Duration;
    use tracing::span::{Attributes, Id, Record};

    /// A disk of 1 MiB whose blocks have this size, for a guest whose blocks have that size. Its file is used without
    /// `O_DIRECT`, which not each file system supports.
    pub(in crate::device::block) fn disk(
        alignment: u32,
        block_size: u32,
    ) -> Result<Arc<BlockDevice>, StorageError> {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 20).unwrap();
        disk_over(file.into(), alignment, BlockOptions { block_size, ..BlockOptions::default() })
    }

    /// A disk over a file of any kind. That of `/dev/null` has no data, and cannot be flushed.
    pub(crate) fn disk_over(
        file: OwnedFd,
        alignment: u32,
        options: BlockOptions,
    ) -> Result<Arc<BlockDevice>, StorageError> {
        let path = PathBuf::from("/disk");
        let (granule, partitioned, is_tmpfs, is_fuse) = (1, None, false, false);
        let is_inconsistent = AtomicBool::new(false);
        let storage =
            Storage::File { file, path, alignment, granule, partitioned, is_tmpfs, is_fuse, is_inconsistent };
        BlockDevice::over(storage, options)
    }

    #[test]
    fn the_guest_sees_the_configured_block_size_or_the_disk_is_refused() {
        let told = |disk: &BlockDevice| u32::from_le_bytes(disk.read_config(20, 4).try_into().unwrap());
        for (alignment, size) in [(1, 512), (512, 512), (1, 4096), (512, 4096), (4096, 4096)] {
            assert_eq!(told(&disk(alignment, size).unwrap()), size, "{alignment}");
        }
        let error = disk(4096, 512).unwrap_err().to_string();
        assert!(error.contains("block-size = 4096"), "{error}");
    }

    /// Keeps the levels of log lines.
    #[derive(Clone, Default)]
    struct Levels(Arc<Mutex<Vec<tracing::Level>>>);

    impl tracing::Subscriber for Levels {
        fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
            true
        }
        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn event(&self, event: &tracing::Event<'_>) {
            self.0.lock().unwrap().push(*event.metadata().level());
        }
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    #[test]
    fn a_flush_that_fails_is_told_once_and_no_worker_waits_for_the_reader_of_the_log() {
        let file = tempfile::tempfile().unwrap();
        let disk = disk_over(file.into(), 1, BlockOptions::default()).unwrap();
        let levels = Levels::default();
        tracing::subscriber::with_default(levels.clone(), || {
            (0..2).for_each(|_| disk.storage.flush_failed());
        });
        assert_eq!(*levels.0.lock().unwrap(), [tracing::Level::WARN]);
    }

    #[test]
    fn an_alignment_that_the_kernel_does_not_tell_is_found_by_reading() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let opened = rustix::fs::open(file.path(), OFlags::RDONLY | OFlags::DIRECT, Mode::empty());
        let opened = match opened {
            Ok(opened) => opened,
            Err(error) => return println!("not tested: {error}"),
        };
        assert!(reads_with(&opened, 512), "it is empty");
        file.as_file().set_len(8192).unwrap();
        let told = alignment(&opened);
        for size in [512, 1024, 2048] {
            assert_eq!(reads_with(&opened, size), size >= told, "{size}");
        }
    }

    #[test]
    fn the_blocks_that_a_partition_table_was_written_for_are_known() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let options = BlockOptions { read_only: true, ..BlockOptions::default() };
        let partitioned = || match Storage::open(file.path(), &options).unwrap() {
            Storage::File { partitioned, .. } => partitioned,
            Storage::Null => None,
        };
        for (at, size) in [(0, None), (4096, Some(4096)), (512, None)] {
            file.as_file().set_len(8192).unwrap();
            rustix::io::pwrite(file.as_file(), b"EFI PART", at).unwrap();
            assert_eq!(partitioned(), size, "{at}");
        }
        file.as_file().set_len(4096).unwrap();
        assert_eq!(partitioned(), Some(512));
    }

    #[test]
    fn an_image_is_refused_unless_its_format_is_said_to_be_raw() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(4096).unwrap();
        rustix::io::pwrite(file.as_file(), b"QFI\xfb", 0).unwrap();
        let error = Storage::open(file.path(), &BlockOptions::default()).unwrap_err();
        assert!(matches!(error, StorageError::Format { format: "qcow2", .. }), "{error}");
        assert!(error.to_string().contains("format = \"raw\""), "{error}");
        let raw = BlockOptions { raw: true, ..BlockOptions::default() };
        assert!(Storage::open(file.path(), &raw).is_ok());
    }

    #[test]
    fn of_those_who_do_not_share_a_file_one_writes() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = || Storage::open(file.path(), &BlockOptions::default()).unwrap();
        let (one, other) = (open(), open());
        assert!(one.lock(false) && !other.lock(false) && !other.lock(true));
        assert!(one.lock(false), "others leave no lock behind");
        one.unlock();
        assert!(other.lock(true) && one.lock(true), "both share it");
        assert!(!open().lock(false));
        drop(one);
        drop(other);
        // QEMU's lock of an image that it writes.
        let qemu = OwnedFd::from(file.reopen().unwrap());
        for byte in [101, 201] {
            assert!(lock_byte(&qemu, libc::F_OFD_SETLK, libc::F_RDLCK, byte));
            assert!(!open().lock(false), "{byte}");
            assert!(lock_byte(&qemu, libc::F_OFD_SETLK, libc::F_UNLCK, byte));
        }
        // What QEMU looks for when it opens an image.
        let one = open();
        assert!(one.lock(false));
        for byte in [101, 201] {
            assert!(!lock_byte(&qemu, libc::F_OFD_GETLK, libc::F_WRLCK, byte), "{byte}");
        }
        // A request in flight keeps the open file.
        let Storage::File { file: kept, .. } = &one else { unreachable!() };
        let in_flight = kept.try_clone().unwrap();
        drop(one);
        assert!(!open().lock(false));
        drop(in_flight);
        assert!(open().lock(false));
    }

    #[test]
    fn nobody_waits_for_the_other_end_of_a_pipe() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let (told, heard) = std::sync::mpsc::channel();
        for read_only in [false, true] {
            let (path, told) = (path.clone(), told.clone());
            let options = BlockOptions { read_only, ..BlockOptions::default() };
            std::thread::spawn(move || told.send(Storage::open(&path, &options)));
            let opened = heard.recv_timeout(Duration::from_secs(5)).expect("an answer");
            assert!(matches!(opened, Err(StorageError::Kind { .. })), "{opened:?}");
        }
    }
}
