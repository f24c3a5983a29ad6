//! Files mapped into this process.

use super::fault::Guard;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::fs::File;
use std::io;
use std::ptr::NonNull;

/// A part of a file, mapped to be read and written by this process and others.
#[derive(Debug)]
pub struct Mapping {
    /// First byte of the mapping, at a page's begin.
    base: NonNull<u8>,
    /// Size of the mapping, bytes.
    mapped: usize,
    /// First byte that was asked for, from `base`.
    lead: usize,
    /// Bytes that were asked for.
    size: u64,
    /// Let go before the bytes are unmapped.
    guard: Option<Guard>,
}

// SAFETY: the bytes belong to the mapping alone, which any thread may use and unmap.
unsafe impl Send for Mapping {}
// SAFETY: as above; the type itself never reads or writes the bytes.
unsafe impl Sync for Mapping {}

/// Why a file cannot be mapped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MapError {
    /// The file ends before the part does: touching what is missing would end this process.
    #[error("The front-end's memory file has {has:#x} bytes, the region needs {needs:#x}")]
    Short {
        /// Size of the file, bytes.
        has: u64,
        /// Bytes up to the end of the part.
        needs: u64,
    },
    /// The kernel refused.
    #[error("Cannot map {size:#x} bytes of the front-end's memory")]
    Refused {
        /// Bytes.
        size: u64,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl Mapping {
    /// Maps `size` bytes from `offset` on.
    ///
    /// # Errors
    /// [`MapError`].
    pub fn of_file(file: &File, offset: u64, size: u64) -> Result<Self, MapError> {
        let refused = |source| MapError::Refused { size, source };
        let page = rustix::param::page_size() as u64;
        let lead = offset % page;
        let needs = offset.checked_add(size).ok_or_else(|| refused(io::ErrorKind::InvalidInput.into()))?;
        let metadata = file.metadata().map_err(refused)?;
        // A device has no size, and is what it is.
        if metadata.is_file() && metadata.len() < needs {
            return Err(MapError::Short { has: metadata.len(), needs });
        }
        let mapped = usize::try_from(size + lead).map_err(|_| refused(io::ErrorKind::InvalidInput.into()))?;
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that is there.
        let base = unsafe { mmap(std::ptr::null_mut(), mapped, protection, flags, file, offset - lead) };
        let base = base.map_err(|error| refused(error.into()))?;
        let base = NonNull::new(base.cast()).ok_or_else(|| refused(io::ErrorKind::Other.into()))?;
        // At most a page.
        let lead = lead as usize;
        let guard = Some(Guard::new(base, mapped));
        Ok(Self { base, mapped, lead, size, guard })
    }

    /// Bytes that were asked for.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// The byte `inside` bytes from the first that was asked for; of one beyond the last, the last.
    #[inline]
    #[must_use]
    pub fn at(&self, inside: u64) -> *mut u8 {
        let inside = inside.min(self.size - 1) as usize;
        // SAFETY: `lead + inside` is below the mapping's size, which is `lead + size`.
        unsafe { self.base.as_ptr().add(self.lead + inside) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.guard = None;
        // SAFETY: the mapping is this one's alone, and nothing that points into it outlives it.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.mapped) };
        if let Err(error) = unmapped {
            tracing::warn!("Cannot unmap a guest's memory: {error}");
        }
    }
}
