//! Sections of a file of version 7: trace-cmd.dat.v7(5), "FORMAT OF THE SECTION HEADER".

use super::compression::{Compression, Part, Unpacker};
use super::file::{Flaw, Recorded};

/// The size of a section's header.
pub(super) const HEADER: u64 = 16;
/// Flag: the contents are compressed.
const PACKED: u16 = 1;
/// The highest section ID that is accepted; that of trace-cmd 3.4 is 25, and later versions may add some.
const HIGHEST: u16 = 63;

/// Section IDs; the options with their offsets have the same IDs.
pub(super) mod id {
    pub(in super::super) const OPTIONS: u16 = 0;
    pub(in super::super) const BUFFER: u16 = 3;
    pub(in super::super) const HEADER_INFO: u16 = 16;
    pub(in super::super) const FTRACE_EVENTS: u16 = 17;
    pub(in super::super) const EVENT_FORMATS: u16 = 18;
    pub(in super::super) const BUFFER_TEXT: u16 = 22;
}

/// The place of a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) id: u16,
    pub(super) packed: bool,
    /// The offset of its contents.
    pub(super) start: u64,
    /// The length of its contents; zero if the recorder was killed before it wrote it.
    pub(super) length: u64,
}

impl Section {
    /// Reads the header of the section at `offset`.
    pub(super) fn at(recorded: &Recorded, offset: u64) -> Result<Self, Flaw> {
        let mut fields = recorded.fields(offset);
        let (id, flags, _description) = (fields.u16()?, fields.u16()?, fields.u32()?);
        let length = fields.u64()?;
        if id > HIGHEST || flags & !PACKED != 0 {
            return Err(Flaw::new("no section begins here", offset));
        }
        Ok(Self { id, packed: flags & PACKED != 0, start: offset + HEADER, length })
    }

    /// The decompressed contents.
    pub(super) fn content(&self, recorded: &Recorded, compression: Compression) -> Result<Vec<u8>, Flaw> {
        let mut fields = recorded.fields(self.start);
        if !self.packed {
            return fields.block(self.length);
        }
        let mut content = Vec::new();
        match Unpacker::new(compression).unpack(&mut fields, &mut content)? {
            Part::Whole => Ok(content),
            Part::Bad(flaw) => Err(flaw),
        }
    }

    /// The end; that of the file if the length is missing.
    pub(super) fn end(&self, recorded: &Recorded) -> u64 {
        match self.length {
            0 => recorded.length,
            length => self.start.saturating_add(length).min(recorded.length),
        }
    }
}

/// All sections from `offset` on, as long as they follow each other without a gap.
pub(super) fn walk(recorded: &Recorded, mut offset: u64) -> Vec<Section> {
    let mut sections = Vec::new();
    while let Ok(section) = Section::at(recorded, offset) {
        offset = section.end(recorded);
        sections.push(section);
    }
    sections
}
