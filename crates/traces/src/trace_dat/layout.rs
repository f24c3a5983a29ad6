//! The layout of a file, in both versions of the format.

use super::descriptions::Descriptions;
use super::file::{Flaw, Recorded};
use super::header::Header;
use super::options::{Facts, Processor};
use crate::Error;

/// The valid page sizes: 4 KiB or, since Linux 6.8, up to 256 times as much (`buffer_subbuf_size_kb` of tracefs).
const PAGE_SIZES: std::ops::RangeInclusive<u64> = 4096..=1 << 20;

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
    pub(super) buffers: Vec<Buffer>,
    /// The parts that could not be read, although others could.
    pub(super) flaws: Vec<Flaw>,
    pub(super) warnings: Vec<String>,
}

impl Layout {
    pub(super) fn new() -> Self {
        Self {
            descriptions: Descriptions::new(),
            facts: Facts::default(),
            buffers: Vec::new(),
            flaws: Vec::new(),
            warnings: Vec::new(),
        }
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
