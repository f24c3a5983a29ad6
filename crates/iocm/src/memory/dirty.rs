//! The dirty log: the bitmap of pages that were written during a migration.

use super::mapping::{MapError, Mapping};
use std::fs::File;
use std::sync::atomic::{AtomicU8, Ordering};

/// The page size of the log (vhost-user, "Migration": `VHOST_LOG_PAGE`).
const PAGE: u64 = 0x1000;

/// The largest log, bytes: for 32 TiB of guest addresses.
const MAX: u64 = 1 << 30;

/// A bitmap with a bit for each page of the guest, shared with the front-end.
#[derive(Debug)]
pub struct DirtyLog {
    mapping: Mapping,
}

/// A log that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// It is larger than that of any guest.
    #[error("A log of {0:#x} bytes is larger than any guest's on this host")]
    TooLarge(u64),
    /// It cannot be mapped.
    #[error(transparent)]
    Map(#[from] MapError),
}

impl DirtyLog {
    /// Maps a log.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn of_file(file: &File, offset: u64, size: u64) -> Result<Self, LogError> {
        if size > MAX {
            return Err(LogError::TooLarge(size));
        }
        Ok(Self { mapping: Mapping::of_file(file, offset, size)? })
    }

    /// Tests whether a page of the log was lost.
    pub(super) fn is_lost(&self) -> bool {
        self.mapping.is_lost()
    }

    /// Marks the pages of `size` bytes from `guest` on. Pages beyond the end of the log are ignored, because the
    /// front-end did not ask for them.
    pub fn mark(&self, guest: u64, size: u64) {
        if size == 0 {
            return;
        }
        let last = guest.saturating_add(size - 1) / PAGE;
        for page in guest / PAGE..=last {
            let byte = page / 8;
            if byte >= self.mapping.size() {
                return;
            }
            // SAFETY: the byte is within the mapping, and is only accessed by atomic operations.
            let cell = unsafe { AtomicU8::from_ptr(self.mapping.at(byte)) };
            cell.fetch_or(1 << (page % 8), Ordering::Relaxed);
        }
    }
}
