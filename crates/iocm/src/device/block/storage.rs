//! Where a block device's data is.

use crate::device::ResizeError;
use rustix::fs::{FileType, Mode, OFlags, SeekFrom};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};

/// Where a block device's data is.
#[derive(Debug)]
pub enum Storage {
    /// Nowhere: writes are forgotten, and reads leave the guest's memory as it is.
    Null,
    /// In a raw file or a block device.
    File {
        /// The open file.
        file: OwnedFd,
        /// What it is called.
        path: PathBuf,
        /// Bytes that offsets and memory must be multiples of.
        alignment: u32,
    },
}

/// Why storage cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StorageError {
    /// It cannot be opened.
    #[error("Cannot open {path} {how}; give a raw file or a block device that this user may use")]
    Open {
        /// The file.
        path: PathBuf,
        /// For what.
        how: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It is another kind of file.
    #[error("{path} is neither a file nor a block device")]
    Kind {
        /// The file.
        path: PathBuf,
    },
    /// It is an image of another format.
    #[error(
        "{path} is an image of the format {format}, and raw ones alone are served: convert it with `qemu-img convert -O raw`, \
         or serve a raw device above it"
    )]
    Format {
        /// The file.
        path: PathBuf,
        /// Its format.
        format: &'static str,
    },
    /// Its size cannot be told.
    #[error("Cannot tell the size of {path}")]
    Size {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// First bytes of images that a guest must not be given as they are: it would see the format's own tables, and could write
/// another file's name into them.
const FORMATS: &[(&[u8], &str)] =
    &[(b"QFI\xfb", "qcow2"), (b"KDMV", "VMDK"), (b"vhdxfile", "VHDX"), (b"QED\0", "QED")];

impl Storage {
    /// Opens a raw file or a block device.
    ///
    /// # Errors
    /// [`StorageError`].
    pub fn open(path: &Path, read_only: bool, direct: bool) -> Result<Self, StorageError> {
        let (access, how) = match read_only {
            true => (OFlags::RDONLY, "for reading"),
            false => (OFlags::RDWR, "for reading and writing"),
        };
        let caching = if direct { OFlags::DIRECT } else { OFlags::empty() };
        let opened = |flags| rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty());
        let cannot = |source: rustix::io::Errno| StorageError::Open {
            path: path.to_owned(),
            how,
            source: source.into(),
        };
        // The first bytes are read without the rules of direct access.
        let mut first = [0; 8];
        let plain = opened(OFlags::RDONLY).map_err(cannot)?;
        let kind =
            rustix::fs::fstat(&plain).map(|stat| FileType::from_raw_mode(stat.st_mode)).map_err(cannot)?;
        if !matches!(kind, FileType::RegularFile | FileType::BlockDevice) {
            return Err(StorageError::Kind { path: path.to_owned() });
        }
        rustix::io::pread(&plain, &mut first, 0).map_err(cannot)?;
        if let Some((_, format)) = FORMATS.iter().find(|(begin, _)| first.starts_with(begin)) {
            return Err(StorageError::Format { path: path.to_owned(), format });
        }
        let file = opened(access | caching).map_err(cannot)?;
        let alignment = if direct { alignment(&file) } else { 1 };
        Ok(Self::File { file, path: path.to_owned(), alignment })
    }

    /// Bytes; `None` of one that has no size of its own.
    ///
    /// # Errors
    /// [`StorageError::Size`].
    pub fn size(&self) -> Result<Option<u64>, StorageError> {
        let Self::File { file, path, .. } = self else { return Ok(None) };
        // The end of a block device is found by going there; nothing else uses the position.
        let end = rustix::fs::seek(file, SeekFrom::End(0));
        end.map(Some).map_err(|source| StorageError::Size { path: path.clone(), source: source.into() })
    }

    /// Makes a file so many bytes large; a block device cannot be.
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

    /// Bytes of a block, as the guest is told.
    #[must_use]
    pub fn block_size(&self) -> u32 {
        match self {
            Self::Null => 512,
            Self::File { alignment, .. } => (*alignment).max(512),
        }
    }

    pub(super) fn alignment(&self) -> u64 {
        match self {
            Self::Null => 1,
            Self::File { alignment, .. } => u64::from(*alignment),
        }
    }

    pub(super) fn file(&self) -> Option<RawFd> {
        match self {
            Self::Null => None,
            Self::File { file, .. } => Some(file.as_raw_fd()),
        }
    }
}

/// Bytes that offsets and memory must be multiples of for direct access: what the kernel says, else the usual page.
fn alignment(file: &OwnedFd) -> u32 {
    use rustix::fs::{AtFlags, StatxFlags, statx};
    /// `STATX_DIOALIGN` (Linux 6.1).
    const DIRECT_ALIGNMENT: u32 = 0x2000;
    let wanted = StatxFlags::from_bits_retain(DIRECT_ALIGNMENT);
    match statx(file, c"", AtFlags::EMPTY_PATH, wanted) {
        Ok(found) if found.stx_mask & DIRECT_ALIGNMENT != 0 && found.stx_dio_offset_align > 0 => {
            found.stx_dio_offset_align.max(found.stx_dio_mem_align)
        }
        _ => 4096,
    }
}
