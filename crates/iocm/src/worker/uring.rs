//! A worker's I/O: io_uring, or threads on hosts without it.

use super::threads::Threads;
use crate::queue::{IoEngine, QueueKey, Submission, Submitter, is_by_thread};
use io_uring::register::Restriction;
use io_uring::squeue::Flags;
use io_uring::{Builder, IoUring, opcode};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// The size of the submission queue.
const ENTRIES: u32 = 256;
/// The size of the completion queue: enough for all queues that a worker may have.
const COMPLETIONS: u32 = 4096;

/// The most threads that the kernel may start for a worker's requests that cannot complete at once: flushes, and whatever a
/// file system cannot begin without waiting. The default is four for each CPU: a few requests for a disk that does not
/// answer would delay those for all other disks of the worker.
const KERNEL_THREADS: u32 = 1024;

/// An io_uring, or threads in its place.
pub(super) struct Uring {
    kind: Kind,
    /// The number of queued entries that were not submitted.
    pending: u32,
    /// The number of requests that have not completed.
    pub(super) in_flight: u64,
    /// The number of those that a thread of the kernel may carry out.
    by_thread: u64,
    /// The number of submissions that the kernel is to refuse.
    #[cfg(test)]
    pub(super) refusals: u32,
}

enum Kind {
    Ring(Box<IoUring>),
    Threads(Threads),
}

impl Uring {
    /// Creates an io_uring. Where the host forbids that (`kernel.io_uring_disabled`, seccomp), threads do the disk I/O.
    pub(super) fn new() -> io::Result<Self> {
        match ring() {
            Ok(ring) => Ok(Self::of(Kind::Ring(Box::new(ring)))),
            Err(error) => {
                tracing::warn!("This host has no io_uring ({error}): threads do the disk I/O");
                Self::without_ring()
            }
        }
    }

    /// Creates threads, as on a host without io_uring.
    pub(super) fn without_ring() -> io::Result<Self> {
        Ok(Self::of(Kind::Threads(Threads::new()?)))
    }

    const fn of(kind: Kind) -> Self {
        Self {
            kind,
            pending: 0,
            in_flight: 0,
            by_thread: 0,
            #[cfg(test)]
            refusals: 0,
        }
    }

    /// Readable when a request has completed.
    pub(super) fn file(&self) -> BorrowedFd<'_> {
        match &self.kind {
            // SAFETY: the ring keeps its file open as long as it is borrowed.
            Kind::Ring(ring) => unsafe { BorrowedFd::borrow_raw(ring.as_raw_fd()) },
            Kind::Threads(threads) => threads.file(),
        }
    }

    /// Makes [`Self::file`] unreadable until the next completion. Those before it are to be taken afterwards; a ring's file
    /// is readable until they are.
    pub(super) fn clear(&self) {
        if let Kind::Threads(threads) = &self.kind {
            threads.clear();
        }
    }

    /// Tests whether a thread may be about to carry out a request that has not completed.
    #[inline]
    pub(super) const fn needs_threads(&self) -> bool {
        match self.kind {
            Kind::Ring(_) => self.by_thread > 0,
            Kind::Threads(_) => self.in_flight > 0,
        }
    }

    /// The submitter for the queue `key`.
    #[inline]
    pub(super) fn submitter(&mut self, key: QueueKey) -> Submitter<'_> {
        Submitter::new(self, key)
    }

    /// Submits all queued entries. `false` if the kernel does not take them until completions are handled.
    #[inline]
    pub(super) fn submit(&mut self) -> bool {
        let Kind::Ring(ring) = &self.kind else { return true };
        if self.pending == 0 {
            return true;
        }
        #[cfg(test)]
        if self.refusals > 0 {
            self.refusals -= 1;
            return false;
        }
        enter(ring, &mut self.pending);
        self.pending == 0
    }

    /// The next completion: its `user_data` and its result.
    #[inline]
    pub(super) fn next_completion(&mut self) -> Option<(u64, i32)> {
        let answer = match &mut self.kind {
            Kind::Ring(ring) => {
                let mut next = ring.completion().next();
                // The kernel keeps completions that found no room, and moves them only when it is entered.
                if next.is_none() && ring.submission().cq_overflow() {
                    enter(ring, &mut self.pending);
                    next = ring.completion().next();
                }
                next.map(|entry| (entry.user_data(), entry.result()))
            }
            Kind::Threads(_) if self.in_flight == 0 => None,
            Kind::Threads(threads) => threads.next_completion(),
        }?;
        self.in_flight = self.in_flight.saturating_sub(1);
        self.by_thread = self.by_thread.saturating_sub(u64::from(is_by_thread(answer.0)));
        Some(answer)
    }
}

/// Submits the queued entries, and subtracts those that the kernel took.
fn enter(ring: &IoUring, pending: &mut u32) {
    match ring.submit() {
        Ok(taken) => *pending = pending.saturating_sub(u32::try_from(taken).unwrap_or(u32::MAX)),
        Err(error) => tracing::debug!("io_uring takes no requests now: {error}"),
    }
}

/// Tests whether this process can create an io_uring.
///
/// # Errors
/// The kernel's reason. Threads do the disk I/O then.
pub fn io_uring() -> io::Result<()> {
    ring().map(drop)
}

fn ring() -> io::Result<IoUring> {
    let usual = || {
        let mut builder = IoUring::builder();
        builder.setup_cqsize(COMPLETIONS);
        builder
    };
    // `IORING_SETUP_SINGLE_ISSUER` needs Linux 6.0, restrictions need 5.10.
    restricted(usual().setup_single_issuer().setup_coop_taskrun())
        .or_else(|_| restricted(&mut usual()))
        .or_else(|_| usual().build(ENTRIES).inspect(allow_threads))
}

/// Raises the limit of the kernel's threads (Linux 5.15). Zero leaves the other limit, that of sockets, as it is.
fn allow_threads(ring: &IoUring) {
    if let Err(error) = ring.submitter().register_iowq_max_workers(&mut [KERNEL_THREADS, 0]) {
        tracing::debug!("The kernel keeps its limit of threads for requests that wait: {error}");
    }
}

/// A ring restricted to the operations that a worker uses, without registered files or buffers.
fn restricted(builder: &mut Builder) -> io::Result<IoUring> {
    let ring = builder.setup_r_disabled().build(ENTRIES)?;
    // A ring that is enabled registers nothing more.
    allow_threads(&ring);
    let operations =
        [opcode::Readv::CODE, opcode::Writev::CODE, opcode::Fsync::CODE, opcode::Fallocate::CODE];
    let aside = Restriction::sqe_flags_allowed(Flags::ASYNC.bits());
    let mut allowed: Vec<_> = operations.map(Restriction::sqe_op).into_iter().chain([aside]).collect();
    ring.submitter().register_restrictions(&mut allowed)?;
    ring.submitter().register_enable_rings()?;
    Ok(ring)
}

impl IoEngine for Uring {
    unsafe fn take(&mut self, submission: Submission, user_data: u64, aside: bool) -> bool {
        match &mut self.kind {
            Kind::Threads(threads) => threads.take(submission, user_data),
            Kind::Ring(ring) => {
                let flags = if aside { Flags::ASYNC } else { Flags::empty() };
                let entry = submission.entry().flags(flags).user_data(user_data);
                // SAFETY: the caller keeps what the entry points to.
                if unsafe { ring.submission().push(&entry) }.is_err() {
                    // The queue is full: the kernel takes its entries now, or it does not.
                    if !self.submit() {
                        return false;
                    }
                    let Kind::Ring(ring) = &mut self.kind else { return false };
                    // SAFETY: as above.
                    if unsafe { ring.submission().push(&entry) }.is_err() {
                        return false;
                    }
                }
                self.pending += 1;
            }
        }
        self.in_flight += 1;
        self.by_thread += u64::from(is_by_thread(user_data));
        true
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        // The kernel may still write to memory that the caller frees next.
        if self.in_flight > 0 {
            crate::fatal::abort("a worker ends while the kernel still has requests of it");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completions_that_found_no_room_are_found_without_another_request() {
        let Ok(mut uring) = ring().map(|ring| Uring::of(Kind::Ring(Box::new(ring)))) else {
            println!("not tested: this host gives no io_uring");
            return;
        };
        let file = std::fs::File::open("/dev/zero").unwrap();
        let mut byte = 0_u8;
        let piece = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
        let read = Submission::Read { file: file.as_raw_fd(), pieces: &raw const piece, count: 1, offset: 0 };
        let user_data = [7, 7 | 1 << 15];
        assert_eq!(user_data.map(is_by_thread), [false, true]);
        for number in 0..COMPLETIONS + ENTRIES {
            // SAFETY: the byte, the piece and the file stay until all reads have ended.
            assert!(unsafe { uring.take(read, user_data[number as usize % 2], false) });
        }
        assert_eq!(uring.by_thread * 2, uring.in_flight);
        let end = std::time::Instant::now() + std::time::Duration::from_secs(5);
        while uring.in_flight > 0 && std::time::Instant::now() < end {
            uring.submit();
            while let Some(answer) = uring.next_completion() {
                assert!(user_data.contains(&answer.0) && answer.1 == 1, "{answer:?}");
            }
        }
        let left = std::mem::take(&mut uring.in_flight);
        assert_eq!((left, uring.needs_threads()), (0, false));
    }

    #[test]
    fn a_ring_makes_no_other_operations_than_a_workers() {
        let Ok(mut ring) = restricted(&mut IoUring::builder()) else {
            println!("not tested: this host gives no io_uring");
            return;
        };
        let mut ask = |entry| {
            // SAFETY: neither request points to anything.
            unsafe { ring.submission().push(&entry) }.unwrap();
            let _ = ring.submit_and_wait(1);
            ring.completion().next().unwrap().result()
        };
        assert_eq!(ask(opcode::Nop::new().build()), -libc::EACCES);
        assert_eq!(ask(Submission::Sync { file: -1 }.entry()), -libc::EBADF);
    }
}
