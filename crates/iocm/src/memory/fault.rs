//! Pages of a guest's memory that are lost while they are mapped: the file was truncated, it found no room (an empty
//! pool of huge pages, a full tmpfs), or the machine's memory failed.
//!
//! Touching such a page raises SIGBUS, which would end the daemon and with it the devices of all other VMs. Instead
//! that page alone is replaced by an empty one of this process, and the mapping is marked. Users of the mapping test
//! the mark, and pass nothing that came from it to the guest or to a disk.
//!
//! A replaced page is a mapping of its own and splits the one around it, and a process can only have 65,530 mappings
//! (`vm.max_map_count`). So after some pages the whole mapping is replaced by a single one.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering, compiler_fence, fence};
use std::sync::{Mutex, OnceLock, PoisonError};

/// A guarded mapping.
struct GuardSlot {
    /// Odd while the other fields change: the signal handler reads them under this sequence lock.
    version: AtomicUsize,
    /// The first address, and the one after the last; both 0 when the slot is free.
    start: AtomicUsize,
    end: AtomicUsize,
    /// The page size, bytes.
    page: AtomicUsize,
    /// The number of pages that were lost.
    lost: AtomicU32,
}

/// The number of pages of a mapping that are replaced one by one: more than a packet or a bounce buffer has, so only a
/// hostile front-end loses more. The other pages, from which the kernel may still be copying, stay as they are.
const ONE_BY_ONE: u32 = 64;

/// The number of slots in a chunk.
const SLOTS: usize = 256;

/// Some slots and a pointer to the next chunk. Chunks are never freed, because the signal handler may read them at any
/// time.
struct Chunk {
    slots: [GuardSlot; SLOTS],
    next: AtomicPtr<Chunk>,
}

impl Chunk {
    const fn new() -> Self {
        let slots = [const {
            GuardSlot {
                version: AtomicUsize::new(0),
                start: AtomicUsize::new(0),
                end: AtomicUsize::new(0),
                page: AtomicUsize::new(0),
                lost: AtomicU32::new(0),
            }
        }; SLOTS];
        Self { slots, next: AtomicPtr::new(std::ptr::null_mut()) }
    }

    fn next(&self) -> Option<&'static Self> {
        // SAFETY: the next chunk, if there is one, was leaked.
        unsafe { self.next.load(Ordering::Acquire).as_ref() }
    }
}

static FIRST: Chunk = Chunk::new();

/// Held while a slot is taken.
static TAKING: Mutex<()> = Mutex::new(());

/// The number of pages of present mappings that were replaced one by one. Beyond [`MOST_ONE_BY_ONE`], whole mappings
/// are replaced.
static ONE_BY_ONE_OF_ALL: AtomicU32 = AtomicU32::new(0);
const MOST_ONE_BY_ONE: u32 = 4096;

/// The number of lost pages of all mappings.
static LOST: AtomicU32 = AtomicU32::new(0);

/// The number of pages that were lost since the daemon's start. While it does not change, no mapping needs to be
/// tested.
#[inline]
pub(crate) fn lost_pages() -> u32 {
    // The handler runs in the thread that touched the page, so only the compiler could reorder the read.
    compiler_fence(Ordering::SeqCst);
    LOST.load(Ordering::Relaxed)
}

/// The slot of a guarded mapping.
pub(super) struct Guard(&'static GuardSlot);

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guard").field("lost", &self.is_lost()).finish_non_exhaustive()
    }
}

impl Guard {
    /// Guards `size` bytes from `base` on, in pages of `page` bytes.
    ///
    /// # Errors
    ///
    /// When the kernel refuses the signal handler.
    pub(super) fn new(base: NonNull<u8>, size: usize, page: usize) -> io::Result<Self> {
        static INSTALLED: OnceLock<i32> = OnceLock::new();
        let error = *INSTALLED.get_or_init(install);
        if error != 0 {
            return Err(io::Error::from_raw_os_error(error));
        }
        let start = base.as_ptr().addr();
        let _taking = TAKING.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = free_slot();
        slot.set(start, start + size, page);
        Ok(Self(slot))
    }

    /// Tests whether a page of the mapping was lost.
    #[inline]
    pub(super) fn is_lost(&self) -> bool {
        compiler_fence(Ordering::SeqCst);
        self.0.lost.load(Ordering::Relaxed) > 0
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let _taking = TAKING.lock().unwrap_or_else(PoisonError::into_inner);
        let counted = self.0.lost.load(Ordering::Relaxed).min(ONE_BY_ONE);
        self.0.set(0, 0, 0);
        ONE_BY_ONE_OF_ALL.fetch_sub(counted, Ordering::Relaxed);
    }
}

impl GuardSlot {
    fn set(&self, start: usize, end: usize, page: usize) {
        self.version.fetch_add(1, Ordering::AcqRel);
        fence(Ordering::Release);
        self.start.store(start, Ordering::Relaxed);
        self.end.store(end, Ordering::Relaxed);
        self.page.store(page, Ordering::Relaxed);
        self.lost.store(0, Ordering::Relaxed);
        self.version.fetch_add(1, Ordering::Release);
    }

    /// The page of an address and the mapping around it, each as start and size. A mapping that changes meanwhile is not the
    /// one that the faulting thread uses.
    fn around(&self, address: usize) -> Option<[(usize, usize); 2]> {
        let version = self.version.load(Ordering::Acquire);
        let (start, end) = (self.start.load(Ordering::Relaxed), self.end.load(Ordering::Relaxed));
        let page = self.page.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        let is_stable = version.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == version;
        let is_inside = page > 0 && start <= address && address < end;
        (is_stable && is_inside)
            .then(|| [(start + (address - start) / page * page, page), (start, end - start)])
    }

    /// Replaces a lost page. Replaces the whole mapping if it, or all mappings together, have lost many pages, or if no
    /// further mapping is possible. With `vm.overcommit_memory` of 2 the kernel may refuse that; then only the page is
    /// replaced.
    fn replace(&self, page: (usize, usize), whole: (usize, usize)) -> bool {
        // Count first: a thread that sees the empty page tests the counts after that.
        let before = self.lost.fetch_add(1, Ordering::Relaxed);
        LOST.fetch_add(1, Ordering::Relaxed);
        let is_alone =
            before < ONE_BY_ONE && ONE_BY_ONE_OF_ALL.fetch_add(1, Ordering::Relaxed) < MOST_ONE_BY_ONE;
        is_alone && replace(page) || replace(whole) || replace(page)
    }
}

/// A free slot; called by one thread at a time.
fn free_slot() -> &'static GuardSlot {
    let mut chunk = &FIRST;
    loop {
        if let Some(slot) = chunk.slots.iter().find(|slot| slot.end.load(Ordering::Relaxed) == 0) {
            return slot;
        }
        chunk = match chunk.next() {
            Some(next) => next,
            None => {
                let next = Box::leak(Box::new(Chunk::new()));
                chunk.next.store(next, Ordering::Release);
                next
            }
        };
    }
}

/// Installs the signal handler. Returns the error number, 0 for none.
fn install() -> i32 {
    // SAFETY: all bytes zero are a valid structure: no flags, no mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_fault as extern "C" fn(_, _, _) as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
    // SAFETY: the handler only makes system calls and atomic operations, which are allowed in a signal handler.
    match unsafe { libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut()) } {
        0 => 0,
        _ => io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL),
    }
}

/// `BUS_ADRERR`: the file has no such page.
const NO_PAGE: i32 = 2;
/// `BUS_MCEERR_AR` and `BUS_MCEERR_AO`: a memory error in a page that was accessed, or that was found by the machine
/// itself.
const FAILED: i32 = 4;
const FOUND_OUT: i32 = 5;

extern "C" fn on_fault(_signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel gives the structure of the fault, for as long as the handler runs.
    let info = unsafe { &*info };
    let code = info.si_code;
    // The page has not been accessed; a later access raises the other code. No instruction raises this one again.
    if code == FOUND_OUT {
        return;
    }
    if matches!(code, NO_PAGE | FAILED) {
        // SAFETY: a SIGBUS of these kinds has an address.
        let address = unsafe { info.si_addr() }.addr();
        let mut chunk = Some(&FIRST);
        while let Some(here) = chunk {
            for slot in &here.slots {
                let Some([page, whole]) = slot.around(address) else { continue };
                if slot.replace(page, whole) {
                    return;
                }
            }
            chunk = here.next();
        }
    }
    // Not a guarded mapping: the default action ends the process, as it would without this handler.
    // SAFETY: resetting a signal is allowed in a handler.
    unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
    if code <= 0 {
        // A process sent the signal, so no instruction raises it again.
        // SAFETY: the call takes no pointers.
        unsafe { libc::raise(libc::SIGBUS) };
    }
}

/// Replaces pages by empty ones.
fn replace((start, size): (usize, usize)) -> bool {
    let flags = libc::MAP_FIXED | libc::MAP_ANONYMOUS | libc::MAP_PRIVATE | libc::MAP_NORESERVE;
    let address = std::ptr::without_provenance_mut(start);
    // SAFETY: the location belongs to this thread.
    let error = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { error.read() };
    // SAFETY: the pages belong to a guarded mapping, so nothing else is mapped there.
    let mapped = unsafe { libc::mmap(address, size, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    if mapped == address {
        // An access should take a small page, not a huge one. Kernels without huge pages refuse this.
        // SAFETY: as before.
        unsafe { libc::madvise(address, size, libc::MADV_NOHUGEPAGE) };
    }
    // SAFETY: as above. The interrupted code may be about to read errno.
    unsafe { error.write(before) };
    mapped == address
}

#[cfg(test)]
#[path = "fault_tests.rs"]
mod tests;
