//! A request that was taken from the ring, and how far it is.
//!
//! However large a request is, the kernel gets it in steps: a worker then copies no more at a time than a turn's worth,
//! and what the host's disk does in part goes on like the rest.

use super::bounce::{Bounce, Bounces};
use super::request::{Range, Status};
use crate::memory::{GuestMemory, Part};
use crate::queue::Submission;
use crate::ring::pieces;
use std::os::fd::RawFd;
use std::sync::Arc;

/// Bytes of data in one step: as much as a queue of the usual weight may have in a turn.
const STEP: u64 = 512 << 10;
/// Bytes of one step that gives up a part of the disk, or makes it zero without writing. The kernel never does that in
/// the worker's thread.
const RANGE_STEP: u64 = 1 << 30;
/// Steps in a row in which the kernel may do nothing and ask for another try (EINTR, EAGAIN).
const RETRIES: u8 = 16;
/// Pieces for which a slot keeps its memory when it is free.
const KEPT: usize = 64;

/// A request that was taken.
#[derive(Default)]
pub(super) struct Slot {
    /// What names it to the ring.
    pub(super) id: u16,
    /// Where its status is to be written.
    pub(super) status: Option<Part>,
    /// The data's pieces in the guest.
    pub(super) parts: Vec<Part>,
    /// What it is.
    pub(super) work: Work,
    /// Bytes of data.
    pub(super) size: u64,
    /// Bytes that are done.
    done: u64,
    /// The pieces of the step under way. They stay where they are while the kernel has them.
    pieces: Vec<libc::iovec>,
    /// Bytes of the step under way.
    step: u64,
    retries: u8,
    bounce: Option<Bounce>,
    /// Keeps all that is pointed to mapped.
    memory: Option<Arc<GuestMemory>>,
}

// SAFETY: a slot points into guest memory that it keeps mapped, and to memory of its own.
unsafe impl Send for Slot {}

/// What a request is.
#[derive(Default)]
pub(super) enum Work {
    /// Everything that was written before is to be on the disk.
    #[default]
    Flush,
    /// From this byte of the disk on.
    Read(u64),
    /// From this byte of the disk on.
    Write(u64),
    /// Parts to give up, or to make zero.
    Ranges {
        /// Those that are left, the last one first.
        left: Vec<Range>,
        /// How.
        way: RangeWay,
    },
}

/// How parts are given up, or made zero.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RangeWay {
    /// They may read as anything afterwards.
    Discard,
    /// They are to read as zeroes, which the file's system is asked for.
    Zero,
    /// The same where the file's system cannot do it.
    WriteZeroes,
}

/// What became of a request after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// There is another step.
    More,
    /// It has ended.
    Ended(Status),
}

#[repr(align(4096))]
struct Zeroes([u8; 64 << 10]);
/// What is written where zeroes must be.
static ZEROES: Zeroes = Zeroes([0; 64 << 10]);

impl Slot {
    /// Begins a request. Its data's pieces were put into `parts` before.
    pub(super) fn begin(&mut self, work: Work, size: u64, memory: &Arc<GuestMemory>) {
        (self.work, self.size, self.done, self.retries) = (work, size, 0, 0);
        if !self.memory.as_ref().is_some_and(|kept| Arc::ptr_eq(kept, memory)) {
            self.memory = Some(Arc::clone(memory));
        }
    }

    /// Whether a page of the guest's memory was lost, so that nothing of this is to be relied on.
    pub(super) fn is_cut(&self) -> bool {
        self.memory.as_ref().is_some_and(|memory| memory.is_cut())
    }

    /// The next step, and how many bytes it moves; `None` when there is no memory that stands for the guest's.
    pub(super) fn next(
        &mut self,
        file: RawFd,
        alignment: u64,
        bounces: &mut Bounces,
    ) -> Option<(Submission, u64)> {
        if let Some(bounce) = self.bounce.take() {
            bounces.give(bounce);
        }
        self.pieces.clear();
        self.step = 0;
        let (at, is_write) = match &self.work {
            Work::Flush => return Some((Submission::Sync { file }, 0)),
            Work::Ranges { left, way } => {
                let (range, way) = (*left.last()?, *way);
                return Some(self.next_of_range(file, range, way));
            }
            Work::Read(at) => (*at, false),
            Work::Write(at) => (*at, true),
        };
        if !self.gather(alignment) {
            self.bounce = Some(bounces.take()?);
            self.fill_bounce(is_write);
        }
        let (pieces, count, offset) = (self.pieces.as_ptr(), self.pieces.len() as u32, at + self.done);
        let submission = match is_write {
            true => Submission::Write { file, pieces, count, offset },
            false => Submission::Read { file, pieces, count, offset },
        };
        Some((submission, self.step))
    }

    fn next_of_range(&mut self, file: RawFd, range: Range, way: RangeWay) -> (Submission, u64) {
        let offset = range.offset;
        if way == RangeWay::WriteZeroes {
            self.step = range.size.min(STEP);
            let mut left = self.step as usize;
            while left > 0 {
                let size = left.min(ZEROES.0.len());
                self.pieces
                    .push(libc::iovec { iov_base: ZEROES.0.as_ptr().cast_mut().cast(), iov_len: size });
                left -= size;
            }
            let (pieces, count) = (self.pieces.as_ptr(), self.pieces.len() as u32);
            return (Submission::Write { file, pieces, count, offset }, self.step);
        }
        self.step = range.size.min(RANGE_STEP);
        let mode = match way == RangeWay::Discard || range.may_discard {
            true => libc::FALLOC_FL_PUNCH_HOLE,
            false => libc::FALLOC_FL_ZERO_RANGE,
        };
        let mode = mode | libc::FALLOC_FL_KEEP_SIZE;
        (Submission::Allocate { file, mode, offset, size: self.step }, 0)
    }

    /// Puts together the pieces of a step that the disk can use as they are. Whether there is any.
    fn gather(&mut self, alignment: u64) -> bool {
        for part in pieces(&self.parts, self.done, STEP) {
            let is_aligned = (part.pointer.addr() as u64).is_multiple_of(alignment)
                && u64::from(part.size).is_multiple_of(alignment);
            if !is_aligned {
                break;
            }
            self.pieces.push(libc::iovec { iov_base: part.pointer.cast(), iov_len: part.size as usize });
            self.step += u64::from(part.size);
        }
        self.step > 0
    }

    /// Makes a step of what finds room in the bounce buffer.
    fn fill_bounce(&mut self, is_write: bool) {
        let Some(bounce) = &mut self.bounce else { return };
        let data = bounce.data();
        let size = data.len().min(usize::try_from(self.size - self.done).unwrap_or(usize::MAX));
        if is_write {
            let mut from = 0;
            for part in pieces(&self.parts, self.done, size as u64) {
                let to = data[from..from + part.size as usize].as_mut_ptr();
                // SAFETY: the part is mapped guest memory of as many bytes, which `to` has room for.
                unsafe { std::ptr::copy_nonoverlapping(part.pointer, to, part.size as usize) };
                from += part.size as usize;
            }
        }
        self.pieces.push(libc::iovec { iov_base: data.as_mut_ptr().cast(), iov_len: size });
        self.step = size as u64;
    }

    /// Takes note of what the kernel did of the step.
    pub(super) fn advance(&mut self, result: i32, bounces: &mut Bounces) -> Progress {
        let progress = self.after(result);
        if let Some(bounce) = self.bounce.take() {
            bounces.give(bounce);
        }
        progress
    }

    fn after(&mut self, result: i32) -> Progress {
        if result == -libc::EINTR || result == -libc::EAGAIN {
            self.retries += 1;
            return if self.retries > RETRIES { Progress::Ended(Status::Failed) } else { Progress::More };
        }
        self.retries = 0;
        if let Work::Ranges { left, way } = &mut self.work {
            match (result, *way) {
                // To discard is advice: where it cannot be taken, nothing is done.
                (result, RangeWay::Discard) if result == -libc::EOPNOTSUPP => left.clear(),
                (result, RangeWay::Zero) if result == -libc::EOPNOTSUPP => *way = RangeWay::WriteZeroes,
                (..0, _) | (0, RangeWay::WriteZeroes) => return Progress::Ended(Status::Failed),
                (written, RangeWay::WriteZeroes) => pass(left, u64::from(written.unsigned_abs())),
                _ => pass(left, self.step),
            }
            return if left.is_empty() { Progress::Ended(Status::Ok) } else { Progress::More };
        }
        if result < 0 {
            return Progress::Ended(Status::Failed);
        }
        if matches!(self.work, Work::Flush) {
            return Progress::Ended(Status::Ok);
        }
        let done = u64::from(result.unsigned_abs()).min(self.step);
        if matches!(self.work, Work::Read(_)) {
            self.empty_bounce(done);
        }
        self.done += done;
        match (self.done == self.size, done) {
            (true, _) => Progress::Ended(Status::Ok),
            // The file ends before the disk does.
            (false, 0) => Progress::Ended(Status::Failed),
            (false, _) => Progress::More,
        }
    }

    /// Gives the guest what was read into the bounce buffer, if there is one.
    fn empty_bounce(&mut self, size: u64) {
        let Some(bounce) = &mut self.bounce else { return };
        let data = bounce.data();
        let mut from = 0;
        for part in pieces(&self.parts, self.done, size) {
            let bytes = &data[from..from + part.size as usize];
            // SAFETY: the part is mapped guest memory of as many bytes.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), part.pointer, bytes.len()) };
            from += bytes.len();
        }
    }

    /// Gives back what a free slot does not need.
    pub(super) fn clear(&mut self, bounces: &mut Bounces) {
        if let Some(bounce) = self.bounce.take() {
            bounces.give(bounce);
        }
        self.work = Work::Flush;
        self.parts.clear();
        self.pieces.clear();
        self.parts.shrink_to(KEPT);
        self.pieces.shrink_to(KEPT);
    }
}

/// Takes note that the first `done` bytes of what is left are done.
fn pass(left: &mut Vec<Range>, done: u64) {
    if let Some(range) = left.last_mut() {
        let done = done.min(range.size);
        range.offset += done;
        range.size -= done;
        if range.size == 0 {
            left.pop();
        }
    }
}

/// The parts of a list that are no part at all left out. The last comes first, for they are done from the end.
pub(super) fn in_turn(ranges: Vec<Range>, way: RangeWay) -> Work {
    Work::Ranges { left: ranges.into_iter().rev().filter(|range| range.size > 0).collect(), way }
}
