//! Reads the pages of all CPUs in steps: each CPU's data is contiguous, but events of the same time must be read at
//! about the same time.

use super::clock::Clock;
use super::compression::{Compression, Part, Unpacker};
use super::file::{Flaw, Recorded};
use super::layout::Buffer;
use super::options::Processor;
use crate::bytes::u64_at;
use crate::pipeline;

/// The most bytes that are read of one CPU at a time.
const STEP: u64 = 256 << 10;
/// The bytes of a step over all CPUs. Events wait until the slowest CPU has caught up, so this keeps them well below
/// the limit of `Assembly`.
const STEPS: u64 = 16 << 20;
/// The number of pages of one CPU that are read even if another CPU has earlier ones, because each step has a cost.
const AHEAD: usize = 8;

/// Pages of one CPU.
#[derive(Default)]
pub(super) struct Chunk {
    /// Complete pages, except for what is missing in the file.
    pub(super) bytes: Vec<u8>,
    pub(super) page_size: usize,
    /// The offset in the file; of the compressed part if `packed`.
    pub(super) offset: u64,
    pub(super) packed: bool,
    pub(super) cpu: u16,
    /// The index of the buffer.
    pub(super) buffer: usize,
    pub(super) clock: Option<Clock>,
    /// The defect after these pages.
    pub(super) flaw: Option<Flaw>,
    /// All events after this chunk are at least as new as this.
    pub(super) reached_ns: u64,
}

/// The data of one CPU in one buffer, and how far it was read.
struct Run {
    cpu: u16,
    buffer: usize,
    clock: Clock,
    page_size: u64,
    packed: bool,
    /// The number of compressed parts that are left; `None` before it was read.
    parts: Option<u32>,
    at: u64,
    end: u64,
    /// Later events are at least as new as this.
    reached_ns: u64,
    /// The number of bytes to read next: few if CPUs alternate.
    step: u64,
}

/// Reads pages.
pub(super) struct Feed<'a> {
    recorded: &'a Recorded,
    unpacker: Unpacker,
    most: u64,
    runs: Vec<Run>,
}

impl<'a> Feed<'a> {
    /// Creates the feed for `buffers` with their clocks.
    pub(super) fn new(recorded: &'a Recorded, compression: Compression, buffers: &[(Buffer, Clock)]) -> Self {
        let mut runs = Vec::new();
        for (number, (buffer, clock)) in buffers.iter().enumerate() {
            for &Processor { cpu, offset, length } in &buffer.processors {
                let mut run = Run {
                    cpu,
                    buffer: number,
                    clock: *clock,
                    page_size: buffer.page_size,
                    packed: buffer.packed,
                    parts: None,
                    at: offset,
                    end: offset.saturating_add(length),
                    reached_ns: 0,
                    step: 0,
                };
                run.look_ahead(recorded, &[]);
                runs.push(run);
            }
        }
        let most = STEP.min(STEPS / runs.len().max(1) as u64);
        Self { recorded, unpacker: Unpacker::new(compression), most, runs }
    }
}

impl pipeline::Feed for Feed<'_> {
    type Chunk = Chunk;

    fn next(&mut self, chunk: &mut Chunk) -> bool {
        let Self { recorded, unpacker, most, runs } = self;
        let Some(at) = (0..runs.len()).min_by_key(|&at| runs[at].reached_ns) else { return false };
        let others = runs.iter().enumerate().filter(|(other, _)| *other != at);
        let others_ns = others.map(|(_, run)| run.reached_ns).min().unwrap_or(u64::MAX);
        let run = &mut runs[at];
        chunk.offset = run.at;
        chunk.flaw = if run.packed {
            run.unpack(recorded, unpacker, &mut chunk.bytes)
        } else {
            run.read(recorded, *most, others_ns, &mut chunk.bytes)
        };
        chunk.page_size = run.page_size as usize;
        (chunk.packed, chunk.cpu, chunk.buffer) = (run.packed, run.cpu, run.buffer);
        chunk.clock = Some(run.clock);
        run.look_ahead(recorded, &chunk.bytes);
        if run.is_at_end() {
            runs.swap_remove(at);
        }
        chunk.reached_ns = runs.iter().map(|run| run.reached_ns).min().unwrap_or(u64::MAX);
        true
    }
}

/// The time of a page; `None` if nothing was written to it.
fn time(page: &[u8]) -> Option<u64> {
    u64_at(page, 0).filter(|&time| time > 0)
}

impl Run {
    fn is_at_end(&self) -> bool {
        self.at >= self.end || self.parts == Some(0)
    }

    /// Updates `reached_ns` after these pages.
    fn look_ahead(&mut self, recorded: &Recorded, pages: &[u8]) {
        // Pages are in order of time. The time of the next page is known unless it is compressed; otherwise use the
        // last one.
        let mut next = [0; 8];
        if !self.packed && self.at < self.end {
            // An error here happens again when the page is read, and is reported then.
            let _ = recorded.read_at(self.at, &mut next);
        }
        let last = || pages.chunks(self.page_size as usize).rev().find_map(time);
        let reached_ns = time(&next).or_else(last).map_or(0, |time| self.clock.ns(time));
        self.reached_ns = self.reached_ns.max(reached_ns);
    }

    /// Reads uncompressed pages, up to the time of the other CPUs.
    fn read(&mut self, recorded: &Recorded, most: u64, others_ns: u64, bytes: &mut Vec<u8>) -> Option<Flaw> {
        let few = AHEAD as u64 * self.page_size;
        let step = (self.step.min(most) / self.page_size).max(1) * self.page_size;
        let wanted = step.min(self.end - self.at) as usize;
        bytes.resize(wanted, 0);
        let (read, flaw) = match recorded.read_at(self.at, bytes) {
            Ok(read) if read == wanted => (read, None),
            Ok(read) => (read, Some(self.early_end(recorded))),
            Err(error) => (0, Some(Flaw::new(format!("reading failed ({error})"), self.at))),
        };
        bytes.truncate(read);
        let mut pages = bytes.chunks(self.page_size as usize);
        let later = |page: &[u8]| time(page).is_some_and(|time| self.clock.ns(time) > others_ns);
        if let Some(later) = pages.by_ref().skip(AHEAD).position(later) {
            bytes.truncate((AHEAD + later) * self.page_size as usize);
            self.at += bytes.len() as u64;
            self.step = few.max(bytes.len() as u64);
            return None;
        }
        self.step = few.max(2 * step);
        self.at = if flaw.is_some() { self.end } else { self.at + read as u64 };
        flaw
    }

    /// Reads one compressed part.
    fn unpack(&mut self, recorded: &Recorded, unpacker: &mut Unpacker, bytes: &mut Vec<u8>) -> Option<Flaw> {
        bytes.clear();
        let mut fields = recorded.fields(self.at);
        let mut part = || -> Result<Part, Flaw> {
            let left = match self.parts {
                Some(left) => left,
                None => fields.u32()?,
            };
            self.parts = Some(left.saturating_sub(1));
            if left == 0 { Ok(Part::Whole) } else { unpacker.unpack(&mut fields, bytes) }
        };
        let flaw = match part() {
            Ok(Part::Whole) => None,
            Ok(Part::Bad(flaw)) => {
                bytes.clear();
                Some(flaw)
            }
            Err(_) => {
                self.parts = Some(0);
                Some(self.early_end(recorded))
            }
        };
        self.at = fields.at;
        flaw
    }

    fn early_end(&self, recorded: &Recorded) -> Flaw {
        let missing = self.end.saturating_sub(recorded.length.max(self.at));
        let what = match missing {
            0 => format!("the file ends within the data of CPU {}", self.cpu),
            _ => format!("the file ends {missing} bytes before the data of CPU {} does", self.cpu),
        };
        Flaw::new(what, recorded.length)
    }
}
