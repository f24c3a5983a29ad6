//! A request in flight, and its progress.
//!
//! A request of any size is submitted in steps, so that a worker copies no more at a time than one turn allows, and
//! short reads and writes of the host's disk continue like any other step.

use super::bounce::{Bounce, Bounces};
use super::discards::Discard;
use super::request::{Range, Status};
use crate::memory::{GuestMemory, Part, lost_pages};
use crate::queue::Submission;
use crate::ring::pieces;
use std::os::fd::RawFd;
use std::sync::Arc;

/// The data of one step, bytes: as much as a queue of the usual weight may use in a turn.
const STEP: u64 = 512 << 10;
/// The same for O_DIRECT, where the disk moves the data, and each step has to wait for the disk again.
const DIRECT_STEP: u64 = 1 << 20;
/// The size of one step of a discard or of zeroing without writing, bytes. The kernel never does that in the worker's
/// thread.
const RANGE_STEP: u64 = 1 << 30;
/// The bytes that a step without data (a flush, a discard) counts as.
const NO_DATA: u64 = 64 << 10;
/// The most retries of a step in a row (EINTR, EAGAIN).
const RETRIES: u8 = 16;
/// The number of pieces for which a free slot keeps memory allocated.
const KEPT: usize = 64;

/// A request in flight.
#[derive(Default)]
pub(super) struct Slot {
    /// The head of its descriptor chain.
    pub(super) id: u16,
    /// The status byte of the request.
    pub(super) status: Option<Part>,
    /// The data's pieces in the guest.
    pub(super) parts: Vec<Part>,
    /// The kind of the request.
    pub(super) kind: SlotKind,
    /// Bytes of data.
    pub(super) size: u64,
    /// Its data must be on stable storage before its answer.
    pub(super) write_through: bool,
    /// Bytes that have completed.
    done: u64,
    /// The pieces of the step in flight, which must not move meanwhile.
    pieces: Vec<libc::iovec>,
    /// The bytes of the step in flight.
    step: u64,
    retries: u8,
    bounce: Option<Bounce>,
    /// It discards or zeroes ranges, and no worker writes meanwhile.
    pub(super) discard: Option<Discard>,
    /// Keeps the memory of all pointers mapped.
    memory: Option<Arc<GuestMemory>>,
    /// The count of lost pages of all guests when this memory was last tested.
    lost_pages: u32,
}

// SAFETY: a slot points into guest memory that it keeps mapped, and to memory of its own.
unsafe impl Send for Slot {}

/// The kind of a request.
#[derive(Default)]
pub(super) enum SlotKind {
    /// Flushes all earlier writes to the disk.
    #[default]
    Flush,
    /// Reads from this offset on.
    Read(u64),
    /// Writes from this offset on.
    Write(u64),
    /// Discards or zeroes ranges.
    Ranges {
        /// The ranges that are left, the last one first.
        left: Vec<Range>,
        /// The way in which it is done.
        method: RangeMethod,
    },
}

/// The way in which ranges are discarded or zeroed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RangeMethod {
    /// Their content does not matter afterwards.
    Discard,
    /// They must read as zeroes; the file system is asked to do it.
    Zero,
    /// Zeroes are written, for file systems that cannot do it.
    WriteZeroes,
}

/// The state of a request after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// There is another step.
    More,
    /// It has ended.
    Ended(Status),
}

#[repr(align(4096))]
struct Zeroes([u8; 64 << 10]);
/// The data that is written where a file cannot be zeroed otherwise.
static ZEROES: Zeroes = Zeroes([0; 64 << 10]);

impl Slot {
    /// Starts a request whose data pieces are in `parts`.
    pub(super) fn begin(&mut self, kind: SlotKind, size: u64, memory: &Arc<GuestMemory>) {
        (self.kind, self.size, self.done, self.retries) = (kind, size, 0, 0);
        if !self.memory.as_ref().is_some_and(|kept| Arc::ptr_eq(kept, memory)) {
            (self.memory, self.lost_pages) = (Some(Arc::clone(memory)), 0);
        }
    }

    /// The bytes that the step in flight counts as: those that it moves, or `NO_DATA`.
    pub(super) fn weight(&self) -> u64 {
        if self.pieces.is_empty() { NO_DATA } else { self.step }
    }

    /// Tests whether its end says that data is on stable storage.
    pub(super) const fn is_durable(&self) -> bool {
        matches!(self.kind, SlotKind::Flush) || self.write_through && matches!(self.kind, SlotKind::Write(_))
    }

    /// Tests whether a page of the guest's memory was lost, which makes the request's data unreliable.
    #[inline]
    pub(super) fn is_cut(&mut self) -> bool {
        let lost_pages = lost_pages();
        if lost_pages == self.lost_pages {
            return false;
        }
        let is_cut = self.memory.as_ref().is_some_and(|memory| memory.is_cut());
        if !is_cut {
            self.lost_pages = lost_pages;
        }
        is_cut
    }

    /// The next step and its bytes; `None` when no bounce buffer is free.
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
        let (at, is_write) = match &self.kind {
            SlotKind::Flush => return Some((Submission::Sync { file }, 0)),
            SlotKind::Ranges { left, method } => {
                let (range, method) = (*left.last()?, *method);
                return Some(self.next_of_range(file, range, method));
            }
            SlotKind::Read(at) => (*at, false),
            SlotKind::Write(at) => (*at, true),
        };
        if !self.gather(alignment) {
            self.bounce = Some(bounces.take()?);
            self.fill_bounce(is_write);
        }
        let (pieces, count, offset) = (self.pieces.as_ptr(), self.pieces.len() as u32, at + self.done);
        let submission = match is_write {
            true => Submission::Write { file, pieces, count, offset, sync: self.write_through },
            false => Submission::Read { file, pieces, count, offset },
        };
        Some((submission, self.step))
    }

    fn next_of_range(&mut self, file: RawFd, range: Range, method: RangeMethod) -> (Submission, u64) {
        let offset = range.offset;
        if method == RangeMethod::WriteZeroes {
            self.step = range.size.min(STEP);
            let mut left = self.step as usize;
            while left > 0 {
                let size = left.min(ZEROES.0.len());
                self.pieces
                    .push(libc::iovec { iov_base: ZEROES.0.as_ptr().cast_mut().cast(), iov_len: size });
                left -= size;
            }
            let (pieces, count) = (self.pieces.as_ptr(), self.pieces.len() as u32);
            return (Submission::Write { file, pieces, count, offset, sync: false }, self.step);
        }
        self.step = range.size.min(RANGE_STEP);
        let mode = match method == RangeMethod::Discard || range.may_discard {
            true => libc::FALLOC_FL_PUNCH_HOLE,
            false => libc::FALLOC_FL_ZERO_RANGE,
        };
        let mode = mode | libc::FALLOC_FL_KEEP_SIZE;
        (Submission::Allocate { file, mode, offset, size: self.step }, 0)
    }

    /// Collects the pieces of a step that the disk can use directly. `false` if there are none.
    fn gather(&mut self, alignment: u64) -> bool {
        // The page cache takes data of any alignment.
        let most = if alignment > 1 { DIRECT_STEP } else { STEP };
        for part in pieces(&self.parts, self.done, most) {
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

    /// Makes a step of what fits into the bounce buffer.
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

    /// Handles the completion of a step.
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
        if let SlotKind::Ranges { left, method } = &mut self.kind {
            match (result, *method) {
                // A discard is a hint: without support nothing is done.
                (result, RangeMethod::Discard) if is_beyond(result) => left.clear(),
                (result, RangeMethod::Zero) if is_beyond(result) => *method = RangeMethod::WriteZeroes,
                (..0, _) | (0, RangeMethod::WriteZeroes) => return Progress::Ended(Status::Failed),
                (written, RangeMethod::WriteZeroes) => pass(left, u64::from(written.unsigned_abs())),
                _ => pass(left, self.step),
            }
            return match (left.is_empty(), self.write_through) {
                (false, _) => Progress::More,
                (true, false) => Progress::Ended(Status::Ok),
                (true, true) => {
                    self.kind = SlotKind::Flush;
                    Progress::More
                }
            };
        }
        if result < 0 {
            return Progress::Ended(Status::Failed);
        }
        if matches!(self.kind, SlotKind::Flush) {
            return Progress::Ended(Status::Ok);
        }
        let done = u64::from(result.unsigned_abs()).min(self.step);
        if matches!(self.kind, SlotKind::Read(_)) {
            self.empty_bounce(done);
        }
        self.done += done;
        match (self.done == self.size, done) {
            (true, _) => Progress::Ended(Status::Ok),
            // The file is shorter than the disk.
            (false, 0) => Progress::Ended(Status::Failed),
            (false, _) => Progress::More,
        }
    }

    /// Copies a read from the bounce buffer to the guest.
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

    /// Frees what an unused slot does not need.
    pub(super) fn clear(&mut self, bounces: &mut Bounces) {
        if let Some(bounce) = self.bounce.take() {
            bounces.give(bounce);
        }
        self.kind = SlotKind::Flush;
        self.discard = None;
        self.parts.clear();
        self.pieces.clear();
        self.parts.shrink_to(KEPT);
        self.pieces.shrink_to(KEPT);
    }
}

/// Tests whether the file does not support the operation, or not for a range that is not a multiple of its blocks.
const fn is_beyond(result: i32) -> bool {
    result == -libc::EOPNOTSUPP || result == -libc::EINVAL
}

/// Removes the first `done` bytes from the ranges.
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

/// Prepares ranges: in reverse order, because they are taken from the end, and without empty ones. Ranges to discard
/// are cut to whole granules.
pub(super) fn in_turn(ranges: Vec<Range>, method: RangeMethod, granule: u32) -> SlotKind {
    let granule = u64::from(if method == RangeMethod::Discard { granule } else { 1 });
    let inwards = |range: Range| {
        let offset = range.offset.next_multiple_of(granule);
        let end = (range.offset + range.size) / granule * granule;
        Range { offset, size: end.saturating_sub(offset), ..range }
    };
    let left = ranges.into_iter().rev().map(inwards).filter(|range| range.size > 0).collect();
    SlotKind::Ranges { left, method }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(method: RangeMethod) -> Slot {
        let range = Range { offset: 512, size: 8192, may_discard: false };
        Slot { kind: in_turn(vec![range], method, 1), ..Slot::default() }
    }

    #[test]
    fn ranges_that_a_disk_cannot_deallocate_are_zeroed_by_writing_and_kept_by_a_discard() {
        for error in [-libc::EOPNOTSUPP, -libc::EINVAL] {
            let mut zero = slot(RangeMethod::Zero);
            assert_eq!(zero.after(error), Progress::More);
            let writes = matches!(&zero.kind, SlotKind::Ranges { left, method: RangeMethod::WriteZeroes } if left.len() == 1);
            assert!(writes);
            assert_eq!(zero.after(error), Progress::Ended(Status::Failed), "a write does not fail so");
            assert_eq!(slot(RangeMethod::Discard).after(error), Progress::Ended(Status::Ok));
        }
        assert_eq!(slot(RangeMethod::Discard).after(-libc::EIO), Progress::Ended(Status::Failed));
    }

    #[test]
    fn only_whole_blocks_are_discarded() {
        let range = |offset, size| Range { offset, size, may_discard: false };
        let left = |method| match in_turn(vec![range(512, 8192), range(512, 4096)], method, 4096) {
            SlotKind::Ranges { left, .. } => left,
            _ => unreachable!(),
        };
        assert_eq!(left(RangeMethod::Discard), [range(4096, 4096)]);
        assert_eq!(left(RangeMethod::Zero), [range(512, 4096), range(512, 8192)]);
    }
}
