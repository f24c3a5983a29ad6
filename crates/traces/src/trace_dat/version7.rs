//! Files of version 7: sections in any order, whose places are in the options: trace-cmd.dat.v7(5).

use std::collections::BTreeSet;

use super::compression::Compression;
use super::descriptions::Descriptions;
use super::file::{Fields, Flaw, Recorded};
use super::header::Header;
use super::layout::{Buffer, Layout, text_only};
use super::options::{self, BufferOption, MOST_BUFFERS};
use super::recovery;
use super::section::{self, Section, id};
use crate::Error;

pub(super) fn read(recorded: &Recorded, header: &Header) -> Result<Layout, Error> {
    let mut layout = Layout::new();
    let mut seen = BTreeSet::new();
    let chain = chain(recorded, header, &mut layout, &mut seen);
    // The options with the places of the data are at the end of a file, so they are the first to be missing.
    let lost = chain.is_err() || layout.facts.buffers.is_empty();
    let walked = if lost { section::walk(recorded, header.end) } else { Vec::new() };
    for section in walked.iter().filter(|section| section.id == id::OPTIONS && seen.insert(section.start)) {
        if layout.facts.is_full() {
            break;
        }
        // Ignore any other error: options behind a broken section may be whole.
        let next = section_options(recorded, header, &mut layout, section);
        if layout.facts.is_full() {
            layout.flaws.extend(next.err());
        }
    }
    describe(recorded, header, &mut layout, &walked).map_err(|flaw| flaw.error(recorded))?;
    for option in layout.facts.buffers.clone().into_iter().filter(|buffer| !buffer.text) {
        match buffer(recorded, header, &layout, option) {
            Ok(buffer) => layout.add(buffer, recorded),
            Err(flaw) => layout.flaws.push(flaw),
        }
    }
    if lost {
        recover(recorded, header, &mut layout, &walked);
        layout.flaws.extend(chain.err().map(|flaw| match flaw {
            flaw if flaw.offset < recorded.length => flaw,
            _ => Flaw::new("the end of the file is missing", recorded.length),
        }));
    }
    if layout.buffers.is_empty() {
        if layout.facts.buffers.iter().any(|buffer| buffer.text) {
            return Err(text_only(recorded));
        }
        if let Some(flaw) = layout.facts.flaws.into_iter().next() {
            return Err(flaw.error(recorded));
        }
        return Err(Error::Header {
            name: recorded.name.clone(),
            what: "no data of any processor".to_owned(),
            offset: recorded.length,
            next: "copy the file once more; if trace-cmd was killed, `trace-cmd restore` makes a whole file of what is \
                   beside this one",
        });
    }
    Ok(layout)
}

/// Follows the chain of option sections.
fn chain(
    recorded: &Recorded,
    header: &Header,
    layout: &mut Layout,
    seen: &mut BTreeSet<u64>,
) -> Result<(), Flaw> {
    let mut offset = header.options;
    if offset == 0 {
        return Err(Flaw::new("the header does not say where the options are", header.end - 8));
    }
    while offset != 0 {
        let section = Section::at(recorded, offset)?;
        if section.id != id::OPTIONS || !seen.insert(section.start) {
            return Err(Flaw::new("no options are where they should be", offset));
        }
        offset = section_options(recorded, header, layout, &section)?;
    }
    Ok(())
}

/// Reads the options of a section; returns the offset of the next one, or zero.
fn section_options(
    recorded: &Recorded,
    header: &Header,
    layout: &mut Layout,
    section: &Section,
) -> Result<u64, Flaw> {
    let content = section.content(recorded, header.compression)?;
    layout.facts.count(content.len(), section.start)?;
    let mut fields = Fields::new(&content[..], section.start);
    loop {
        let (option, length) = (fields.u16()?, fields.u32()?);
        let offset = fields.at;
        let data = fields.block(u64::from(length))?;
        if option == options::DONE {
            return Ok(crate::bytes::u64_at(&data, 0).unwrap_or(0));
        }
        layout.facts.take(option, &data, offset, header.has_sections());
    }
}

/// Reads the sections that describe pages and events.
fn describe(
    recorded: &Recorded,
    header: &Header,
    layout: &mut Layout,
    walked: &[Section],
) -> Result<(), Flaw> {
    for id in [id::HEADER_INFO, id::FTRACE_EVENTS, id::EVENT_FORMATS] {
        let section = match layout.facts.sections.get(&id) {
            Some(&offset) => Some(Section::at(recorded, offset)?),
            None => walked.iter().find(|section| section.id == id).copied(),
        };
        match section.filter(|section| section.id == id) {
            Some(section) => description(recorded, header.compression, &mut layout.descriptions, &section)?,
            // It describes events that are not read.
            None if id == id::FTRACE_EVENTS => {}
            None => return Err(Flaw::new("the descriptions of the events are missing", recorded.length)),
        }
    }
    Ok(())
}

fn description(
    recorded: &Recorded,
    compression: Compression,
    descriptions: &mut Descriptions,
    section: &Section,
) -> Result<(), Flaw> {
    let content = section.content(recorded, compression)?;
    let mut fields = Fields::new(&content[..], section.start);
    match section.id {
        id::HEADER_INFO => descriptions.header_info(&mut fields),
        id::FTRACE_EVENTS => descriptions.ftrace_events(&mut fields),
        _ => descriptions.event_formats(&mut fields),
    }
}

fn buffer(
    recorded: &Recorded,
    header: &Header,
    layout: &Layout,
    option: BufferOption,
) -> Result<Buffer, Flaw> {
    let section = Section::at(recorded, option.offset)?;
    let page_size = layout.page_size(option.page_size, header);
    let page_size =
        page_size.ok_or_else(|| Flaw::new(format!("pages of {} bytes", option.page_size), option.offset))?;
    Ok(Buffer {
        clock: option.clock.unwrap_or_else(|| layout.clock()),
        name: option.name,
        page_size,
        packed: section.packed,
        processors: option.processors,
    })
}

/// Finds data that no option refers to.
fn recover(recorded: &Recorded, header: &Header, layout: &mut Layout, walked: &[Section]) {
    let told: BTreeSet<u64> =
        layout.facts.buffers.iter().map(|buffer| buffer.offset.saturating_add(section::HEADER)).collect();
    let Some(page_size) = layout.page_size(0, header) else { return };
    let is_lost = |section: &&Section| section.id == id::BUFFER && !told.contains(&section.start);
    let mut lost = walked.iter().filter(is_lost);
    for (number, section) in lost.by_ref().take(MOST_BUFFERS).enumerate() {
        let processors = recovery::processors(recorded, section, page_size);
        if processors.is_empty() {
            continue;
        }
        layout.warnings.push(format!(
            "the part that tells whose data is where is missing; data of {} processors was found and numbered in \
             its order",
            processors.len()
        ));
        let buffer = Buffer {
            name: if number == 0 { String::new() } else { format!("number {}", number + 1) },
            clock: layout.clock(),
            page_size,
            packed: section.packed,
            processors,
        };
        layout.add(buffer, recorded);
    }
    layout.facts.further_buffers += lost.count();
}
