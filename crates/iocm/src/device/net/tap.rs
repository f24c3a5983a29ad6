//! Taps, network interfaces of the host (Linux, Documentation/networking/tuntap.rst): a guest receives what the host
//! sends on its tap.

mod interface;

use super::error::NetError;
use super::header::{NetHeader, SIZE};
use super::offload::Offloads;
use crate::log_limit::LogLimit;
use crate::memory::Part;
use interface::{Interface, OpenTap};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The tap to use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TapOptions {
    /// By name: an existing tap, or one that is created and lasts as long as the daemon.
    Name {
        /// The name; the kernel replaces `%d` by a number.
        name: String,
        /// The network namespace of the tap: a name of `ip netns`, or a path; `None` for the daemon's.
        namespace: Option<String>,
    },
    /// By file descriptors that the daemon inherited, one for each queue pair.
    Files(Vec<i32>),
}

impl TapOptions {
    /// Tests whether its descriptors, if it has some, are those of a tap with this number of queue pairs.
    pub(crate) fn check_inherited(&self, pairs: u16) -> Result<(), NetError> {
        match self {
            Self::Name { .. } => Ok(()),
            Self::Files(numbers) => interface::given(numbers, pairs).map(drop),
        }
    }
}

/// One queue of a tap.
#[derive(Debug)]
pub struct TapQueue {
    file: OwnedFd,
    /// The interface has other queues, so this one can be detached.
    has_others: bool,
    attached: AtomicBool,
}

/// The most pieces of a packet for writev(2); with more it is copied first.
const PIECES: usize = 64;

impl TapQueue {
    /// Reads a packet with its header of [`SIZE`] bytes. Returns its size with the header; `None` when there is none.
    pub fn read(&self, packet: &mut [u8]) -> Option<usize> {
        loop {
            match rustix::io::read(&self.file, &mut *packet) {
                Ok(size) => return Some(size),
                Err(rustix::io::Errno::INTR) => {}
                // This also happens when the interface is down, or the queue was detached by others.
                Err(_) => return None,
            }
        }
    }

    /// Writes a packet, if `is_whole` says so of what was read of it. `false` if it is not, or the kernel did not take it,
    /// because the interface is down or its queue full.
    pub fn write(
        &self,
        header: &NetHeader,
        parts: impl Iterator<Item = Part>,
        is_whole: impl FnOnce() -> bool,
    ) -> bool {
        let mut head = header.bytes();
        // The kernel ignores `num_buffers`.
        head[SIZE - 2..].fill(0);
        let empty = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        let mut pieces = [empty; PIECES];
        pieces[0] = libc::iovec { iov_base: head.as_mut_ptr().cast(), iov_len: SIZE };
        let mut count = 1;
        let mut parts = parts.peekable();
        while let Some(part) = parts.next_if(|_| count < PIECES) {
            pieces[count] = libc::iovec { iov_base: part.pointer.cast(), iov_len: part.size as usize };
            count += 1;
        }
        if parts.peek().is_none() {
            return is_whole() && self.write_pieces(&pieces[..count]);
        }
        // Packets with so many pieces need not be fast.
        let mut whole = Vec::new();
        for piece in &pieces[1..] {
            append(&mut whole, piece.iov_base.cast(), piece.iov_len);
        }
        parts.for_each(|part| append(&mut whole, part.pointer, part.size as usize));
        let whole = libc::iovec { iov_base: whole.as_mut_ptr().cast(), iov_len: whole.len() };
        is_whole() && self.write_pieces(&[pieces[0], whole])
    }

    fn write_pieces(&self, pieces: &[libc::iovec]) -> bool {
        loop {
            // SAFETY: each piece is mapped memory of its size, this process's or the guest's, and the count is that of
            // the slice.
            let written =
                unsafe { libc::writev(self.file.as_raw_fd(), pieces.as_ptr(), pieces.len() as libc::c_int) };
            if written >= 0 {
                return true;
            }
            if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                return false;
            }
        }
    }

    /// Readable when there is a packet.
    #[must_use]
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Attaches or detaches this queue, if the interface has others.
    ///
    /// # Errors
    ///
    /// When the kernel refuses, as for an interface that was deleted; nothing has changed then.
    pub fn attach(&self, attached: bool) -> io::Result<()> {
        if self.has_others && self.attached.load(Ordering::Acquire) != attached {
            interface::attach(self.file.as_fd(), attached)?;
            self.attached.store(attached, Ordering::Release);
        }
        Ok(())
    }
}

fn append(whole: &mut Vec<u8>, from: *const u8, size: usize) {
    let before = whole.len();
    whole.resize(before + size, 0);
    // SAFETY: the piece is mapped guest memory of that size, and as much room was just made.
    unsafe { std::ptr::copy_nonoverlapping(from, whole[before..].as_mut_ptr(), size) };
}

/// A tap.
#[derive(Debug)]
pub struct Tap {
    queues: Vec<Arc<TapQueue>>,
    name: String,
    /// The kernel supports segments of UDP datagrams (USO).
    datagrams: bool,
    log: LogLimit,
}

impl Tap {
    /// Opens a tap with this number of queue pairs. A new one gets `mtu`, if that is not 0, and is brought up.
    ///
    /// # Errors
    /// [`NetError`].
    pub fn open(tap: &TapOptions, pairs: u16, mtu: u16) -> Result<Self, NetError> {
        let OpenTap { files, name } = match tap {
            TapOptions::Name { name, namespace } => {
                let interface = Interface { name: name.clone(), pairs, mtu };
                match namespace {
                    None => interface.open()?,
                    Some(namespace) => interface.open_in(namespace)?,
                }
            }
            TapOptions::Files(numbers) => interface::given(numbers, pairs)?,
        };
        let has_others = files.len() > 1;
        let queue = |file| Arc::new(TapQueue { file, has_others, attached: AtomicBool::new(true) });
        let queues = files.into_iter().map(queue).collect();
        let mut tap = Self { queues, name, datagrams: false, log: LogLimit::default() };
        let both = Offloads { checksum: true, datagrams4: true, datagrams6: true, ..Offloads::default() };
        tap.datagrams = tap.try_offloads(both).is_ok();
        tap.set_offloads(Offloads::default());
        // The kernel would send packets to queues that no guest reads.
        (1..tap.queues.len()).for_each(|pair| tap.attach(pair, false));
        Ok(tap)
    }

    /// Has the kernel send packets to the queue of this pair, or to the others alone.
    pub(crate) fn attach(&self, pair: usize, attached: bool) {
        let Some(queue) = self.queues.get(pair) else { return };
        if let Err(error) = queue.attach(attached) {
            self.log.warn(|| {
                format!(
                    "Could not {} queue {pair} of the tap {}: {error}; if the interface was deleted, create it and then \
                     the device again",
                    if attached { "attach" } else { "detach" },
                    self.name,
                )
            });
        }
    }

    /// The name of the interface.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// One of its queues.
    #[must_use]
    pub fn queue(&self, pair: usize) -> Option<Arc<TapQueue>> {
        self.queues.get(pair).cloned()
    }

    /// Tests whether the kernel supports USO (Linux 6.2).
    #[must_use]
    pub(crate) const fn knows_datagrams(&self) -> bool {
        self.datagrams
    }

    /// Tells the kernel the guest's offloads.
    pub(crate) fn set_offloads(&self, offloads: Offloads) {
        if let Err(error) = self.try_offloads(offloads) {
            self.log.warn(|| format!("{} leaves the guest no work on packets: {error}", self.name));
            // Otherwise those of the previous driver would stay in force.
            let _ = self.try_offloads(Offloads::default());
        }
    }

    fn try_offloads(&self, offloads: Offloads) -> io::Result<()> {
        match self.queues.first() {
            Some(queue) => interface::set_offloads(queue.file.as_fd(), offloads),
            None => Ok(()),
        }
    }

    /// Sends a packet as if the guest had.
    pub(crate) fn inject(&self, frame: &[u8]) -> bool {
        let part = Part { pointer: frame.as_ptr().cast_mut(), guest: 0, size: frame.len() as u32 };
        let queue = self.queues.first();
        queue.is_some_and(|queue| queue.write(&NetHeader::NOTHING, std::iter::once(part), || true))
    }
}

#[cfg(test)]
#[path = "tap_tests.rs"]
mod tests;
