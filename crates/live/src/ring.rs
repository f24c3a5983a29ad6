//! The buffer that the kernel shares with us for the records of one thread or CPU.

use crate::spans::unread;
use perf_event_open_sys::bindings::perf_event_mmap_page;
use std::fs::File;
use std::io;
use std::mem::offset_of;
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

/// A mapped ring buffer, unmapped when dropped. The kernel writes up to `data_head`; we read up to there.
#[derive(Debug)]
pub(crate) struct Ring {
    base: NonNull<u8>,
    head: NonNull<AtomicU64>,
    tail: NonNull<AtomicU64>,
    data: NonNull<u8>,
    size: usize,
    mapped: usize,
}

// SAFETY: the mapping belongs to this value alone; nothing in it is bound to the thread that made it.
unsafe impl Send for Ring {}

impl Ring {
    /// Maps a buffer for an open event: one control page and `data_pages`, which must be a power of two.
    pub(crate) fn map(event: &File, data_pages: usize) -> io::Result<Self> {
        let page = page_size();
        let size = data_pages * page;
        let mapped = size + page;
        // SAFETY: a new shared mapping at an address of the kernel's choice touches no memory of ours.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                mapped,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                event.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base =
            NonNull::new(base.cast::<u8>()).ok_or_else(|| io::Error::other("mmap returned address 0"))?;
        let at = |offset: usize| {
            // SAFETY: every offset asked for lies in the mapping, which has one page and the data.
            unsafe { base.add(offset) }
        };
        Ok(Self {
            base,
            head: at(offset_of!(perf_event_mmap_page, data_head)).cast(),
            tail: at(offset_of!(perf_event_mmap_page, data_tail)).cast(),
            data: at(page),
            size,
            mapped,
        })
    }

    /// Returns what the kernel has written since the last call, and frees the space.
    ///
    /// `None` if head and tail are inconsistent; the buffer is then emptied.
    pub(crate) fn take(&mut self) -> Option<Vec<u8>> {
        // Acquire: the records must be visible before we read them (perf_event_open(2), "data_head").
        let head = self.head().load(Ordering::Acquire);
        let tail = self.tail().load(Ordering::Relaxed);
        let bytes = unread(self.size, tail, head).map(|spans| {
            let mut bytes = Vec::with_capacity(spans.iter().map(ExactSizeIterator::len).sum());
            for span in spans {
                // SAFETY: a span lies inside the data.
                let start = unsafe { self.data.add(span.start) };
                // SAFETY: as above, and the kernel does not write between tail and head.
                let stretch = unsafe { std::slice::from_raw_parts(start.as_ptr(), span.len()) };
                bytes.extend_from_slice(stretch);
            }
            bytes
        });
        // Release: the kernel may overwrite the space only after we have read it.
        self.tail().store(head, Ordering::Release);
        bytes
    }

    fn head(&self) -> &AtomicU64 {
        // SAFETY: the control page is mapped as long as self lives, the field is aligned to 8 bytes, and both
        // sides access it atomically.
        unsafe { self.head.as_ref() }
    }

    fn tail(&self) -> &AtomicU64 {
        // SAFETY: as for head.
        unsafe { self.tail.as_ref() }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: exactly the stretch that map() mapped; no reference into it outlives a call of take().
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.mapped) };
    }
}

/// The page size of this machine in bytes.
pub(crate) fn page_size() -> usize {
    // SAFETY: sysconf only reads.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096)
}
