//! Memory whose file was made shorter after it was mapped.
//!
//! To touch a page behind the file's end raises SIGBUS, which would end the daemon and with it all other VMs' devices. The
//! pages that are gone are replaced by empty ones of this process instead: what the front-end then gets back is its own
//! fault, and nobody else's.

use std::ptr::NonNull;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Mappings that are guarded at a time; more are served, and end the daemon if their file is made shorter.
const GUARDED: usize = 4096;

/// A guarded mapping: its first byte and the one after its last; both 0 when the slot is free.
struct Slot {
    start: AtomicUsize,
    end: AtomicUsize,
}

static SLOTS: [Slot; GUARDED] =
    [const { Slot { start: AtomicUsize::new(0), end: AtomicUsize::new(0) } }; GUARDED];

/// Whether any page was replaced since this was last asked for.
static REPLACED: AtomicBool = AtomicBool::new(false);

/// A mapping's place among those that are guarded.
#[derive(Debug)]
pub(super) struct Guard(Option<usize>);

impl Guard {
    /// Guards `size` bytes from `base` on.
    pub(super) fn new(base: NonNull<u8>, size: usize) -> Self {
        static INSTALLED: Once = Once::new();
        INSTALLED.call_once(install);
        let start = base.as_ptr().addr();
        let taken = SLOTS.iter().position(|slot| {
            slot.start.compare_exchange(0, start, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        });
        match taken {
            // The handler goes by the end: a slot without one guards nothing yet.
            Some(index) => SLOTS[index].end.store(start + size, Ordering::Release),
            None => {
                tracing::warn!("More than {GUARDED} regions of memory are mapped: the last are not guarded")
            }
        }
        Self(taken)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(slot) = self.0.and_then(|index| SLOTS.get(index)) {
            slot.end.store(0, Ordering::Release);
            slot.start.store(0, Ordering::Release);
        }
    }
}

/// Whether pages of some guest's memory had to be replaced since this was last asked.
pub fn was_cut() -> bool {
    REPLACED.swap(false, Ordering::AcqRel)
}

fn install() {
    // SAFETY: all bytes zero are a valid structure: no flags, no mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_fault as extern "C" fn(_, _, _) as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
    // SAFETY: the handler calls nothing but what is allowed in one: a system call and atomic operations.
    if unsafe { libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut()) } != 0 {
        tracing::warn!("A front-end that makes its memory file shorter will end this daemon");
    }
}

extern "C" fn on_fault(_signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel gives the structure of the fault, for as long as the handler runs.
    let info = unsafe { &*info };
    // SAFETY: a SIGBUS has an address.
    let address = unsafe { info.si_addr() }.addr();
    for slot in &SLOTS {
        let (start, end) = (slot.start.load(Ordering::Acquire), slot.end.load(Ordering::Acquire));
        if start == 0 || address < start || address >= end {
            continue;
        }
        // All from this page on is behind the file's end.
        let page = address & !0xfff;
        let flags = libc::MAP_FIXED | libc::MAP_ANONYMOUS | libc::MAP_PRIVATE | libc::MAP_NORESERVE;
        let place = std::ptr::without_provenance_mut(page);
        // SAFETY: the pages are of a mapping that is guarded, so that nothing else is there.
        let mapped =
            unsafe { libc::mmap(place, end - page, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        if mapped == place {
            REPLACED.store(true, Ordering::Release);
            return;
        }
    }
    // Another's fault: it ends the process as it would have without this, when the instruction is made again.
    // SAFETY: resetting a signal is allowed in a handler.
    unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
}

#[cfg(test)]
mod tests {
    use crate::memory::{GuestMemory, RegionPlace};

    #[test]
    fn a_file_that_is_cut_ends_nobody() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(0x4000).unwrap();
        let place = RegionPlace { guest: 0, size: 0x4000, user: 0, offset: 0 };
        let memory = GuestMemory::default().with(place, &file).unwrap();
        let byte = |at: u64| {
            let part = memory.one_part(at, 1).unwrap();
            // SAFETY: one mapped byte.
            unsafe { part.pointer.read_volatile() }
        };
        let write = |at: u64, value: u8| {
            let part = memory.one_part(at, 1).unwrap();
            // SAFETY: one mapped byte.
            unsafe { part.pointer.write_volatile(value) }
        };
        write(0x10, 7);
        write(0x2010, 8);
        file.set_len(0x1000).unwrap();
        assert_eq!((byte(0x10), byte(0x2010)), (7, 0));
        write(0x3fff, 9);
        assert_eq!(byte(0x3fff), 9);
        assert!(super::was_cut());
    }
}
