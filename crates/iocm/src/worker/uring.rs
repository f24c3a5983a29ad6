//! How a worker's requests come to the kernel: by its io_uring, where the host has one.

use super::threads::Threads;
use crate::queue::{IoEngine, QueueKey, Submission, Submitter};
use io_uring::register::Restriction;
use io_uring::{Builder, IoUring, opcode};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Requests that can be put down before the kernel is told.
const ENTRIES: u32 = 256;
/// Answers that find room: those of all queues that a worker may have.
const COMPLETIONS: u32 = 4096;

/// An io_uring, or what stands for it.
pub(super) struct Uring {
    kind: Kind,
    /// Requests that the kernel was not told of.
    pending: u32,
    /// Requests that the kernel has not completed.
    pub(super) in_flight: u64,
    /// How often the kernel is to refuse what it is told.
    #[cfg(test)]
    pub(super) refusals: u32,
}

enum Kind {
    Ring(Box<IoUring>),
    Threads(Threads),
}

impl Uring {
    /// Makes one. Hosts may forbid it (`kernel.io_uring_disabled`, seccomp): threads wait for the disks then.
    pub(super) fn new() -> io::Result<Self> {
        let usual = || {
            let mut builder = IoUring::builder();
            builder.setup_cqsize(COMPLETIONS);
            builder
        };
        // Linux before 6.0 knows no single issuer, and before 5.10 no restrictions.
        let built = restricted(usual().setup_single_issuer().setup_coop_taskrun())
            .or_else(|_| restricted(&mut usual()))
            .or_else(|_| usual().build(ENTRIES));
        match built {
            Ok(ring) => Ok(Self::of(Kind::Ring(Box::new(ring)))),
            Err(error) => {
                tracing::warn!("This host gives no io_uring ({error}): threads wait for disks");
                Self::without_ring()
            }
        }
    }

    /// As on a host that has no io_uring.
    pub(super) fn without_ring() -> io::Result<Self> {
        Ok(Self::of(Kind::Threads(Threads::new()?)))
    }

    const fn of(kind: Kind) -> Self {
        Self {
            kind,
            pending: 0,
            in_flight: 0,
            #[cfg(test)]
            refusals: 0,
        }
    }

    /// Becomes readable when the kernel has completed something.
    pub(super) fn file(&self) -> BorrowedFd<'_> {
        match &self.kind {
            // SAFETY: the ring keeps its file open as long as it is borrowed.
            Kind::Ring(ring) => unsafe { BorrowedFd::borrow_raw(ring.as_raw_fd()) },
            Kind::Threads(threads) => threads.file(),
        }
    }

    /// Where requests of the queue `key` are put down.
    #[inline]
    pub(super) fn submitter(&mut self, key: QueueKey) -> Submitter<'_> {
        Submitter::new(self, key)
    }

    /// Tells the kernel of all requests that were put down. Whether it took them; if not, it does after answers were
    /// taken.
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
        match ring.submit() {
            Ok(taken) => self.pending = self.pending.saturating_sub(u32::try_from(taken).unwrap_or(u32::MAX)),
            Err(error) => tracing::debug!("io_uring takes no requests now: {error}"),
        }
        self.pending == 0
    }

    /// The next answer: what it is an answer to, and what it says.
    #[inline]
    pub(super) fn next_completion(&mut self) -> Option<(u64, i32)> {
        let answer = match &mut self.kind {
            Kind::Ring(ring) => ring.completion().next().map(|entry| (entry.user_data(), entry.result())),
            Kind::Threads(_) if self.in_flight == 0 => None,
            Kind::Threads(threads) => threads.next_completion(),
        }?;
        self.in_flight = self.in_flight.saturating_sub(1);
        Some(answer)
    }
}

/// A ring that takes no operations but those that a worker makes, and nothing that is registered.
fn restricted(builder: &mut Builder) -> io::Result<IoUring> {
    let ring = builder.setup_r_disabled().build(ENTRIES)?;
    let mut allowed =
        [opcode::Readv::CODE, opcode::Writev::CODE, opcode::Fsync::CODE, opcode::Fallocate::CODE]
            .map(Restriction::sqe_op);
    ring.submitter().register_restrictions(&mut allowed)?;
    ring.submitter().register_enable_rings()?;
    Ok(ring)
}

impl IoEngine for Uring {
    unsafe fn take(&mut self, submission: Submission, user_data: u64) -> bool {
        match &mut self.kind {
            Kind::Threads(threads) => threads.take(submission, user_data),
            Kind::Ring(ring) => {
                let entry = submission.entry().user_data(user_data);
                // SAFETY: the caller keeps what the entry points to.
                if unsafe { ring.submission().push(&entry) }.is_err() {
                    // The kernel takes those that are there at once, or says why not.
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
        true
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        // The kernel may still write to what whoever dropped this frees next.
        if self.in_flight > 0 {
            crate::fatal::abort("a worker ends while the kernel has requests of its");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
