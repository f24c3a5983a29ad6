//! Parses the records of a perf ring buffer.
//!
//! Layout: `perf_event_open(2)`, "MMAP layout", for events that were opened with
//! `PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_RAW` and without `sample_id_all`.

use perf_event_open_sys::bindings as sys;

/// `struct perf_event_header`: type, misc, size.
const HEADER: usize = 8;

/// One occurrence of a tracepoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample<'a> {
    /// The process of the thread.
    pub pid: i32,
    /// The thread in which it occurred.
    pub tid: i32,
    /// Time in nanoseconds of `CLOCK_MONOTONIC`.
    pub time_ns: u64,
    /// The tracepoint's record, described by an [`crate::EventFormat`], with some padding after it.
    pub raw: &'a [u8],
}

/// One record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record<'a> {
    /// An occurrence.
    Sample(Sample<'a>),
    /// This number of records was dropped here.
    Lost(u64),
    /// A record of another type, which is skipped.
    Other(u32),
    /// Bytes that are not a record; nothing after them can be read.
    Malformed {
        /// The offset of the first one.
        offset: usize,
    },
}

/// Iterates over the records in `bytes`, which must begin with a record header. Never panics; ends after
/// [`Record::Malformed`].
#[must_use]
pub fn records(bytes: &[u8]) -> Records<'_> {
    Records { bytes, offset: 0 }
}

/// The iterator of [`records`].
#[derive(Debug, Clone)]
pub struct Records<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Iterator for Records<'a> {
    type Item = Record<'a>;

    fn next(&mut self) -> Option<Record<'a>> {
        let rest = self.bytes.get(self.offset..).filter(|rest| !rest.is_empty())?;
        let at = self.offset;
        match record(rest) {
            Some((size, record)) => {
                self.offset += size;
                Some(record)
            }
            None => {
                self.offset = self.bytes.len();
                Some(Record::Malformed { offset: at })
            }
        }
    }
}

fn record(bytes: &[u8]) -> Option<(usize, Record<'_>)> {
    let kind = u32_at(bytes, 0)?;
    let size = usize::from(u16_at(bytes, 6)?);
    if size < HEADER {
        return None;
    }
    let body = bytes.get(HEADER..size)?;
    let record = match kind {
        sys::PERF_RECORD_SAMPLE => {
            let length = usize::try_from(u32_at(body, 16)?).ok()?;
            Record::Sample(Sample {
                pid: u32_at(body, 0)? as i32,
                tid: u32_at(body, 4)? as i32,
                time_ns: u64_at(body, 8)?,
                raw: body.get(20..)?.get(..length)?,
            })
        }
        sys::PERF_RECORD_LOST => Record::Lost(u64_at(body, 8)?),
        sys::PERF_RECORD_LOST_SAMPLES => Record::Lost(u64_at(body, 0)?),
        other => Record::Other(other),
    };
    Some((size, record))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Builds records for the tests of this crate.
#[cfg(test)]
pub(crate) mod written {
    use super::*;

    pub(crate) fn record(kind: u32, body: &[u8]) -> Vec<u8> {
        let size = u16::try_from(HEADER + body.len()).unwrap();
        let mut bytes = kind.to_ne_bytes().to_vec();
        bytes.extend([0; 2]);
        bytes.extend(size.to_ne_bytes());
        bytes.extend(body);
        bytes
    }

    pub(crate) fn sample(tid: i32, time_ns: u64, raw: &[u8]) -> Vec<u8> {
        sample_of(7, tid, time_ns, raw)
    }

    pub(crate) fn sample_of(pid: i32, tid: i32, time_ns: u64, raw: &[u8]) -> Vec<u8> {
        let mut body = pid.to_ne_bytes().to_vec();
        body.extend(tid.to_ne_bytes());
        body.extend(time_ns.to_ne_bytes());
        body.extend(u32::try_from(raw.len()).unwrap().to_ne_bytes());
        body.extend(raw);
        // The kernel rounds sizes up to multiples of 8 bytes.
        body.resize(body.len().next_multiple_of(8), 0);
        record(sys::PERF_RECORD_SAMPLE, &body)
    }

    pub(crate) fn lost(count: u64) -> Vec<u8> {
        let mut body = 99u64.to_ne_bytes().to_vec();
        body.extend(count.to_ne_bytes());
        record(sys::PERF_RECORD_LOST, &body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn samples_losses_and_others() {
        let mut bytes = written::sample(11, 5000, &[1, 2, 3]);
        bytes.extend(written::lost(4));
        bytes.extend(written::record(sys::PERF_RECORD_LOST_SAMPLES, &6u64.to_ne_bytes()));
        bytes.extend(written::record(1234, &[0; 16]));
        let all: Vec<_> = records(&bytes).collect();
        let sample = Sample { pid: 7, tid: 11, time_ns: 5000, raw: &[1, 2, 3] };
        assert_eq!(all, [Record::Sample(sample), Record::Lost(4), Record::Lost(6), Record::Other(1234)]);
    }

    #[test]
    fn cut_bytes_end_the_walk() {
        let mut bytes = written::lost(4);
        let first = bytes.len();
        bytes.extend(written::sample(1, 2, &[0; 40]));
        bytes.truncate(bytes.len() - 8);
        let all: Vec<_> = records(&bytes).collect();
        assert_eq!(all, [Record::Lost(4), Record::Malformed { offset: first }]);
    }

    #[test]
    fn a_size_below_the_header_does_not_loop() {
        assert_eq!(records(&[0; 64]).collect::<Vec<_>>(), [Record::Malformed { offset: 0 }]);
    }

    #[test]
    fn a_raw_length_beyond_its_record_is_malformed() {
        let mut bytes = written::sample(1, 2, &[0; 4]);
        bytes[HEADER + 16..HEADER + 20].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert_eq!(records(&bytes).collect::<Vec<_>>(), [Record::Malformed { offset: 0 }]);
    }

    proptest! {
        #[test]
        fn no_bytes_panic_and_the_walk_ends(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(records(&bytes).count() <= bytes.len() / HEADER + 1);
        }

        #[test]
        fn flipped_bytes_do_not_panic(at in 0..56usize, value: u8) {
            let mut bytes = written::sample(1, 2, &[0; 20]);
            bytes.extend(written::lost(3));
            let at = at % bytes.len();
            bytes[at] = value;
            let _ = records(&bytes).count();
        }
    }
}
