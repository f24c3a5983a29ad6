//! Signalling of eventfds, which front-ends cannot make block for longer than a moment.
//!
//! A write to a full eventfd blocks unless the open file has `O_NONBLOCK`. The front-end shares that flag and may clear
//! it at any moment, so that no write is safe: not write(2), and not io_uring's, with `RWF_NOWAIT` or without. The kernel
//! itself signals without waiting (`eventfd_signal`), which leaves a full eventfd full and ignores the flag. Linux AIO
//! does that when a request ends (`IOCB_FLAG_RESFD`, fs/aio.c): here a read of no bytes, which ends as it is submitted.
//!
//! But a submission takes two to three times as long as write(2), and a driver that has one request in flight waits for
//! it. So a worker that signals often writes, with a time limit, when it has one eventfd to signal. A device whose eventfd
//! made the worker wait gets no write for a time that is long compared with the wait.

use super::WorkerError;
use super::deadline::{Deadline, LIMIT_NS, done};
use crate::clock::{now_ns, ticks};
use crate::queue::Eventfd;
use rustix::fs::{Mode, OFlags};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The number of signals in one submission.
const BATCH: usize = 64;

/// The number of signals in a row, each less than half a [`LIMIT_NS`] after the one before, from which on the worker writes.
/// The timer wakes the worker once after the last write, which costs as much as so many writes save.
const OFTEN: u32 = 32;

/// A write that takes more ticks of the TSC, 5 to 20 us, may have waited. Shorter waits cost less than to notice them.
const QUICK_TICKS: u64 = 20_000;

/// A device whose eventfd made the worker wait gets no write for this many times as long, so that its waits take less than
/// a hundredth of the worker's time.
const PENALTY: u64 = 128;

/// Then the worker writes to no device for this many times as long, so that the waits of all devices take less than a
/// sixteenth of its time.
const PAUSE: u64 = 16;

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
    files: Vec<Arc<Eventfd>>,
    /// The time limit of a write; `None` if the kernel or this process has none.
    deadline: Option<Deadline>,
    /// The time of the last signal, nanoseconds.
    last: u64,
    /// The number of signals in a row: see [`OFTEN`].
    in_a_row: u32,
    /// The number of [`waits`] of the thread before the last write; `None` if it may have slept since.
    waits: Option<i64>,
    /// The time until which the worker writes to no eventfd, nanoseconds.
    no_writes_until: u64,
    /// The number of writes.
    #[cfg(test)]
    writes: u32,
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
        let deadline = Deadline::new();
        if let Err(error) = &deadline {
            tracing::info!("An I/O worker has no timer, and signals take longer: {error}");
        }
        let request = Iocb { opcode: READ, file: number(&null), flags: SIGNAL, ..Iocb::default() };
        let mut made = Self {
            context,
            is_mapped: false,
            _null: null,
            requests: vec![request; BATCH],
            files: Vec::with_capacity(BATCH),
            deadline: deadline.ok(),
            last: 0,
            in_a_row: 0,
            waits: None,
            no_writes_until: 0,
            #[cfg(test)]
            writes: 0,
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
    pub(super) fn add(&mut self, file: &Arc<Eventfd>) {
        // An eventfd that the kernel does not take now is kept once: a second signal would add nothing.
        let is_full = self.files.len() >= BATCH && !self.submit_all();
        if !is_full || !self.files.iter().any(|other| Arc::ptr_eq(other, file)) {
            self.files.push(Arc::clone(file));
        }
    }

    /// Signals all eventfds. `false` if the kernel does not take them now: try again later. `now` in nanoseconds.
    #[inline]
    pub(super) fn flush(&mut self, now: u64) -> bool {
        if self.files.is_empty() {
            return true;
        }
        let before = std::mem::replace(&mut self.last, now);
        let is_soon = now.saturating_sub(before) < LIMIT_NS / 2;
        self.in_a_row = if is_soon { self.in_a_row.saturating_add(1) } else { 0 };
        if self.in_a_row >= OFTEN && self.files.len() == 1 && self.write(now) {
            self.files.clear();
            return true;
        }
        self.submit_all()
    }

    /// Writes to the first eventfd. `false` if it is still to be signalled.
    #[inline]
    fn write(&mut self, now: u64) -> bool {
        let (Some(deadline), Some(file)) = (&mut self.deadline, self.files.first()) else { return false };
        if now < self.no_writes_until.max(file.no_writes_until()) || !deadline.set(now) {
            return false;
        }
        #[cfg(test)]
        {
            self.writes += 1;
        }
        let before = *self.waits.get_or_insert_with(waits);
        let began = ticks();
        let outcome = rustix::io::write(file, &1_u64.to_ne_bytes());
        // It may also have been slow because it woke somebody, or because the thread lost its CPU.
        if ticks().wrapping_sub(began) > QUICK_TICKS && *self.waits.insert(waits()) != before {
            let ended = now_ns();
            // From the time of the round, which makes it rather longer. No eventfd is the reason of more than the limit.
            let waited = ended.saturating_sub(now).min(LIMIT_NS);
            file.forbid_writes_until(ended.saturating_add(PENALTY * waited));
            self.no_writes_until = ended.saturating_add(PAUSE * waited);
        }
        if outcome == Err(rustix::io::Errno::INTR) && !file.forbid_writes_until(u64::MAX) {
            tracing::warn!(
                "{}: an eventfd of its front-end was full and made an I/O worker wait: signals of the device take longer now",
                file.device()
            );
        }
        outcome.is_ok()
    }

    /// Notes that the thread may have slept.
    #[inline]
    pub(super) const fn slept(&mut self) {
        self.waits = None;
    }

    /// Ends the time limit after a call of the thread was interrupted: by then no write was made for a while.
    pub(super) fn interrupted(&mut self) {
        if let Some(deadline) = &mut self.deadline {
            deadline.clear();
        }
    }

    /// Ends the time limit if no write has needed it for a while: for a worker that never sleeps. `now` in nanoseconds.
    #[inline]
    pub(super) fn idle(&mut self, now: u64) {
        if let Some(deadline) = &mut self.deadline
            && deadline.is_over(now)
        {
            deadline.clear();
        }
    }

    /// Tests whether a time limit is set.
    #[cfg(test)]
    pub(super) fn has_limit(&self) -> bool {
        self.deadline.as_ref().is_some_and(Deadline::is_set)
    }

    fn submit_all(&mut self) -> bool {
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

/// The number of times that this thread has waited for something, and not only lost its CPU (`ru_nvcsw` of getrusage(2)).
fn waits() -> i64 {
    // SAFETY: the structure is valid when zeroed.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the call writes `usage`.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    usage.ru_nvcsw
}

fn number(file: impl AsFd) -> u32 {
    file.as_fd().as_raw_fd().unsigned_abs()
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
