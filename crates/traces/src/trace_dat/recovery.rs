//! Finds the data of each CPU in a file without its end, where trace-cmd writes the offsets.

use super::file::Recorded;
use super::options::{MOST_PROCESSORS, Processor};
use super::page::{HEADER, Page};
use super::section::Section;

/// The data in a section of pages, CPU by CPU. CPUs without data cannot be recognized.
pub(super) fn processors(recorded: &Recorded, section: &Section, page_size: u64) -> Vec<Processor> {
    let end = section.end(recorded);
    let mut found = Vec::new();
    let mut offset = section.start;
    while found.len() < MOST_PROCESSORS as usize {
        // trace-cmd aligns each CPU's data to a page.
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

/// The length of the compressed parts at `offset`, as trace-cmd counts it.
fn packed(recorded: &Recorded, offset: u64, end: u64) -> u64 {
    let mut fields = recorded.fields(offset);
    let Ok(count) = fields.u32() else { return 0 };
    for _ in 0..count {
        let Ok((length, _)) = fields.u32().and_then(|length| Ok((length, fields.u32()?))) else { break };
        if fields.skip(u64::from(length)).is_err() {
            // The reader reports the truncated last one.
            return end.saturating_sub(offset);
        }
    }
    if count == 0 || fields.at > end { 0 } else { fields.at - offset }
}

/// The length of the pages at `offset` whose times do not go back: those of the next CPU start earlier.
fn pages(recorded: &Recorded, offset: u64, end: u64, page_size: u64) -> u64 {
    let mut last = 0;
    let mut at = offset;
    let mut head = [0; HEADER];
    while at.saturating_add(HEADER as u64) <= end {
        let read = recorded.read_at(at, &mut head).unwrap_or(0);
        // An invalid or unused page is not the end.
        let time = Page::parse(&head[..read], page_size as usize).map_or(0, |page| page.time);
        if time > 0 && time < last {
            break;
        }
        last = last.max(time);
        at = at.saturating_add(page_size);
    }
    at.min(end) - offset.min(end)
}
