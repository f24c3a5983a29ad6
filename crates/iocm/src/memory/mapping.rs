//! Mappings of files.

use super::fault::Guard;
use rustix::fs::SealFlags;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::fs::File;
use std::io;
use std::ptr::NonNull;

/// A part of a file, mapped shared for reading and writing.
#[derive(Debug)]
pub struct Mapping {
    /// The start of the mapping, at a page.
    base: NonNull<u8>,
    /// Size of the mapping, bytes.
    mapped: usize,
    /// The offset of the wanted part from `base`.
    lead: usize,
    /// The size of the wanted part: at least one byte.
    size: u64,
    /// Released before the unmapping.
    guard: Option<Guard>,
}

// SAFETY: the bytes belong to the mapping alone, which any thread may use and unmap.
unsafe impl Send for Mapping {}
// SAFETY: as above; the type itself never reads or writes the bytes.
unsafe impl Sync for Mapping {}

/// A file that cannot be mapped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MapError {
    /// The part is empty.
    #[error("An empty part of the front-end's memory file cannot be mapped")]
    Empty,
    /// The file is not memory. A fault in it could take as long as its server likes, or raise an error that cannot be
    /// handled.
    #[error(
        "The front-end's memory file is not on memfd, tmpfs or hugetlbfs, and only these are mapped; QEMU has it with \
         memory-backend-memfd"
    )]
    NoMemory,
    /// The file is too short: touching the missing part would raise SIGBUS.
    #[error("The front-end's memory file has {has:#x} bytes, the region needs {needs:#x}")]
    Short {
        /// Size of the file, bytes.
        has: u64,
        /// The end of the part, bytes.
        needs: u64,
    },
    /// The numbers in it would not be aligned.
    #[error("The front-end's inflight memory begins at {offset:#x} of its file, which is no multiple of 8")]
    Unaligned {
        /// The offset in the file, bytes.
        offset: u64,
    },
    /// The kernel refused.
    #[error("Cannot map {size:#x} bytes of the front-end's memory")]
    Refused {
        /// Bytes.
        size: u64,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

/// The magic number of hugetlbfs in fstatfs(2) (`linux/magic.h`).
const HUGETLBFS: u64 = 0x9584_58f6;

/// The page size of a file on tmpfs or hugetlbfs.
fn page_size(file: &File) -> Result<u64, MapError> {
    // The kernel keeps seals only for files on tmpfs and hugetlbfs, sealable or not (`mm/memfd.c`), and asks no file
    // system for them. fstatfs(2) would ask the file system, whose server may be the front-end, and never answer.
    rustix::fs::fcntl_get_seals(file).map_err(|_| MapError::NoMemory)?;
    let refused = |error: rustix::io::Errno| MapError::Refused { size: 0, source: error.into() };
    let system = rustix::fs::fstatfs(file).map_err(refused)?;
    // The type's width and sign differ between architectures.
    match system.f_type as u64 & 0xffff_ffff {
        HUGETLBFS => Ok(system.f_bsize as u64),
        _ => Ok(rustix::param::page_size() as u64),
    }
}

impl Mapping {
    /// Maps `size` bytes from `offset` on of a file on tmpfs or hugetlbfs. The file is sealed against shrinking if it
    /// allows seals; otherwise truncation loses pages, and [`Self::is_lost`] tells.
    ///
    /// # Errors
    /// [`MapError`].
    #[cfg_attr(miri, expect(unreachable_code, unused_variables, reason = "Miri maps no file"))]
    pub fn of_file(file: &File, offset: u64, size: u64) -> Result<Self, MapError> {
        #[cfg(miri)]
        return Ok(Self::of_this_process(size));
        let refused = |source| MapError::Refused { size, source };
        let invalid = || refused(io::ErrorKind::InvalidInput.into());
        if size == 0 {
            return Err(MapError::Empty);
        }
        let page = page_size(file)?;
        let lead = offset % page;
        let needs = offset.checked_add(size).ok_or_else(invalid)?;
        // Fails if the file does not allow seals; then only the guard protects.
        let _ = rustix::fs::fcntl_add_seals(file, SealFlags::SHRINK);
        let has = file.metadata().map_err(refused)?.len();
        if has < needs {
            return Err(MapError::Short { has, needs });
        }
        let mapped = size.checked_add(lead).and_then(|size| size.checked_next_multiple_of(page));
        let mapped = mapped.and_then(|size| usize::try_from(size).ok()).ok_or_else(invalid)?;
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that is there.
        let base = unsafe { mmap(std::ptr::null_mut(), mapped, protection, flags, file, offset - lead) };
        let base = base.map_err(|error| refused(error.into()))?;
        let base = NonNull::new(base.cast()).ok_or_else(|| refused(io::ErrorKind::Other.into()))?;
        let mut mapping = Self { base, mapped, lead: lead as usize, size, guard: None };
        mapping.guard = Some(Guard::new(base, mapped, page as usize).map_err(refused)?);
        Ok(mapping)
    }

    /// A private mapping in place of a file under Miri, which maps no files. It is never freed.
    #[cfg(miri)]
    fn of_this_process(size: u64) -> Self {
        let words = vec![0_u128; (size as usize).div_ceil(16)].leak();
        let mapped = size_of_val(words);
        Self { base: NonNull::from(words).cast(), mapped, lead: 0, size, guard: None }
    }

    /// The size of the wanted part, bytes.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Tests whether one of its pages was lost, so that its content is no longer shared.
    #[inline]
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.guard.as_ref().is_some_and(Guard::is_lost)
    }

    /// The address of a byte of the wanted part; of its last byte, if `inside` is too large.
    #[inline]
    #[must_use]
    pub fn at(&self, inside: u64) -> *mut u8 {
        let inside = inside.min(self.size - 1) as usize;
        // SAFETY: `lead + inside` is below the mapping's size, which is at least `lead + size`.
        unsafe { self.base.as_ptr().add(self.lead + inside) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.guard = None;
        if cfg!(miri) {
            return;
        }
        // SAFETY: the mapping is this one's alone, and nothing that points into it outlives it.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.mapped) };
        if let Err(error) = unmapped {
            tracing::warn!("Cannot unmap a guest's memory: {error}");
        }
    }
}
