//! Whole records of a recording, and what they turn into.

use std::sync::Arc;

use super::attribute::HEADER;
use super::kind;
use super::schema::{Schema, ShortWay};
use crate::bytes::{u16_at, u32_at, u64_at};
use crate::decoder::{Counts, Decoded};
use crate::event::{Event, Kind};
use crate::quick::{Load, Window};

/// Records in a row, as many as fit a core's cache.
#[derive(Default)]
pub(super) struct Chunk {
    /// Whole records are in the first `length` bytes.
    pub(super) bytes: Vec<u8>,
    pub(super) length: usize,
    pub(super) schema: Option<Arc<Schema>>,
}

/// What is no event but has its place among them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Note {
    /// All buffers were read once.
    Round,
    /// The buffer of this processor was full and so many records found no room; its last event before was at
    /// `after_ns`, unless that is in an earlier chunk.
    Lost { cpu: u16, count: u64, after_ns: Option<u64> },
    /// The kernel's own count of losses of an event: exits or not.
    LostSamples { exits: bool, count: u64 },
    /// The name of a process from this time on; zero for one that was there before the recording.
    Name { process: u32, name: String, time_ns: u64 },
}

/// Events in a row, all of one thread.
#[derive(Default)]
pub(super) struct Row {
    pub(super) member: Member,
    pub(super) events: Vec<Event>,
    /// Whether they are in order of time.
    pub(super) ordered: bool,
    pub(super) newest_ns: u64,
}

/// A thread and its process, as samples hold them: one number, the process in the lower half.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Member(u64);

impl Member {
    /// A thread whose process samples do not tell.
    fn of_unknown_process(thread: u32) -> Self {
        Self(u64::from(thread) << 32 | u64::from(u32::MAX))
    }

    pub(super) fn thread(self) -> u32 {
        (self.0 >> 32) as u32
    }

    pub(super) fn process(self) -> Option<u32> {
        Some(self.0 as u32).filter(|&process| process != u32::MAX)
    }
}

/// Kind, flags and size.
const HEAD: Load = Load::whole(0);
/// Threads whose rows are found without a search, by the lowest bits of their numbers.
const RECENT: usize = 64;
/// No row.
const NONE: u32 = u32::MAX;
/// Processors whose last events are known; losses of further ones may be taken for those of others.
pub(super) const CPUS: usize = 1024;

/// A chunk, decoded.
pub(super) struct Batch {
    rows: Vec<Row>,
    used: usize,
    recent: [u32; RECENT],
    /// Each with the number of rows before it.
    pub(super) notes: Vec<(usize, Note)>,
    /// Time of the last event of each processor; zero for none.
    pub(super) last_of_cpu: [u64; CPUS],
    pub(super) counts: Counts,
    pub(super) undecoded: u64,
}

impl Default for Batch {
    fn default() -> Self {
        Self {
            rows: Vec::new(),
            used: 0,
            recent: [NONE; RECENT],
            notes: Vec::new(),
            last_of_cpu: [0; CPUS],
            counts: Counts::new(),
            undecoded: 0,
        }
    }
}

impl Batch {
    fn clear(&mut self) {
        self.rows().iter_mut().for_each(|row| row.events.clear());
        self.used = 0;
        self.recent = [NONE; RECENT];
        self.notes.clear();
        self.last_of_cpu = [0; CPUS];
        self.counts.clear();
        self.undecoded = 0;
    }

    pub(super) fn rows(&mut self) -> &mut [Row] {
        &mut self.rows[..self.used]
    }

    /// Takes an event of a thread.
    #[inline(always)]
    fn push(&mut self, member: Member, event: &Event) {
        self.last_of_cpu[usize::from(event.cpu) % CPUS] = event.time_ns;
        let recent = self.recent[event.thread as usize % RECENT];
        let row = match self.rows.get_mut(recent as usize) {
            Some(row) if row.member == member => row,
            _ => self.row(member),
        };
        row.ordered &= event.time_ns >= row.newest_ns;
        row.newest_ns = row.newest_ns.max(event.time_ns);
        row.events.push(*event);
    }

    /// Begins a row. A thread may have several: they stay in order.
    #[cold]
    fn row(&mut self, member: Member) -> &mut Row {
        if self.used == self.rows.len() {
            self.rows.push(Row::default());
        }
        self.recent[member.thread() as usize % RECENT] = self.used as u32;
        self.used += 1;
        let row = &mut self.rows[self.used - 1];
        (row.member, row.ordered, row.newest_ns) = (member, true, 0);
        row
    }

    /// Adds a note; events after it go to rows of their own where that matters.
    fn note(&mut self, note: Note) {
        if matches!(note, Note::Round | Note::Lost { .. }) {
            self.recent = [NONE; RECENT];
        }
        self.notes.push((self.used, note));
    }
}

/// Decodes a chunk into `batch`, whose former content is forgotten.
pub(super) fn decode(chunk: &Chunk, batch: &mut Batch) {
    batch.clear();
    let Some(schema) = &chunk.schema else { return };
    let mut at = 0;
    if let Some(way) = &schema.short_way {
        at = decode_shortly(chunk, schema, way, batch);
    }
    let mut rest = &chunk.bytes[at..chunk.length];
    while let Some((record, behind)) = first(rest) {
        any(record, schema, batch);
        rest = behind;
    }
}

fn any(record: &[u8], schema: &Schema, batch: &mut Batch) {
    match u32_at(record, 0) {
        Some(kind::SAMPLE) => sample(record, schema, batch),
        Some(kind) => other(kind, record, schema, batch),
        None => {}
    }
}

/// Decodes all records but those at the very end of the chunk's memory; gives where those begin.
fn decode_shortly(chunk: &Chunk, schema: &Schema, way: &ShortWay, batch: &mut Batch) -> usize {
    batch.counts.resize(way.events.len(), 0);
    let mut at = 0;
    while at < chunk.length {
        // The window may end behind the record, in memory of the chunk that is not looked at.
        let Some(window) = chunk.bytes.get(at..).and_then(|bytes| bytes.first_chunk()) else { break };
        let head = HEAD.read(window);
        let size = (head >> 48) as usize;
        if size < HEADER || size > chunk.length - at {
            break;
        }
        if head as u32 != kind::SAMPLE || !sample_shortly(window, size, schema, way, batch) {
            any(&chunk.bytes[at..at + size], schema, batch);
        }
        at += size;
    }
    at
}

/// Decodes a sample, or tells that it is not one for the short way.
#[inline(always)]
fn sample_shortly(window: &Window, size: usize, schema: &Schema, way: &ShortWay, batch: &mut Batch) -> bool {
    let identity = way.identity.read(window);
    let length = way.length.read(window);
    if schema.layout_number(identity) != way.layout || way.raw as u64 + length > size as u64 || size < way.raw
    {
        return false;
    }
    let Some(slot) = schema.decoder.slot(way.id.read(window)) else { return length >= 2 };
    let Some(Some(quick)) = way.events.get(slot) else { return false };
    let mut event = Event { time_ns: 0, value: 0, extra: 0, thread: 0, cpu: 0, kind: Kind::Exit };
    if length < u64::from(quick.length) || !quick.fill(window, &mut event) {
        return false;
    }
    batch.counts[slot] += 1;
    let member = Member(way.thread.read(window));
    event.thread = member.thread();
    event.time_ns = way.time.read(window);
    event.cpu = way.cpu.read(window) as u16;
    batch.push(member, &event);
    true
}

/// Gives thread and tracepoint's bytes of every sample.
pub(super) fn samples(chunk: &Chunk, mut take: impl FnMut(u32, &[u8])) {
    let Some(schema) = &chunk.schema else { return };
    let mut rest = &chunk.bytes[..chunk.length];
    while let Some((record, behind)) = first(rest) {
        if u32_at(record, 0) == Some(kind::SAMPLE) {
            let layout = schema.layout_of(record).filter(|layout| layout.tracepoint);
            if let Some((layout, raw)) = layout.and_then(|layout| Some((layout, layout.raw(record)?))) {
                let thread = layout.thread.and_then(|at| u32_at(record, usize::from(at) + 4));
                take(thread.or_else(|| schema.decoder.thread(raw)).unwrap_or(0), raw);
            }
        }
        rest = behind;
    }
}

/// The first record and what is behind it, when it is whole.
#[inline]
fn first(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let size = usize::from(u16_at(bytes, 6)?);
    if size < HEADER {
        return None;
    }
    bytes.split_at_checked(size)
}

#[inline]
fn sample(record: &[u8], schema: &Schema, batch: &mut Batch) {
    let Some(layout) = schema.layout_of(record).filter(|layout| layout.tracepoint) else { return };
    let Some(raw) = layout.raw(record) else { return };
    let mut event = Event { time_ns: 0, value: 0, extra: 0, thread: 0, cpu: 0, kind: Kind::Exit };
    match schema.decoder.decode(raw, &mut event, &mut batch.counts) {
        Decoded::Event => {}
        Decoded::Other => return,
        Decoded::Undecoded => {
            batch.undecoded += 1;
            return;
        }
    }
    let at = |place: Option<u16>| place.map(usize::from);
    event.time_ns = at(layout.time).and_then(|at| u64_at(record, at)).unwrap_or(0);
    event.cpu = at(layout.cpu).and_then(|at| u32_at(record, at)).unwrap_or(0) as u16;
    let member = match at(layout.thread).and_then(|at| u64_at(record, at)) {
        Some(both) => Member(both),
        None => Member::of_unknown_process(schema.decoder.thread(raw).unwrap_or(0)),
    };
    event.thread = member.thread();
    batch.push(member, &event);
}

#[cold]
fn other(kind: u32, record: &[u8], schema: &Schema, batch: &mut Batch) {
    let note = match kind {
        kind::FINISHED_ROUND => Some(Note::Round),
        kind::LOST => lost(record, schema, &batch.last_of_cpu),
        kind::LOST_SAMPLES => lost_samples(record, schema),
        kind::COMM => name(record, schema),
        _ => None,
    };
    if let Some(note) = note {
        batch.note(note);
    }
}

fn lost(record: &[u8], schema: &Schema, last_of_cpu: &[u64; CPUS]) -> Option<Note> {
    let identity = u64_at(record, HEADER)?;
    let count = u64_at(record, HEADER + 8)?;
    let from_end = schema.layout_by(identity).and_then(|layout| layout.trailing_cpu);
    let at = from_end.and_then(|from_end| record.len().checked_sub(usize::from(from_end)));
    let cpu = at.and_then(|at| u32_at(record, at)).unwrap_or(0) as u16;
    let after_ns = Some(last_of_cpu[usize::from(cpu) % CPUS]).filter(|&last| last > 0);
    Some(Note::Lost { cpu, count, after_ns })
}

/// `PERF_RECORD_MISC_LOST_SAMPLES_BPF`: a filter of the user's left them out.
const FILTERED: u16 = 1 << 15;

fn lost_samples(record: &[u8], schema: &Schema) -> Option<Note> {
    if u16_at(record, 4)? & FILTERED != 0 {
        return None;
    }
    let count = u64_at(record, HEADER)?;
    // perf writes the identity last, behind an otherwise empty sample (`record__read_lost_samples`).
    let identity = u64_at(record, record.len().checked_sub(8)?)?;
    Some(Note::LostSamples { exits: schema.is_exit(identity), count })
}

fn name(record: &[u8], schema: &Schema) -> Option<Note> {
    let (process, thread) = (u32_at(record, HEADER)?, u32_at(record, HEADER + 4)?);
    let name = crate::bytes::text(record.get(HEADER + 8..)?);
    // As for all records that are no samples, the layouts of a recording agree on the end.
    let from_end = schema.layout_by(0).and_then(|layout| layout.trailing_time);
    let at = from_end.and_then(|from_end| record.len().checked_sub(usize::from(from_end)));
    let time_ns = at.and_then(|at| u64_at(record, at)).unwrap_or(0);
    (process == thread && !name.is_empty()).then_some(Note::Name { process, name, time_ns })
}

#[cfg(test)]
#[path = "chunk_tests.rs"]
mod tests;
