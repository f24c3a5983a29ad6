//! The types of records in perf.data that matter here.

/// `PERF_RECORD_LOST`: a buffer was full.
pub(super) const LOST: u32 = 2;
/// `PERF_RECORD_COMM`: a thread's name.
pub(super) const COMM: u32 = 3;
/// `PERF_RECORD_SAMPLE`.
pub(super) const SAMPLE: u32 = 9;
/// `PERF_RECORD_LOST_SAMPLES`: what the kernel counted as lost, event by event.
pub(super) const LOST_SAMPLES: u32 = 13;
/// From here on perf itself makes the records (`enum perf_user_event_type`, `tools/lib/perf`).
pub(super) const FIRST_OF_PERF: u32 = 64;
/// An event's attribute, in pipe mode.
pub(super) const HEADER_ATTR: u32 = 64;
/// The tracepoints' formats, in pipe mode; they follow the record.
pub(super) const HEADER_TRACING_DATA: u32 = 66;
/// All buffers were read once.
pub(super) const FINISHED_ROUND: u32 = 68;
/// Bytes of a hardware trace follow the record.
pub(super) const AUXTRACE: u32 = 71;
/// A section of the header, in pipe mode.
pub(super) const HEADER_FEATURE: u32 = 80;
/// A piece of a zstd stream of records.
pub(super) const COMPRESSED: u32 = 81;
/// The same with its length apart from the padding, since Linux 6.16.
pub(super) const COMPRESSED2: u32 = 83;
