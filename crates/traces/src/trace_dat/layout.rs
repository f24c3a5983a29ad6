//! The layout of a file, in both versions of the format.

use std::collections::BTreeSet;

use super::descriptions::Descriptions;
use super::file::{Flaw, Recorded};
use super::header::Header;
use super::options::{Facts, Processor};
use crate::Error;

/// The valid page sizes: 4 KiB or, since Linux 6.8, up to 256 times as much (`buffer_subbuf_size_kb` of tracefs).
const PAGE_SIZES: std::ops::RangeInclusive<u64> = 4096..=1 << 20;

/// The most CPUs of all buffers together whose data is read: each step of reading looks at all of them.
const MOST_RUNS: usize = 16_384;

/// The pages of one ring buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Buffer {
    /// The name of the instance; empty for the top-level buffer.
    pub(super) name: String,
    pub(super) clock: String,
    pub(super) page_size: u64,
    /// True if the pages are compressed.
    pub(super) packed: bool,
    pub(super) processors: Vec<Processor>,
}

impl Buffer {
    /// Its name for messages.
    pub(super) fn title(&self) -> String {
        if self.name.is_empty() { "the top buffer".to_owned() } else { format!("the buffer `{}`", self.name) }
    }
}

/// The contents of a file without its events.
pub(super) struct Layout {
    pub(super) descriptions: Descriptions,
    pub(super) facts: Facts,
    /// Only [`Self::add`] adds some.
    pub(super) buffers: Vec<Buffer>,
    /// The parts that could not be read, although others could.
    pub(super) flaws: Vec<Flaw>,
    pub(super) warnings: Vec<String>,
    /// The offsets of the data of all CPUs, and the sum of the lengths.
    offsets: BTreeSet<u64>,
    length: u64,
}

impl Layout {
    pub(super) fn new() -> Self {
        Self {
            descriptions: Descriptions::new(),
            facts: Facts::default(),
            buffers: Vec::new(),
            flaws: Vec::new(),
            warnings: Vec::new(),
            offsets: BTreeSet::new(),
            length: 0,
        }
    }

    /// Adds a buffer with those CPUs that have data of their own. A corrupt file may name the same data for any number of
    /// CPUs, and reading it each time would take days.
    pub(super) fn add(&mut self, mut buffer: Buffer, recorded: &Recorded) {
        buffer.processors.retain(|processor| processor.length > 0);
        let (count, mut first) = (buffer.processors.len(), None);
        buffer.processors.retain(|processor| {
            let is_own = self.takes(processor, recorded.length);
            if !is_own {
                first.get_or_insert(processor.offset);
            }
            is_own
        });
        if let Some(offset) = first {
            let left = count - buffer.processors.len();
            let what = format!(
                "{} names data of {left} CPUs that others have too, or more than {MOST_RUNS} CPUs",
                buffer.title()
            );
            self.flaws.push(Flaw::new(what, offset));
        }
        self.buffers.push(buffer);
    }

    /// Takes the data of a CPU, unless other data begins there, or all data is far more than the file.
    fn takes(&mut self, processor: &Processor, length_of_file: u64) -> bool {
        let end = processor.offset.saturating_add(processor.length).min(length_of_file);
        let length = self.length.saturating_add(end.saturating_sub(processor.offset));
        // The lengths of packed data may be inexact.
        if length > length_of_file.saturating_mul(2)
            || self.offsets.len() >= MOST_RUNS
            || !self.offsets.insert(processor.offset)
        {
            return false;
        }
        self.length = length;
        true
    }

    /// The size of a page: that of the buffer (unless zero), of the kernel's description of pages, or of the header,
    /// in this order.
    pub(super) fn page_size(&self, of_buffer: u32, header: &Header) -> Option<u64> {
        let described = self.descriptions.pages.map(|pages| pages.size);
        let sizes = [Some(u64::from(of_buffer)), described, Some(u64::from(header.page_size))];
        sizes.into_iter().flatten().find(|size| size.is_power_of_two() && PAGE_SIZES.contains(size))
    }

    /// The clock in the options, or else the kernel's default.
    pub(super) fn clock(&self) -> String {
        self.facts.clock.clone().unwrap_or_else(|| "local".to_owned())
    }
}

/// The error for a file with the text of a latency tracer.
pub(super) fn text_only(recorded: &Recorded) -> Error {
    Error::Unsupported {
        name: recorded.name.clone(),
        what: "the text of a latency tracer in a trace.dat".to_owned(),
        next: "record the events of kvm without a tracer (`trace-cmd record -e kvm`), or give the text that \
               `trace-cmd report` makes",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(processors: Vec<Processor>) -> Buffer {
        Buffer { name: String::new(), clock: "local".to_owned(), page_size: 4096, packed: false, processors }
    }

    #[test]
    fn data_that_several_processors_name_is_read_once() {
        let file = tempfile::tempfile().unwrap();
        let recorded = Recorded { name: "trace.dat".to_owned(), file, length: 10_000 };
        let mut layout = Layout::new();
        let of = |cpu, offset, length| Processor { cpu, offset, length };
        // A CPU without data, and one whose data ends behind the end of a file that was cut.
        let own = [of(0, 100, 4000), of(2, 4100, 1 << 40)];
        layout.add(buffer(vec![own[0], of(1, 4100, 0), own[1]]), &recorded);
        assert_eq!((&layout.buffers[0].processors[..], layout.flaws.len()), (&own[..], 0));
        // The same data, and pieces of it whose lengths add up to more than twice that of the file.
        layout.add(buffer(vec![own[0], of(1, 101, 9899), of(2, 102, 9898)]), &recorded);
        assert_eq!(layout.buffers[1].processors, [of(1, 101, 9899)]);
        assert_eq!((layout.flaws.len(), layout.flaws[0].offset), (1, 100));
        assert!(layout.flaws[0].what.contains("data of 2 CPUs"), "{:?}", layout.flaws);
    }

    #[test]
    fn processors_beyond_the_limit_are_left_out() {
        let file = tempfile::tempfile().unwrap();
        let recorded = Recorded { name: "trace.dat".to_owned(), file, length: 1 << 20 };
        let mut layout = Layout::new();
        let many = (0..MOST_RUNS as u64 + 5).map(|offset| Processor { cpu: 0, offset, length: 1 });
        layout.add(buffer(many.collect()), &recorded);
        assert_eq!((layout.buffers[0].processors.len(), layout.flaws.len()), (MOST_RUNS, 1));
    }
}
