//! The options of a file: trace-cmd.dat.v7(5), "OPTIONS SECTION"; `handle_options` in `lib/trace-cmd/trace-input.c` of
//! trace-cmd.

use std::collections::BTreeMap;
use std::io::Read;

use super::file::{Fields, Flaw};
use super::section::id;
use crate::bytes::{text, u32_at, u64_at};

/// The option that ends the list; in version 7 it has the place of more options.
pub(super) const DONE: u16 = 0;
const DATE: u16 = 1;
const CPU_STATISTICS: u16 = 2;
const CLOCK: u16 = 4;
const UNAME: u16 = 5;
const OFFSET: u16 = 7;
const CPU_COUNT: u16 = 8;
const VERSION: u16 = 9;
const TIME_SHIFT: u16 = 12;
const TSC_TO_NANOSECONDS: u16 = 14;

/// The most bytes of all options together; those of 8192 CPUs take about two megabytes for each buffer.
const MOST_OPTIONS: usize = 16 << 20;
/// The most buffers; each is an instance that somebody made in tracefs.
pub(super) const MOST_BUFFERS: usize = 4096;
/// The most CPUs (`NR_CPUS` is at most 8192 on x86).
pub(super) const MOST_PROCESSORS: u32 = 8192;

/// Converts TSC counts to nanoseconds: multiply by `multiplier`, and shift right by `shift`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TscRate {
    pub(super) multiplier: u32,
    pub(super) shift: u32,
}

/// The data of one CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Processor {
    pub(super) cpu: u16,
    /// The offset in the file.
    pub(super) offset: u64,
    /// The length as stored, in bytes.
    pub(super) length: u64,
}

/// A ring buffer: the top-level one, or that of an instance.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct BufferOption {
    /// The offset of the buffer's section (version 7) or of its table of CPUs (version 6).
    pub(super) offset: u64,
    /// The name of the instance; empty for the top-level buffer.
    pub(super) name: String,
    /// This and the following fields are only in version 7.
    pub(super) clock: Option<String>,
    pub(super) page_size: u32,
    pub(super) processors: Vec<Processor>,
    /// True if it has text instead of pages.
    pub(super) text: bool,
}

/// The contents of all options.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) clock: Option<String>,
    pub(super) uname: Option<String>,
    pub(super) version: Option<String>,
    pub(super) cpu_count: Option<u32>,
    /// The nanoseconds to add to every time.
    pub(super) offset_ns: i64,
    pub(super) tsc_rate: Option<TscRate>,
    /// True if it was recorded in a guest, with the offset between its clock and the host's.
    pub(super) of_guest: bool,
    /// The contents of `per_cpu/cpu*/stats`, with a title before those of an instance.
    pub(super) statistics: String,
    pub(super) buffers: Vec<BufferOption>,
    /// The number of buffers beyond [`MOST_BUFFERS`].
    pub(super) further_buffers: usize,
    /// The buffers that could not be read, or not with all CPUs.
    pub(super) flaws: Vec<Flaw>,
    /// The offsets of sections by ID (version 7).
    pub(super) sections: BTreeMap<u16, u64>,
    /// The bytes of all options so far.
    pub(super) bytes: usize,
}

impl Facts {
    /// Counts the bytes of options at this offset, which a packed file may have any number of.
    pub(super) fn count(&mut self, bytes: usize, offset: u64) -> Result<(), Flaw> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.is_full() {
            return Err(Flaw::new(format!("more than {MOST_OPTIONS} bytes of options"), offset));
        }
        Ok(())
    }

    /// Tests whether there were more bytes than the limit.
    pub(super) fn is_full(&self) -> bool {
        self.bytes > MOST_OPTIONS
    }

    /// Reads one option, whose data begins at `offset`; `sections` is true in version 7.
    pub(super) fn take(&mut self, option: u16, data: &[u8], offset: u64, sections: bool) {
        match option {
            // In microseconds.
            DATE => self.add_offset(number(data).saturating_mul(1000)),
            OFFSET => self.add_offset(number(data)),
            CPU_STATISTICS => {
                self.statistics.push_str(&text(data));
                self.statistics.push('\n');
            }
            CLOCK => self.clock = chosen(&text(data)).or(self.clock.take()),
            UNAME => self.uname = Some(text(data)),
            VERSION => self.version = Some(text(data)).filter(|version| !version.is_empty()),
            CPU_COUNT => self.cpu_count = u32_at(data, 0).or(self.cpu_count),
            TIME_SHIFT => self.of_guest = true,
            TSC_TO_NANOSECONDS => {
                let rate = u32_at(data, 0).zip(u32_at(data, 4));
                let rate = rate.map(|(multiplier, shift)| TscRate { multiplier, shift });
                self.tsc_rate = rate.filter(|rate| rate.multiplier > 0 && rate.shift < 64).or(self.tsc_rate);
            }
            id::BUFFER | id::BUFFER_TEXT if self.buffers.len() + self.flaws.len() >= MOST_BUFFERS => {
                self.further_buffers += 1;
            }
            id::BUFFER | id::BUFFER_TEXT => {
                let text = option == id::BUFFER_TEXT;
                let mut fields = Fields::within("the option", data, offset);
                if let Err(flaw) = self.add_buffer(text, &mut fields, sections) {
                    let name = if text { "BUFFER_TEXT" } else { "BUFFER" };
                    self.flaws.push(Flaw::new(format!("option {name}: {}", flaw.what), flaw.offset));
                }
            }
            id::HEADER_INFO..=id::EVENT_FORMATS if sections => {
                if let Some(offset) = u64_at(data, 0) {
                    self.sections.insert(option, offset);
                }
            }
            _ => {}
        }
    }

    fn add_offset(&mut self, ns: i64) {
        self.offset_ns = self.offset_ns.saturating_add(ns);
    }

    /// Adds a buffer. If only the numbers of some CPUs are too large, it is added with the others.
    fn add_buffer(&mut self, text: bool, fields: &mut Fields<impl Read>, sections: bool) -> Result<(), Flaw> {
        let mut buffer =
            BufferOption { offset: fields.u64()?, name: fields.text()?, text, ..Default::default() };
        let mut too_large = None;
        if sections {
            buffer.clock = Some(fields.text()?).filter(|clock| !clock.is_empty());
            if !text {
                buffer.page_size = fields.u32()?;
                let count = fields.u32()?;
                check_processors(count, fields.at)?;
                for _ in 0..count {
                    let at = fields.at;
                    let (cpu, offset, length) = (fields.u32()?, fields.u64()?, fields.u64()?);
                    match u16::try_from(cpu) {
                        Ok(cpu) => buffer.processors.push(Processor { cpu, offset, length }),
                        Err(_) => {
                            too_large.get_or_insert((cpu, at));
                        }
                    }
                }
            }
        }
        self.buffers.push(buffer);
        match too_large {
            Some((cpu, at)) => Err(Flaw::new(format!("data of CPU {cpu} (at most {})", u16::MAX), at)),
            None => Ok(()),
        }
    }
}

/// Refuses a buffer with more CPUs than a machine can have, whose table is at `offset`.
pub(super) fn check_processors(count: u32, offset: u64) -> Result<(), Flaw> {
    if count > MOST_PROCESSORS {
        return Err(Flaw::new(format!("a buffer of {count} CPUs (at most {MOST_PROCESSORS})"), offset));
    }
    Ok(())
}

/// A decimal or hexadecimal number, as `strtoll` parses it; zero if it is not a number.
fn number(data: &[u8]) -> i64 {
    let text = text(data);
    let text = text.trim();
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
    let value = match digits.strip_prefix("0x") {
        Some(hex) => i64::from_str_radix(hex, 16),
        None => digits.parse(),
    };
    // Another sign would be accepted.
    let value = value.ok().filter(|value| *value >= 0).unwrap_or(0);
    if negative { -value } else { value }
}

/// The clock in brackets in the contents of `trace_clock`.
pub(super) fn chosen(clocks: &str) -> Option<String> {
    let clock = clocks.split_once('[')?.1.split_once(']')?.0;
    Some(clock.to_owned())
}

#[cfg(test)]
#[path = "options_tests.rs"]
mod tests;
