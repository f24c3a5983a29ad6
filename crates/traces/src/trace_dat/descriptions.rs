//! The descriptions of pages and events at the start of a file: trace-cmd.dat.v6(5), "HEADER INFO FORMAT" to "EVENT
//! FORMATS". In version 7 each is a section with the same contents.

use std::io::Read;

use tracepoints::EventFormat;

use super::FEW;
use super::file::{Fields, Flaw};
use super::page::HEADER;
use crate::decoder::Decoder;
use crate::misunderstood::Misunderstood;
use crate::tracing_data::{each_description, named_description};

/// The contents of `header_page`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pages {
    /// The size of a page in bytes, including the 16 bytes before the records.
    pub(super) size: u64,
    /// True if the kernel's `long` has 64 bits.
    pub(super) wide: bool,
}

/// The descriptions in the file.
pub(super) struct Descriptions {
    pub(super) pages: Option<Pages>,
    pub(super) decoder: Decoder,
    /// True if there is a `kvm_exit`, with any fields.
    pub(super) has_kvm_exit: bool,
    /// The first [`FEW`] subsystems whose events are described, without ftrace itself.
    pub(super) systems: Vec<String>,
    pub(super) misunderstood: Misunderstood,
}

impl Descriptions {
    pub(super) fn new() -> Self {
        Self {
            pages: None,
            decoder: Decoder::new(),
            has_kvm_exit: false,
            systems: Vec::new(),
            misunderstood: Misunderstood::default(),
        }
    }

    /// Reads `header_page` and `header_event`.
    pub(super) fn header_info(&mut self, fields: &mut Fields<impl Read>) -> Result<(), Flaw> {
        self.pages = pages(&named_description(fields, "header_page")?);
        named_description(fields, "header_event")?;
        Ok(())
    }

    /// Reads the events of ftrace itself.
    pub(super) fn ftrace_events(&mut self, fields: &mut Fields<impl Read>) -> Result<(), Flaw> {
        each_description(fields, |text| {
            self.event("ftrace", text);
            Ok(())
        })
    }

    /// Reads the events of all subsystems.
    pub(super) fn event_formats(&mut self, fields: &mut Fields<impl Read>) -> Result<(), Flaw> {
        for _ in 0..fields.u32()? {
            let system = fields.text()?;
            each_description(fields, |text| {
                self.event(&system, text);
                Ok(())
            })?;
            if self.systems.len() < FEW {
                self.systems.push(system);
            }
        }
        Ok(())
    }

    fn event(&mut self, system: &str, text: &str) {
        if let Some(format) = self.misunderstood.parse(system, text) {
            self.has_kvm_exit |= system == "kvm" && format.name == "kvm_exit";
            self.decoder.add(system, &format);
        }
    }
}

/// Parses `header_page`, whose lines are like those of an event's fields.
fn pages(text: &str) -> Option<Pages> {
    let format = EventFormat::parse(&format!("name: header_page\nID: 0\n{text}")).ok()?;
    let (commit, data) = (format.field("commit")?, format.field("data")?);
    let wide = commit.size == 8 && commit.offset == 8 && data.offset == HEADER;
    Some(Pages { size: (data.offset + data.size) as u64, wide })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER_PAGE: &str = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
        \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
        \tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
        \tfield: char data;\toffset:16;\tsize:4080;\tsigned:0;\n";

    #[test]
    fn pages_of_wide_and_narrow_kernels() {
        assert_eq!(pages(HEADER_PAGE), Some(Pages { size: 4096, wide: true }));
        let narrow = HEADER_PAGE.replace("commit;\toffset:8;\tsize:8", "commit;\toffset:8;\tsize:4");
        assert_eq!(pages(&narrow), Some(Pages { size: 4096, wide: false }));
        assert_eq!(pages("nothing"), None);
    }

    #[test]
    fn descriptions_that_are_not_understood_are_passed_over() {
        let mut bytes = [1u32.to_le_bytes(), *b"kvm\0", 1u32.to_le_bytes()].concat();
        bytes.extend(3u64.to_le_bytes());
        bytes.extend(b"bad");
        let mut descriptions = Descriptions::new();
        descriptions.event_formats(&mut Fields::new(&bytes[..], 0)).unwrap();
        let told = descriptions.misunderstood.told().unwrap();
        assert!(descriptions.systems == ["kvm"] && told.contains("an event of kvm ("), "{told}");
        bytes.truncate(13);
        let cut = descriptions.event_formats(&mut Fields::new(&bytes[..], 0));
        assert!(matches!(cut, Err(Flaw { offset: 12, .. })), "{cut:?}");
        // Any number of systems, each with a name and no events.
        bytes = [9u32.to_le_bytes(), *b"sch\0"].concat();
        bytes.extend([b"\0\0\0\0sch\0".repeat(8), vec![0; 4]].concat());
        descriptions.event_formats(&mut Fields::new(&bytes[..], 0)).unwrap();
        assert_eq!(descriptions.systems.len(), FEW);
    }
}
