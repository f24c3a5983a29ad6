//! Signalling of eventfds that never blocks, whatever front-ends do to them.
//!
//! A write to a full eventfd blocks unless the open file has `O_NONBLOCK`. The front-end shares that flag and may clear
//! it at any moment, so that no write is safe: not write(2), and not io_uring's, with `RWF_NOWAIT` or without. So the
//! kernel itself signals (`eventfd_signal`), which leaves a full eventfd full and ignores the flag. Linux AIO does that
//! when a request ends (`IOCB_FLAG_RESFD`, fs/aio.c): here a read of no bytes, which ends as it is submitted.

use super::WorkerError;
use rustix::fs::{Mode, OFlags};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The number of signals in one submission.
const BATCH: usize = 64;

/// `struct iocb` of linux/aio_abi.h, on a little-endian machine.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Iocb {
    data: u64,
    key: u32,
    rw_flags: i32,
    opcode: u16,
    priority: i16,
    file: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    eventfd: u32,
}

/// `struct aio_ring` of fs/aio.c, without the events.
#[repr(C)]
struct AioRing {
    id: u32,
    events: u32,
    head: AtomicU32,
    tail: AtomicU32,
    magic: u32,
    compatible: u32,
    incompatible: u32,
    size: u32,
}

/// `struct io_event` of linux/aio_abi.h.
#[repr(C)]
#[derive(Clone, Copy)]
struct Event([u64; 4]);

/// Eventfds to be signalled.
#[derive(Debug)]
pub(super) struct Signals {
    context: libc::c_ulong,
    /// `context` points to a ring of the known layout, so that events are dropped without a system call.
    is_mapped: bool,
    /// `/dev/null`, the file of the reads.
    _null: OwnedFd,
    /// The requests of one submission.
    requests: Vec<Iocb>,
    /// The eventfds, kept open until they are signalled, even if their queues go away.
    files: Vec<Arc<OwnedFd>>,
    /// The number of submissions that the kernel is to refuse.
    #[cfg(test)]
    refusals: u32,
}

impl Signals {
    pub(super) fn new() -> Result<Self, WorkerError> {
        /// `IOCB_CMD_PREAD` and `IOCB_FLAG_RESFD`.
        const READ: u16 = 0;
        const SIGNAL: u32 = 1;
        let null = rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|error| WorkerError::Cannot { what: "no /dev/null", source: error.into() })?;
        let mut context: libc::c_ulong = 0;
        // SAFETY: the call writes one context.
        done(unsafe { libc::syscall(libc::SYS_io_setup, BATCH, &raw mut context) }).map_err(no_context)?;
        let request = Iocb { opcode: READ, file: number(&null), flags: SIGNAL, ..Iocb::default() };
        let mut made = Self {
            context,
            is_mapped: false,
            _null: null,
            requests: vec![request; BATCH],
            files: Vec::with_capacity(BATCH),
            #[cfg(test)]
            refusals: 0,
        };
        let ring = made.ring();
        made.is_mapped = ring.magic == 0xa10a_10a1 && ring.incompatible == 0;
        Ok(made)
    }

    fn ring(&self) -> &AioRing {
        // SAFETY: a context is the address at which the kernel has mapped its ring, which stays until `io_destroy`; only
        // `head` and `tail` change.
        unsafe { &*std::ptr::with_exposed_provenance(self.context as usize) }
    }

    /// Signals an eventfd with the next [`Self::flush`], or earlier.
    #[inline]
    pub(super) fn add(&mut self, file: &Arc<OwnedFd>) {
        // An eventfd that the kernel does not take now is kept once: a second signal would add nothing.
        let is_full = self.files.len() >= BATCH && !self.flush();
        if !is_full || !self.files.iter().any(|other| Arc::ptr_eq(other, file)) {
            self.files.push(Arc::clone(file));
        }
    }

    /// Signals all eventfds. `false` if the kernel does not take them now: try again later.
    #[inline]
    pub(super) fn flush(&mut self) -> bool {
        while !self.files.is_empty() {
            match self.submit() {
                Ok(made) => drop(self.files.drain(..made)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                Err(error) => {
                    // The error is that of the first one.
                    tracing::debug!("An eventfd is not signalled: {error}");
                    self.files.remove(0);
                }
            }
            self.drop_events();
        }
        true
    }

    /// Signals the first eventfds. Returns their number, which is not 0.
    fn submit(&mut self) -> io::Result<usize> {
        #[cfg(test)]
        if self.refusals > 0 {
            self.refusals -= 1;
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let mut pointers = [std::ptr::null_mut(); BATCH];
        let count = self.files.len().min(BATCH);
        for ((request, pointer), file) in self.requests.iter_mut().zip(&mut pointers).zip(&self.files) {
            request.eventfd = number(file);
            *pointer = &raw mut *request;
        }
        // SAFETY: `pointers` has `count` pointers to requests. The kernel keeps none of them, because a read of no
        // bytes has ended when the call returns.
        let made = unsafe { libc::syscall(libc::SYS_io_submit, self.context, count, pointers.as_ptr()) };
        done(made)
    }

    /// Drops the events of the submission, to make room for the next: the reads are known to have ended.
    fn drop_events(&self) {
        if self.is_mapped {
            let ring = self.ring();
            return ring.head.store(ring.tail.load(Ordering::Acquire), Ordering::Release);
        }
        let mut events = [Event([0; 4]); BATCH];
        let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `events` has room for as many events as the call may return.
        unsafe {
            libc::syscall(
                libc::SYS_io_getevents,
                self.context,
                0,
                events.len(),
                events.as_mut_ptr(),
                &raw const at_once,
            )
        };
    }
}

fn number(file: &OwnedFd) -> u32 {
    file.as_raw_fd().unsigned_abs()
}

fn done(result: libc::c_long) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// The error of io_setup(2), with what to do about it.
fn no_context(source: io::Error) -> WorkerError {
    let what = match source.raw_os_error() {
        Some(libc::EAGAIN) => {
            "other programs use all asynchronous I/O that fs.aio-max-nr allows (fs.aio-nr says how much), raise it by sysctl"
        }
        Some(libc::ENOSYS | libc::EPERM) => {
            "no asynchronous I/O by io_setup(2), which needs CONFIG_AIO and a filter of system calls that allows it"
        }
        _ => "no context of asynchronous I/O by io_setup(2)",
    };
    WorkerError::Cannot { what, source }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // SAFETY: nothing uses the ring any more.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
    }
}

#[cfg(test)]
#[path = "signals_tests.rs"]
mod tests;
