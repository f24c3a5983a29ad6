//! The types of records in perf.data that are read.

/// `PERF_RECORD_LOST`: records were dropped because a buffer was full.
pub(super) const LOST: u32 = 2;
/// `PERF_RECORD_COMM`: a thread's name.
pub(super) const COMM: u32 = 3;
/// `PERF_RECORD_SAMPLE`.
pub(super) const SAMPLE: u32 = 9;
/// `PERF_RECORD_LOST_SAMPLES`: the kernel's count of lost samples, by event.
pub(super) const LOST_SAMPLES: u32 = 13;
/// The first type of records that perf itself writes (`enum perf_user_event_type`, `tools/lib/perf`).
pub(super) const FIRST_OF_PERF: u32 = 64;
/// An event's attribute, in pipe mode.
pub(super) const HEADER_ATTR: u32 = 64;
/// The tracepoints' formats, in pipe mode; they follow the record.
pub(super) const HEADER_TRACING_DATA: u32 = 66;
/// All buffers were read once.
pub(super) const FINISHED_ROUND: u32 = 68;
/// The data of a hardware trace follows the record.
pub(super) const AUXTRACE: u32 = 71;
/// A section of the header, in pipe mode.
pub(super) const HEADER_FEATURE: u32 = 80;
/// A piece of a zstd stream of records.
pub(super) const COMPRESSED: u32 = 81;
/// The same with an explicit length besides the padded one, since Linux 6.16.
pub(super) const COMPRESSED2: u32 = 83;
