//! `struct perf_event_attr`, which determines the contents and the layout of an event's samples.
//!
//! Sources: `include/uapi/linux/perf_event.h`, `perf_event_open(2)`.

use crate::bytes::{u32_at, u64_at};

/// `PERF_ATTR_SIZE_VER0`, the size of the first version and the smallest valid one.
pub(super) const SMALLEST: usize = 64;

/// Bits of `sample_type`, in the order of the header.
mod sample {
    pub(super) const IP: u64 = 1 << 0;
    pub(super) const TID: u64 = 1 << 1;
    pub(super) const TIME: u64 = 1 << 2;
    pub(super) const ADDR: u64 = 1 << 3;
    pub(super) const READ: u64 = 1 << 4;
    pub(super) const CALLCHAIN: u64 = 1 << 5;
    pub(super) const ID: u64 = 1 << 6;
    pub(super) const CPU: u64 = 1 << 7;
    pub(super) const PERIOD: u64 = 1 << 8;
    pub(super) const STREAM_ID: u64 = 1 << 9;
    pub(super) const RAW: u64 = 1 << 10;
    pub(super) const IDENTIFIER: u64 = 1 << 16;
}

/// Bits of `read_format`.
mod read {
    pub(super) const TOTAL_TIME_ENABLED: u64 = 1 << 0;
    pub(super) const TOTAL_TIME_RUNNING: u64 = 1 << 1;
    pub(super) const ID: u64 = 1 << 2;
    pub(super) const GROUP: u64 = 1 << 3;
    pub(super) const LOST: u64 = 1 << 4;
}

/// Bit 10 of the flags: the period is a frequency.
const FREQ: u64 = 1 << 10;
/// Bit 18 of the flags: records other than samples end with the same identification.
const SAMPLE_ID_ALL: u64 = 1 << 18;

/// `PERF_TYPE_TRACEPOINT`.
const TRACEPOINT: u32 = 2;

/// An event, and the contents of its samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Attribute {
    kind: u32,
    /// The tracepoint's ID.
    pub(super) config: u64,
    /// Events from one sample to the next, or samples in a second; zero for one that is sampled with another.
    period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
}

/// The offsets in an event's samples, in bytes from the start of the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Layout {
    pub(super) identity: Option<u16>,
    pub(super) thread: Option<u16>,
    pub(super) time: Option<u16>,
    pub(super) cpu: Option<u16>,
    /// The offset of the raw data, or of the parts of variable size before it.
    pub(super) raw: Option<u16>,
    read: Option<u64>,
    callchain: bool,
    /// Offsets from the end of records other than samples.
    pub(super) trailing_identity: Option<u16>,
    pub(super) trailing_cpu: Option<u16>,
    pub(super) trailing_time: Option<u16>,
    pub(super) tracepoint: bool,
}

/// `struct perf_event_header`.
pub(super) const HEADER: usize = 8;

impl Attribute {
    /// Reads the fields that every version has.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            kind: u32_at(bytes, 0)?,
            config: u64_at(bytes, 8)?,
            period: u64_at(bytes, 16)?,
            sample_type: u64_at(bytes, 24)?,
            read_format: u64_at(bytes, 32)?,
            flags: u64_at(bytes, 40)?,
        })
    }

    pub(super) fn is_tracepoint(&self) -> bool {
        self.kind == TRACEPOINT
    }

    /// Tests whether only some of the events are recorded, as by `-F` and `-c` of perf, which apply to tracepoints too
    /// (`evsel__config` in `tools/perf/util/evsel.c`).
    pub(super) fn is_sampled(&self) -> bool {
        self.period != 0 && (self.period != 1 || self.flags & FREQ != 0)
    }

    pub(super) fn has_time(&self) -> bool {
        self.sample_type & sample::TIME != 0
    }

    pub(super) fn layout(&self) -> Layout {
        let has = |bit| self.sample_type & bit != 0;
        let mut at = HEADER as u16;
        let mut field = |bit: u64| {
            let place = (self.sample_type & bit != 0).then_some(at);
            at += if place.is_some() { 8 } else { 0 };
            place
        };
        let identifier = field(sample::IDENTIFIER);
        field(sample::IP);
        let thread = field(sample::TID);
        let time = field(sample::TIME);
        field(sample::ADDR);
        let id = field(sample::ID);
        field(sample::STREAM_ID);
        let cpu = field(sample::CPU);
        field(sample::PERIOD);
        // From the end, in the order of the manual.
        let trailing = |bit: u64, behind: &[u64]| {
            let there = has(bit) && self.flags & SAMPLE_ID_ALL != 0;
            there.then(|| 8 * (1 + behind.iter().filter(|&&bit| has(bit)).count() as u16))
        };
        let (behind_cpu, behind_id) =
            ([sample::IDENTIFIER], [sample::STREAM_ID, sample::CPU, sample::IDENTIFIER]);
        let behind_time = [sample::ID, sample::STREAM_ID, sample::CPU, sample::IDENTIFIER];
        Layout {
            identity: identifier.or(id),
            thread,
            time,
            cpu,
            raw: has(sample::RAW).then_some(at),
            read: has(sample::READ).then_some(self.read_format),
            callchain: has(sample::CALLCHAIN),
            trailing_identity: trailing(sample::IDENTIFIER, &[]).or_else(|| trailing(sample::ID, &behind_id)),
            trailing_time: trailing(sample::TIME, &behind_time),
            trailing_cpu: trailing(sample::CPU, &behind_cpu),
            tracepoint: self.is_tracepoint(),
        }
    }
}

impl Layout {
    /// The raw data of a sample.
    #[inline]
    pub(super) fn raw<'a>(&self, record: &'a [u8]) -> Option<&'a [u8]> {
        let mut at = usize::from(self.raw?);
        if self.read.is_some() || self.callchain {
            at = self.behind_variable_parts(record, at)?;
        }
        let length = usize::try_from(u32_at(record, at)?).ok()?;
        record.get(at + 4..)?.get(..length)
    }

    /// The offset of the raw data, after its length, if it is the same for all samples.
    pub(super) fn fixed_raw(&self) -> Option<u16> {
        self.raw.filter(|_| self.read.is_none() && !self.callchain)
    }

    #[cold]
    fn behind_variable_parts(&self, record: &[u8], mut at: usize) -> Option<usize> {
        let count = |at: usize| usize::try_from(u64_at(record, at)?).ok();
        if let Some(format) = self.read {
            let has = |bit| usize::from(format & bit != 0);
            let times = has(read::TOTAL_TIME_ENABLED) + has(read::TOTAL_TIME_RUNNING);
            let value = 1 + has(read::ID) + has(read::LOST);
            let values = if format & read::GROUP != 0 { count(at)? } else { 1 };
            let words = values.checked_mul(value)?.checked_add(times + has(read::GROUP))?;
            at = at.checked_add(words.checked_mul(8)?)?;
        }
        if self.callchain {
            at = at.checked_add(count(at)?.checked_add(1)?.checked_mul(8)?)?;
        }
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(sample_type: u64, read_format: u64) -> Attribute {
        Attribute { kind: TRACEPOINT, config: 1, period: 1, sample_type, read_format, flags: SAMPLE_ID_ALL }
    }

    /// The sample type of `perf kvm stat record`.
    const USUAL: u64 = sample::IDENTIFIER
        | sample::IP
        | sample::TID
        | sample::TIME
        | sample::CPU
        | sample::PERIOD
        | sample::RAW;

    #[test]
    fn places_follow_the_order_of_the_manual() {
        let layout = attribute(USUAL, 0).layout();
        assert_eq!((layout.identity, layout.thread, layout.time), (Some(8), Some(24), Some(32)));
        assert_eq!((layout.cpu, layout.raw, layout.trailing_cpu), (Some(40), Some(56), Some(16)));
        assert_eq!((layout.trailing_time, layout.trailing_identity), (Some(24), Some(8)));
        let bare = attribute(sample::TID | sample::ID | sample::RAW, 0).layout();
        assert_eq!((bare.identity, bare.thread, bare.time, bare.cpu), (Some(16), Some(8), None, None));
        assert_eq!((bare.raw, bare.trailing_cpu), (Some(24), None));
        // `perf kvm stat record` with `-p`: all events have one sample type, so perf writes ID and no IDENTIFIER.
        let one_type = attribute(USUAL & !sample::IDENTIFIER | sample::ID, 0).layout();
        assert_eq!(
            (one_type.trailing_time, one_type.trailing_identity, one_type.trailing_cpu),
            (Some(24), Some(16), Some(8))
        );
    }

    #[test]
    fn a_frequency_and_a_period_leave_events_out() {
        let sampled = |period, flags| Attribute { period, flags, ..attribute(USUAL, 0) }.is_sampled();
        assert!(sampled(99, FREQ) && sampled(1, FREQ) && sampled(100, 0));
        // Each event, and a member of a group that is sampled with its leader.
        assert!(!sampled(1, SAMPLE_ID_ALL) && !sampled(0, 0) && !sampled(0, FREQ));
    }

    #[test]
    fn parts_of_any_size_before_the_tracepoint() {
        let group = read::GROUP | read::ID | read::TOTAL_TIME_ENABLED;
        let layout = attribute(sample::READ | sample::CALLCHAIN | sample::RAW, group).layout();
        let mut record = vec![0; HEADER];
        // Two values with their IDs and the time; three addresses; five bytes.
        for word in [2, 100, 1, 10, 2, 20, 3, 0xa, 0xb, 0xc] {
            record.extend(u64::to_le_bytes(word));
        }
        record.extend(5u32.to_le_bytes());
        record.extend(b"bytes...");
        assert_eq!(layout.raw(&record), Some(&b"bytes"[..]));
        record[HEADER..HEADER + 8].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(layout.raw(&record), None);
    }
}
