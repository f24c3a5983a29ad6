//! The start of a perf.data file, and the sections at its end.
//!
//! `tools/perf/Documentation/perf.data-file-format.txt`; `struct perf_file_header` in
//! `tools/perf/util/header.h`.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::attribute::{self, Attribute};
use super::features::Features;
use super::schema::{MOST_ATTRIBUTES, MOST_IDENTITIES, Schema};
use crate::Error;
use crate::bytes::{MOST_SECTION, u64_at};

/// `sizeof(struct perf_file_header)`; files before Linux 2.6.33 had no feature bits.
const LENGTH: usize = 104;
const FEATURES_AT: usize = 72;
const FEATURE_BITS: u32 = 256;
/// The size of `struct perf_file_section`, which follows each attribute and has the place of its IDs.
const SECTION: usize = 16;

/// A part of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) offset: u64,
    pub(super) length: u64,
}

/// The bytes of sections, each with its bit.
type Sections = Vec<(u32, Vec<u8>)>;

/// The contents of the header.
#[derive(Debug)]
pub(super) struct Header {
    /// The records; the length is zero if perf was killed before it wrote it.
    pub(super) data: Section,
    pub(super) schema: Schema,
    features: [u64; 4],
}

impl Header {
    /// Reads the header and the attributes.
    pub(super) fn read(file: &File, length: u64, name: &str) -> Result<Self, Error> {
        let bad = |what: &str, offset: u64| bad(name, what, offset);
        let head = read_at(file, Section { offset: 0, length: LENGTH as u64 }, length)
            .ok_or_else(|| bad("the header is cut off", length))?;
        let number = |at| u64_at(&head, at).unwrap_or(0);
        let section = |at| Section { offset: number(at), length: number(at + 8) };
        let (attributes, data) = (section(24), section(40));
        let mut header =
            Self { data, schema: Schema::new(), features: [0, 8, 16, 24].map(|at| number(FEATURES_AT + at)) };
        // The size of an attribute in this file; that in the header includes the section.
        let each = number(16);
        if each < (attribute::SMALLEST + SECTION) as u64 || each > 4096 {
            return Err(bad(&format!("attributes of {each} bytes"), 16));
        }
        let count = attributes.length / each;
        let stored = (count <= MOST_ATTRIBUTES as u64).then(|| read_at(file, attributes, length)).flatten();
        let stored = stored.ok_or_else(|| bad("the attributes are not there", attributes.offset))?;
        let mut left = 8 * MOST_IDENTITIES as u64;
        for bytes in stored.chunks_exact(each as usize) {
            let (own, place) = bytes.split_at(bytes.len() - SECTION);
            let place =
                Section { offset: u64_at(place, 0).unwrap_or(0), length: u64_at(place, 8).unwrap_or(0) };
            left = left
                .checked_sub(place.length)
                .ok_or_else(|| bad("its events have more than 1,048,576 identities", place.offset))?;
            let identities = read_at(file, place, length)
                .ok_or_else(|| bad("the identities of an event are not there", place.offset))?;
            if let Some(attribute) = Attribute::parse(own) {
                let identities = identities.chunks_exact(8).filter_map(|bytes| u64_at(bytes, 0));
                header.schema.add(attribute, identities);
            }
        }
        if data.offset > length {
            return Err(bad("the records are not there", data.offset));
        }
        Ok(header)
    }

    /// Tests whether the file has, or should have, this section.
    pub(super) fn has(&self, feature: u32) -> bool {
        self.features[(feature / 64) as usize] >> (feature % 64) & 1 != 0
    }

    /// The sections that are needed, and whether all sections are there: a killed recorder writes none.
    pub(super) fn features(&self, file: &File, length: u64, name: &str) -> Result<(Sections, bool), Error> {
        let table = self.data.offset.saturating_add(self.data.length);
        let present = (0..FEATURE_BITS).filter(|&feature| self.has(feature));
        let (mut found, mut whole) = (Vec::new(), true);
        for (number, feature) in present.enumerate() {
            let offset = table.saturating_add((number * SECTION) as u64);
            let entry = read_at(file, Section { offset, length: SECTION as u64 }, length);
            let Some(entry) = entry.filter(|_| self.data.length > 0) else {
                return Ok((found, false));
            };
            let number = |at| u64_at(&entry, at).unwrap_or(0);
            let place = Section { offset: number(0), length: number(8) };
            if place.offset.checked_add(place.length).is_none_or(|end| end > length) {
                whole = false;
            } else if Features::wants(feature) && place.offset >= table {
                if place.length > MOST_SECTION as u64 {
                    return Err(bad(name, &format!("a section of {} bytes", place.length), place.offset));
                }
                found.extend(read_at(file, place, length).map(|section| (feature, section)));
            }
        }
        Ok((found, whole))
    }
}

fn bad(name: &str, what: &str, offset: u64) -> Error {
    Error::Header {
        name: name.to_owned(),
        what: what.to_owned(),
        offset,
        next: "the file is too damaged to be read; record again",
    }
}

/// The bytes of a section; `None` if it is not completely in the file.
fn read_at(file: &File, section: Section, length: u64) -> Option<Vec<u8>> {
    let end = section.offset.checked_add(section.length)?;
    if end > length {
        return None;
    }
    let mut bytes = vec![0; usize::try_from(section.length).ok()?];
    let read: io::Result<()> = file.read_exact_at(&mut bytes, section.offset);
    read.ok().map(|()| bytes)
}
