//! The columns before an event: thread, CPU and time.
//!
//! The formats of tracefs are in `trace_print_context` and `trace_print_lat_context` in
//! `kernel/trace/trace_output.c`, those of `trace-cmd report` in `tep_print_event` of libtraceevent, those of `perf
//! script` in `perf_sample__fprintf_start` in `tools/perf/builtin-script.c`. The columns depend on options of each.

use super::number::{decimal, whole};

/// The maximum width of all columns; thread names have 15 characters.
const WIDEST: usize = 256;
/// The characters of the flags column: interrupts, need-resched, context, and depths of preemption and migration
/// disabling.
const FLAGS: &[u8] = b".#0123456789abcdefdDXNnpPlLBbHhZzSs";

/// The unit of a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    /// Seconds with nine decimals.
    Nanoseconds,
    /// Seconds with six decimals.
    Microseconds,
    /// Ticks of a clock other than nanoseconds.
    Ticks,
}

/// The columns of a line, and the event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Columns<'a> {
    /// The thread's name.
    pub(super) name: &'a [u8],
    pub(super) thread: u32,
    /// The process, if there is a column.
    pub(super) process: Option<u32>,
    pub(super) cpu: u16,
    /// The time in nanoseconds, or in ticks, depending on `unit`.
    pub(super) time: u64,
    pub(super) unit: Unit,
    /// The rest of the line: the event.
    pub(super) rest: &'a [u8],
}

impl<'a> Columns<'a> {
    /// Splits a line; `None` if it does not begin with such columns.
    pub(super) fn parse(line: &'a [u8]) -> Option<Self> {
        let columns = &line[..line.len().min(WIDEST)];
        // Thread names may contain colons.
        let colons = columns.iter().enumerate().filter(|(_, byte)| **byte == b':').map(|(at, _)| at);
        colons.into_iter().find_map(|colon| {
            let stamp = Stamp::before(&columns[..colon])?;
            let who = Who::before(&columns[..stamp.start], stamp.unit == Unit::Ticks)?;
            Some(Self {
                name: who.name,
                thread: who.thread,
                process: who.process,
                cpu: who.cpu,
                time: stamp.time,
                unit: stamp.unit,
                rest: &line[colon + 1..],
            })
        })
    }
}

struct Stamp {
    /// The offset in the line.
    start: usize,
    time: u64,
    unit: Unit,
}

impl Stamp {
    /// The time at the end of `text`.
    fn before(text: &[u8]) -> Option<Self> {
        if let Some((b'+' | b'!' | b'#' | b'*' | b'@' | b'$' | b' ', text)) = text.split_last() {
            // Latency format: microseconds since the first event, and a mark for a long delay.
            let text = text.strip_suffix(b"us")?;
            let start = digits_at_the_end(text);
            let time = whole(&text[start..])?.checked_mul(1000)?;
            return Some(Self { start, time, unit: Unit::Microseconds });
        }
        let start = digits_at_the_end(text);
        let digits = &text[start..];
        if let Some(seconds) = text[..start].strip_suffix(b".") {
            let (factor, unit) = match digits.len() {
                6 => (1000, Unit::Microseconds),
                9 => (1, Unit::Nanoseconds),
                // There is no space between the flags, which end with a dot, and a time of twelve digits or more.
                12.. => return Some(Self { start, time: whole(digits)?, unit: Unit::Ticks }),
                _ => return None,
            };
            let at = digits_at_the_end(seconds);
            let seconds = whole(&seconds[at..])?.checked_mul(1_000_000_000)?;
            return Some(Self { start: at, time: seconds.checked_add(whole(digits)? * factor)?, unit });
        }
        let alone = start > 0 && matches!(text[start - 1], b' ' | b'\t');
        alone.then(|| Some(Self { start, time: whole(digits)?, unit: Unit::Ticks }))?
    }
}

struct Who<'a> {
    name: &'a [u8],
    thread: u32,
    process: Option<u32>,
    cpu: u16,
}

impl<'a> Who<'a> {
    /// Thread, process and CPU at the end of `text`, in any of the known orders.
    fn before(text: &'a [u8], needs_cpu: bool) -> Option<Self> {
        let mut rest = text.trim_ascii_end();
        let (mut cpu, mut process) = (None, None);
        // Flags, process, CPU, process again: its place changed in Linux 4.14.
        for _ in 0..4 {
            if let Some(inside) = rest.strip_suffix(b")") {
                let open = inside.iter().rposition(|&byte| byte == b'(')?;
                // Dashes mean that the process was not recorded.
                process = whole(inside[open + 1..].trim_ascii()).and_then(|process| process.try_into().ok());
                rest = rest[..open].trim_ascii_end();
                continue;
            }
            let (before, word) = last_word(rest);
            if cpu.is_some() {
                break;
            }
            cpu = bracketed(word).or_else(|| leading(word));
            if cpu.is_none() && !is_flags(word) {
                break;
            }
            rest = before;
        }
        if needs_cpu && cpu.is_none() {
            return None;
        }
        let (before, word) = last_word(rest);
        let start = digits_at_the_end(word);
        let thread = whole(&word[start..])?.try_into().ok()?;
        let name = match word[..start].split_last() {
            // `name 12` or `name 10/12` in perf; `name-12` elsewhere.
            None => before,
            Some((b'/', own)) => {
                process = Some(whole(own)?.try_into().ok()?);
                before
            }
            Some((b'-', _)) => &rest[..rest.len() - (word.len() - start) - 1],
            Some(_) => return None,
        };
        Some(Self { name: name.trim_ascii(), thread, process, cpu: cpu.unwrap_or(0) })
    }
}

/// The start of the digits at the end.
fn digits_at_the_end(text: &[u8]) -> usize {
    text.iter().rposition(|byte| !byte.is_ascii_digit()).map_or(0, |at| at + 1)
}

/// The last word, and the text before it.
fn last_word(text: &[u8]) -> (&[u8], &[u8]) {
    let start = text.iter().rposition(|byte| matches!(byte, b' ' | b'\t')).map_or(0, |at| at + 1);
    (text[..start].trim_ascii_end(), &text[start..])
}

/// The CPU as `[003]`, or as `[003]-0x1` with flags that trace-cmd did not decode.
fn bracketed(word: &[u8]) -> Option<u16> {
    let inside = word.strip_prefix(b"[")?;
    let close = inside.iter().position(|&byte| byte == b']')?;
    u16::try_from(whole(&inside[..close])?).ok()
}

/// The CPU as `3d..1.`, before the flags of the latency format.
fn leading(word: &[u8]) -> Option<u16> {
    let digits = word.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let behind = &word[digits..];
    let cpu = (digits > 0 && !behind.is_empty() && is_flags(behind)).then(|| decimal(word))?;
    u16::try_from(cpu?).ok()
}

fn is_flags(word: &[u8]) -> bool {
    (3..=8).contains(&word.len())
        && word.iter().all(|byte| FLAGS.contains(byte))
        && !word.iter().all(u8::is_ascii_digit)
}

#[cfg(test)]
#[path = "columns_tests.rs"]
mod tests;
