//! A request that the kernel has.

use super::request::Range;
use crate::memory::Part;
use crate::queue::Submission;
use io_uring::{opcode, types};
use std::os::fd::{BorrowedFd, RawFd};

/// A request that the kernel has.
#[derive(Default)]
pub(super) struct Slot {
    /// What names it to the ring.
    pub(super) id: u16,
    /// Where its status is to be written.
    pub(super) status: Option<Part>,
    /// The data's pieces in the guest, as the kernel reads them. They stay where they are while it does.
    pub(super) pieces: Vec<libc::iovec>,
    /// The same in the guest's addresses, for marking what was written.
    pub(super) parts: Vec<Part>,
    /// What it is.
    pub(super) work: Work,
    /// Bytes of data.
    pub(super) size: u64,
    /// Bytes that the kernel has done.
    pub(super) done: u64,
    /// Memory of this process that stands for the guest's where that cannot be used as it is.
    pub(super) bounce: Option<Bounce>,
}

// SAFETY: a slot points into guest memory that its queue's ring keeps mapped, and goes with that queue.
unsafe impl Send for Slot {}

#[derive(Default)]
pub(super) enum Work {
    #[default]
    Flush,
    Read(u64),
    Write(u64),
    /// Parts to give up, or to make zero.
    Ranges {
        /// Those that are left, the last one first.
        left: Vec<Range>,
        /// Whether they may read as anything afterwards.
        discard: bool,
    },
}

/// Memory that is aligned as the disk wants it.
pub(super) struct Bounce {
    bytes: Box<[u8]>,
    lead: usize,
}

impl Bounce {
    pub(super) fn new(size: u64, alignment: u64) -> Self {
        let bytes = vec![0; (size + alignment) as usize].into_boxed_slice();
        let lead = bytes.as_ptr().align_offset(alignment as usize);
        Self { bytes, lead }
    }

    pub(super) fn data(&mut self, size: u64) -> &mut [u8] {
        &mut self.bytes[self.lead..self.lead + size as usize]
    }
}

impl Slot {
    /// What is left of it, as a request for the kernel.
    pub(super) fn entry(&self, file: RawFd) -> Submission {
        let (pieces, count) = (self.pieces.as_ptr(), self.pieces.len() as u32);
        let file = types::Fd(file);
        match &self.work {
            Work::Read(offset) => opcode::Readv::new(file, pieces, count).offset(*offset).build(),
            Work::Write(offset) => opcode::Writev::new(file, pieces, count).offset(*offset).build(),
            Work::Flush => opcode::Fsync::new(file).flags(types::FsyncFlags::DATASYNC).build(),
            Work::Ranges { left, discard } => match left.last() {
                Some(range) => opcode::Fallocate::new(file, range.size)
                    .offset(range.offset)
                    .mode(mode(range, *discard))
                    .build(),
                None => opcode::Nop::new().build(),
            },
        }
    }

    /// Does what is left of it here and now. As the kernel's results are: negative for an error.
    pub(super) fn now(&self, file: RawFd) -> i32 {
        let (pieces, count) = (self.pieces.as_ptr(), self.pieces.len() as i32);
        let offset = |at: u64| at as i64;
        let result = match &self.work {
            // SAFETY: the pieces are mapped memory of the guest or of this slot, and as many as said.
            Work::Read(at) => unsafe { libc::preadv(file, pieces, count, offset(at + self.done)) },
            // SAFETY: as above.
            Work::Write(at) => unsafe { libc::pwritev(file, pieces, count, offset(at + self.done)) },
            // SAFETY: the call takes no memory.
            Work::Flush => unsafe { libc::fdatasync(file) as isize },
            Work::Ranges { left, discard } => match left.last() {
                // SAFETY: the call takes no memory.
                Some(range) => unsafe {
                    let mode = mode(range, *discard);
                    libc::fallocate(file, mode, offset(range.offset), offset(range.size)) as isize
                },
                None => 0,
            },
        };
        match i32::try_from(result) {
            Ok(result) if result >= 0 => result,
            _ => -std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO),
        }
    }

    /// The next part, where the file's system cannot give up or zero parts: to discard is advice, so nothing is done.
    pub(super) fn without_fallocate(&self, file: RawFd) -> i32 {
        match &self.work {
            Work::Ranges { discard: true, .. } => 0,
            Work::Ranges { left, .. } => left.last().map_or(0, |range| zeroes(file, range)),
            _ => -libc::EOPNOTSUPP,
        }
    }

    /// Takes note of what the kernel did. Whether something is left that can be tried.
    pub(super) fn advance(&mut self, result: i32) -> bool {
        let interrupted = result < 0;
        match &mut self.work {
            Work::Read(_) | Work::Write(_) => {
                let done = u64::from(result.max(0).unsigned_abs());
                self.done += done;
                let mut done = done as usize;
                self.pieces.retain_mut(|piece| {
                    let taken = done.min(piece.iov_len);
                    done -= taken;
                    piece.iov_base = piece.iov_base.wrapping_byte_add(taken);
                    piece.iov_len -= taken;
                    piece.iov_len > 0
                });
                !self.pieces.is_empty() && (result > 0 || interrupted)
            }
            Work::Flush => interrupted,
            Work::Ranges { left, .. } => {
                if !interrupted {
                    left.pop();
                }
                !left.is_empty()
            }
        }
    }

    pub(super) fn is_done(&self) -> bool {
        match &self.work {
            Work::Read(_) | Work::Write(_) => self.done == self.size,
            Work::Flush => true,
            Work::Ranges { left, .. } => left.is_empty(),
        }
    }
}

/// The parts of a list that are no part at all left out. The last comes first, for they are done from the end.
pub(super) fn in_turn(ranges: Vec<Range>, discard: bool) -> Work {
    Work::Ranges { left: ranges.into_iter().rev().filter(|range| range.size > 0).collect(), discard }
}

/// How a part is given up.
fn mode(range: &Range, discard: bool) -> i32 {
    let way = match discard || range.may_discard {
        true => libc::FALLOC_FL_PUNCH_HOLE,
        false => libc::FALLOC_FL_ZERO_RANGE,
    };
    way | libc::FALLOC_FL_KEEP_SIZE
}

/// Writes zeroes where the file's system cannot do it by itself. As the kernel's results are.
fn zeroes(file: RawFd, range: &Range) -> i32 {
    const ZEROES: &[u8] = &[0; 1 << 16];
    // SAFETY: the device keeps the file open.
    let file = unsafe { BorrowedFd::borrow_raw(file) };
    let (mut at, end) = (range.offset, range.offset + range.size);
    while at < end {
        let size = usize::try_from(end - at).map_or(ZEROES.len(), |left| left.min(ZEROES.len()));
        match rustix::io::pwrite(file, &ZEROES[..size], at) {
            Ok(done) if done > 0 => at += done as u64,
            Ok(_) => return -libc::EIO,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return -error.raw_os_error(),
        }
    }
    0
}
