//! Files of version 6, whose parts have a fixed order: trace-cmd.dat.v6(5).

use std::io::Read;

use super::file::{Fields, Flaw, Recorded};
use super::header::Header;
use super::layout::{Buffer, Layout, text_only};
use super::options::{self, BufferOption, Processor};
use crate::Error;

/// The ten-byte marks before options and data.
const OPTIONS: &[u8] = b"options";
const LATENCY: &[u8] = b"latency";
const FLYRECORD: &[u8] = b"flyrecord";

/// The longest option; options are numbers and short texts.
const LONGEST_OPTION: u32 = 16 << 20;

/// The bytes of an option before its contents.
const OPTION_HEADER: usize = 6;

/// The data of a buffer.
enum Data {
    Pages(Vec<Processor>),
    Text,
}

pub(super) fn read(recorded: &Recorded, header: &Header) -> Result<Layout, Error> {
    let mut layout = Layout::new();
    let top = beginning(recorded, header, &mut layout).map_err(|flaw| flaw.error(recorded))?;
    let page_size = layout.page_size(header.page_size, header);
    let Some(page_size) = page_size else {
        let what = format!("pages of {} bytes", header.page_size);
        return Err(Flaw::new(what, header.end - 4).error(recorded));
    };
    let clock = layout.clock();
    let add = |layout: &mut Layout, name: String, data: Data| match data {
        Data::Text if name.is_empty() => Err(text_only(recorded)),
        Data::Text => Ok(()),
        Data::Pages(processors) => {
            let buffer = Buffer { name, clock: clock.clone(), page_size, packed: false, processors };
            layout.add(buffer, recorded);
            Ok(())
        }
    };
    add(&mut layout, String::new(), top)?;
    let count = layout.facts.cpu_count.unwrap_or(0);
    for BufferOption { name, offset, .. } in layout.facts.buffers.clone() {
        // An instance that was described but never written.
        if offset == 0 {
            continue;
        }
        match data(&mut recorded.fields(offset), count) {
            Ok(data) => add(&mut layout, name, data)?,
            Err(flaw) => layout.flaws.push(flaw),
        }
    }
    Ok(layout)
}

/// Reads everything up to the table of the data.
fn beginning(recorded: &Recorded, header: &Header, layout: &mut Layout) -> Result<Data, Flaw> {
    let mut fields = recorded.fields(header.end);
    let descriptions = &mut layout.descriptions;
    descriptions.header_info(&mut fields)?;
    descriptions.ftrace_events(&mut fields)?;
    descriptions.event_formats(&mut fields)?;
    // Kernel symbols and printk formats, then thread names.
    for _ in 0..2 {
        let length = fields.u32()?;
        fields.skip(u64::from(length))?;
    }
    let length = fields.u64()?;
    fields.skip(length)?;
    layout.facts.cpu_count = Some(fields.u32()?);
    let mut mark: [u8; 10] = fields.array()?;
    if mark.starts_with(OPTIONS) {
        loop {
            let option = fields.u16()?;
            if option == options::DONE {
                break;
            }
            let (at, length) = (fields.at, fields.u32()?);
            if length > LONGEST_OPTION {
                return Err(Flaw::new(format!("an option of {length} bytes"), at));
            }
            layout.facts.count(length as usize + OPTION_HEADER, at)?;
            let offset = fields.at;
            let content = fields.block(u64::from(length))?;
            layout.facts.take(option, &content, offset, header.has_sections());
        }
        mark = fields.array()?;
    }
    marked(mark, &mut fields, layout.facts.cpu_count.unwrap_or(0))
}

/// Reads a mark and the data after it.
fn data(fields: &mut Fields<impl Read>, count: u32) -> Result<Data, Flaw> {
    let mark = fields.array()?;
    marked(mark, fields, count)
}

fn marked(mark: [u8; 10], fields: &mut Fields<impl Read>, count: u32) -> Result<Data, Flaw> {
    if mark.starts_with(LATENCY) {
        return Ok(Data::Text);
    }
    if !mark.starts_with(FLYRECORD) {
        return Err(Flaw::new(
            "neither `flyrecord` nor `latency` is where the data should begin",
            fields.at - 10,
        ));
    }
    options::check_processors(count, fields.at)?;
    let mut processors = Vec::new();
    for cpu in 0..count {
        let (offset, length) = (fields.u64()?, fields.u64()?);
        if let (Ok(cpu), true) = (u16::try_from(cpu), length > 0) {
            processors.push(Processor { cpu, offset, length });
        }
    }
    Ok(Data::Pages(processors))
}
