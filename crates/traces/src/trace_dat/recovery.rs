//! Finds the data of each processor in a file whose end is missing, where trace-cmd writes the places.

use super::file::Recorded;
use super::options::Processor;
use super::page::{HEADER, Page};
use super::section::Section;

/// No kernel has more processors (`NR_CPUS` is 8192 at most on x86).
const MOST_PROCESSORS: usize = 8192;

/// The data in a section of pages, a processor after the other. Which processor has none cannot be known.
pub(super) fn processors(recorded: &Recorded, section: &Section, page_size: u64) -> Vec<Processor> {
    let end = section.end(recorded);
    let mut found = Vec::new();
    let mut offset = section.start;
    while found.len() < MOST_PROCESSORS {
        // trace-cmd begins each processor's data where a page could be mapped.
        offset = offset.next_multiple_of(page_size);
        let length = if section.packed {
            packed(recorded, offset, end)
        } else {
            pages(recorded, offset, end, page_size)
        };
        if length == 0 {
            break;
        }
        found.push(Processor { cpu: found.len() as u16, offset, length });
        offset += length;
    }
    found
}

/// Bytes of the packed parts at `offset`, counted as trace-cmd counts them.
fn packed(recorded: &Recorded, offset: u64, end: u64) -> u64 {
    let mut fields = recorded.fields(offset);
    let Ok(count) = fields.u32() else { return 0 };
    for _ in 0..count {
        let Ok((length, _)) = fields.u32().and_then(|length| Ok((length, fields.u32()?))) else { break };
        if fields.skip(u64::from(length)).is_err() {
            // What is there of the last one is for the reader to complain about.
            return end.saturating_sub(offset);
        }
    }
    if count == 0 || fields.at > end { 0 } else { fields.at - offset }
}

/// Bytes of the pages at `offset` whose times do not go back: those of the next processor begin earlier.
fn pages(recorded: &Recorded, offset: u64, end: u64, page_size: u64) -> u64 {
    let mut last = 0;
    let mut at = offset;
    let mut head = [0; HEADER];
    while at.saturating_add(HEADER as u64) <= end {
        let read = recorded.read_at(at, &mut head).unwrap_or(0);
        // A page that makes no sense, or was never written, ends nothing.
        let time = Page::parse(&head[..read], page_size as usize).map_or(0, |page| page.time);
        if time > 0 && time < last {
            break;
        }
        last = last.max(time);
        at = at.saturating_add(page_size);
    }
    at.min(end) - offset.min(end)
}
