//! Lines other than events: losses, and facts in a header.

use super::number::{decimal, find};
use crate::Origin;

/// The lines with which perf reports that a buffer was full, and what the kernel counted as lost.
const PERF_LOST: &[u8] = b"PERF_RECORD_LOST lost ";
const PERF_LOST_SAMPLES: &[u8] = b"PERF_RECORD_LOST_SAMPLES lost ";

/// A loss of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lost {
    /// Reported by perf's reader.
    Perf(u64),
    /// Counted by the kernel. May include losses that the reader has reported.
    PerfSamples(u64),
}

/// `CPU:3 [LOST 12 EVENTS]` of trace_pipe (`print_trace_line` in `kernel/trace/trace.c`), `CPU:3 [12 EVENTS DROPPED]`
/// of trace-cmd. Both omit the number if it is unknown.
pub(super) fn tracer_lost(line: &[u8]) -> Option<(u16, u64)> {
    let behind = line.strip_prefix(b"CPU:")?;
    let cpu = u16::try_from(decimal(behind)?).ok()?;
    let inside = &behind[find(behind, b"[")? + 1..];
    let lost = inside.strip_prefix(b"LOST ");
    if lost.is_none() && find(inside, b"EVENTS DROPPED]").is_none() {
        return None;
    }
    Some((cpu, decimal(lost.unwrap_or(inside)).unwrap_or(0)))
}

/// The loss in a line for a record of perf that is not an event.
pub(super) fn perf_lost(rest: &[u8]) -> Option<Lost> {
    if let Some(count) = rest.strip_prefix(PERF_LOST) {
        return decimal(count).map(Lost::Perf);
    }
    rest.strip_prefix(PERF_LOST_SAMPLES).and_then(decimal).map(Lost::PerfSamples)
}

/// `##### CPU 1 buffer started ####`: the ring buffer wrapped around, so earlier events are lost.
pub(super) fn buffer_started(line: &[u8]) -> Option<u16> {
    let behind = line.strip_prefix(b"##### CPU ")?;
    find(behind, b" buffer started").and_then(|_| u16::try_from(decimal(behind)?).ok())
}

/// Reads a line of the header; returns the number of events that were overwritten before they were read.
pub(super) fn header(line: &[u8], origin: &mut Origin, architecture: &mut Option<String>) -> u64 {
    // tracefs: the number of events in the buffer, and of all that were written.
    for title in [&b"# entries-in-buffer/entries-written: "[..], b"# latency: "] {
        let Some(mut counts) = line.strip_prefix(title) else { continue };
        if title == b"# latency: " {
            let Some(at) = find(counts, b" #") else { return 0 };
            counts = &counts[at + 2..];
        }
        let there = decimal(counts);
        let written = find(counts, b"/").and_then(|at| decimal(&counts[at + 1..]));
        return there.zip(written).map_or(0, |(there, written)| written.saturating_sub(there));
    }
    // perf: a title, a colon, and the value.
    let text = String::from_utf8_lossy(line);
    if let Some((_, kernel)) =
        text.split_once(" latency trace v").and_then(|(_, rest)| rest.split_once(" on "))
    {
        origin.kernel = Some(kernel.trim().to_owned());
    }
    let Some((title, content)) = text.trim_start_matches('#').split_once(':') else { return 0 };
    let content = Some(content.trim().to_owned()).filter(|content| !content.is_empty());
    match title.trim() {
        // "(none)" is a host without a name.
        "hostname" => origin.host = content.filter(|host| host != "(none)"),
        "os release" => origin.kernel = content,
        "perf version" => origin.version = content,
        "cpudesc" => origin.processor = content,
        "cmdline" => origin.command = content,
        "arch" => *architecture = content,
        _ => {}
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Format;
    use proptest::prelude::*;

    #[test]
    fn losses_of_all_writers() {
        assert_eq!(tracer_lost(b"CPU:1 [LOST 10322 EVENTS]"), Some((1, 10322)));
        assert_eq!(tracer_lost(b"CPU:12 [LOST EVENTS]"), Some((12, 0)));
        assert_eq!(tracer_lost(b"CPU:0 [870 EVENTS DROPPED]"), Some((0, 870)));
        assert_eq!(tracer_lost(b"CPU:0 [EVENTS DROPPED]"), Some((0, 0)));
        assert_eq!(tracer_lost(b"CPU:0 [12 OTHER THINGS]"), None);
        assert_eq!(tracer_lost(b"CPU 0 is empty"), None);
        assert_eq!(perf_lost(b"PERF_RECORD_LOST lost 36"), Some(Lost::Perf(36)));
        assert_eq!(perf_lost(b"PERF_RECORD_LOST_SAMPLES lost 5"), Some(Lost::PerfSamples(5)));
        assert_eq!(perf_lost(b"PERF_RECORD_MMAP -1/0"), None);
        assert_eq!(buffer_started(b"##### CPU 1 buffer started ####"), Some(1));
        assert_eq!(buffer_started(b"##### CPU x"), None);
    }

    #[test]
    fn headers_of_all_writers() {
        let (mut origin, mut architecture) = (Origin::new(Format::TracefsText), None);
        let mut take = |line: &str| header(line.as_bytes(), &mut origin, &mut architecture);
        assert_eq!(take("# entries-in-buffer/entries-written: 313/10638   #P:2"), 10325);
        assert_eq!(take("# latency: 0 us, #100/142, CPU#0 | (M:desktop VP:0, KP:0, SP:0 HP:0 #P:2)"), 42);
        assert_eq!(take("# nop latency trace v1.1.5 on 6.12.117+deb13-cloud-amd64"), 0);
        for line in [
            "# hostname : host1",
            "# perf version : 6.1.1",
            "# cpudesc : A CPU",
            "# arch : x86_64",
            "# tracer: nop",
        ] {
            assert_eq!(take(line), 0);
        }
        assert_eq!(origin.kernel.as_deref(), Some("6.12.117+deb13-cloud-amd64"));
        assert_eq!((origin.host.as_deref(), origin.version.as_deref()), (Some("host1"), Some("6.1.1")));
        assert_eq!((origin.processor.as_deref(), architecture.as_deref()), (Some("A CPU"), Some("x86_64")));
    }

    proptest! {
        #[test]
        fn no_text_panics(line in "(CPU:|# latency: |# entries-in-buffer/entries-written: |##### CPU )[ 0-9#/a-zA-Z\\[]{0,20}") {
            let _ = (tracer_lost(line.as_bytes()), perf_lost(line.as_bytes()), buffer_started(line.as_bytes()));
            let _ = header(line.as_bytes(), &mut Origin::new(Format::TracefsText), &mut None);
        }
    }
}
