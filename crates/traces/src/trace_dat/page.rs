//! Pages of the kernel's ring buffer, as they are copied into recordings.
//!
//! `struct buffer_data_page` and `struct ring_buffer_event` in `kernel/trace/ring_buffer.c` and
//! `include/linux/ring_buffer.h`; `events/header_page` and `events/header_event` of tracefs describe them in a
//! recording.

use crate::bytes::{u32_at, u64_at};

/// The size of the header: time stamp and `commit`, 64 bits each.
pub(super) const HEADER: usize = 16;

/// Bits of the lower half of `commit`: events were lost before this page; their number follows the records.
const MISSED: u32 = 1 << 31;
const MISSED_STORED: u32 = 1 << 30;
/// Bits of the lower half of `commit` that hold the length of the records.
const LENGTH: u32 = (1 << 27) - 1;

/// `enum ring_buffer_type`; lower types are a data length in words.
const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;
/// The bits of the time delta in the first word of a record; time records have the rest in their second word.
const DIFFERENCE_BITS: u32 = 27;
/// The bits that an absolute time stamp does not contain.
const TIME_HIGH: u64 = 0xf8 << 56;

/// A page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Page<'a> {
    /// The base time of its first record, ticks of the recording's clock.
    pub(super) time: u64,
    /// The number of events that were lost before it; zero if unknown.
    pub(super) lost: Option<u64>,
    records: &'a [u8],
    /// True if all of its records are there.
    pub(super) whole: bool,
}

impl<'a> Page<'a> {
    /// Parses a page of `size` bytes, which may be truncated. `None` if its header is invalid.
    pub(super) fn parse(bytes: &'a [u8], size: usize) -> Option<Self> {
        // The upper half of `commit` means nothing: most kernels add `MISSED` as a negative `int`, which sets it.
        let (time, commit) = (u64_at(bytes, 0)?, u32_at(bytes, 8)?);
        let length = (commit & LENGTH) as usize;
        if commit & !(LENGTH | MISSED | MISSED_STORED) != 0 || length > size - HEADER {
            return None;
        }
        let data = bytes.get(HEADER..)?;
        let stored = || u64_at(data, length).filter(|_| commit & MISSED_STORED != 0);
        let lost = (commit & MISSED != 0).then(|| stored().unwrap_or(0));
        Some(Self { time, lost, records: &data[..length.min(data.len())], whole: length <= data.len() })
    }

    /// Passes every event with its time to `take`. If the records are invalid, returns the offset in the page.
    pub(super) fn events(&self, mut take: impl FnMut(u64, &[u8])) -> Result<(), usize> {
        let mut rest = self.records;
        let mut time = self.time;
        loop {
            let place = HEADER + self.records.len() - rest.len();
            let Some((head, behind)) = rest.split_first_chunk() else {
                return if rest.is_empty() { Ok(()) } else { Err(place) };
            };
            let head = u32::from_le_bytes(*head);
            let (kind, difference) = (head & 31, u64::from(head >> 5));
            let word = || u32_at(behind, 0).ok_or(place);
            let length = match kind {
                0 => {
                    // The length includes itself.
                    let length = word()? as usize;
                    time = time.wrapping_add(difference);
                    take(time, behind.get(4..length).ok_or(place)?);
                    length.next_multiple_of(4).min(behind.len())
                }
                // The rest of the page is empty.
                PADDING if difference == 0 => return Ok(()),
                // A discarded event; the time of the next one is relative to it.
                PADDING => {
                    time = time.wrapping_add(difference);
                    word()? as usize
                }
                TIME_EXTEND => {
                    time = time.wrapping_add(u64::from(word()?) << DIFFERENCE_BITS | difference);
                    4
                }
                TIME_STAMP => {
                    time = absolute(u64::from(word()?) << DIFFERENCE_BITS | difference, time);
                    4
                }
                words => {
                    let length = 4 * words as usize;
                    time = time.wrapping_add(difference);
                    take(time, behind.get(..length).ok_or(place)?);
                    length
                }
            };
            rest = behind.get(length..).ok_or(place)?;
        }
    }
}

/// Takes the missing bits of an absolute time from the time before it (`rb_fix_abs_ts`).
fn absolute(stamp: u64, before: u64) -> u64 {
    if before & TIME_HIGH == 0 {
        return stamp;
    }
    let time = stamp | before & TIME_HIGH;
    if time < before { time.wrapping_add(1 << 59) } else { time }
}

#[cfg(test)]
#[path = "page_tests.rs"]
mod tests;
