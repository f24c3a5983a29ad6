//! Chunks of complete records, and their events.

use std::sync::Arc;

use super::attribute::HEADER;
use super::batch::{Batch, LastOfCpu, Member, Note};
use super::kind;
use super::schema::Schema;
use crate::bytes::{u16_at, u32_at, u64_at};
use crate::decoder::Decoded;
use crate::event::{Event, Kind};

/// Consecutive records, as many as fit into a core's cache.
#[derive(Default)]
pub(super) struct Chunk {
    /// The complete records are in the first `length` bytes.
    pub(super) bytes: Vec<u8>,
    pub(super) length: usize,
    pub(super) schema: Option<Arc<Schema>>,
}

/// Decodes a chunk into `batch`, replacing its contents.
pub(super) fn decode(chunk: &Chunk, batch: &mut Batch) {
    batch.clear();
    let Some(schema) = &chunk.schema else { return };
    batch.is_sampled = schema.is_sampled;
    let mut at = 0;
    if let Some(way) = &schema.short_way {
        let long = |record: &[u8], batch: &mut Batch| any(record, schema, batch);
        at = way.decode(&chunk.bytes, chunk.length, schema.decoder.slots(), batch, long);
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

/// Passes the thread and the raw data of every sample to `take`.
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

/// The first record and the bytes after it, if it is complete.
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
    let Some(layout) = schema.layout_of(record) else { return };
    let at = |place: Option<u16>| place.map(usize::from);
    let time_ns = at(layout.time).and_then(|at| u64_at(record, at));
    let raw = layout.raw(record).filter(|_| layout.tracepoint);
    let Some(raw) = raw else { return batch.observe(time_ns) };
    let mut event = Event { time_ns: 0, value: 0, extra: 0, thread: 0, cpu: 0, kind: Kind::Exit };
    match schema.decoder.decode(raw, &mut event, &mut batch.counts) {
        Decoded::Event => {}
        Decoded::Other => return batch.observe(time_ns),
        Decoded::Undecoded => {
            batch.undecoded += 1;
            return batch.observe(time_ns);
        }
    }
    event.time_ns = time_ns.unwrap_or(0);
    event.cpu = at(layout.cpu).and_then(|at| u32_at(record, at)).unwrap_or(0) as u16;
    let member = match at(layout.thread).and_then(|at| u64_at(record, at)) {
        Some(both) => Member::new(both),
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

fn lost(record: &[u8], schema: &Schema, last_of_cpu: &LastOfCpu) -> Option<Note> {
    let identity = u64_at(record, HEADER)?;
    let count = u64_at(record, HEADER + 8)?;
    let from_end = schema.layout_by(identity).and_then(|layout| layout.trailing_cpu);
    let at = from_end.and_then(|from_end| record.len().checked_sub(usize::from(from_end)));
    let cpu = at.and_then(|at| u32_at(record, at)).unwrap_or(0) as u16;
    Some(Note::Lost { cpu, count, after_ns: last_of_cpu.get(cpu) })
}

/// `PERF_RECORD_MISC_LOST_SAMPLES_BPF`: a filter of the user dropped the samples.
const FILTERED: u16 = 1 << 15;

fn lost_samples(record: &[u8], schema: &Schema) -> Option<Note> {
    if u16_at(record, 4)? & FILTERED != 0 {
        return None;
    }
    let count = u64_at(record, HEADER)?;
    // perf fills in only the ID (`record__read_lost_samples`), whose place is the same in all layouts of a recording.
    let from_end = schema.layout_by(0).and_then(|layout| layout.trailing_identity);
    let at = from_end.and_then(|from_end| record.len().checked_sub(usize::from(from_end)));
    let identity = at.and_then(|at| u64_at(record, at)).unwrap_or(0);
    Some(Note::LostSamples { exits: schema.is_exit(identity), count })
}

fn name(record: &[u8], schema: &Schema) -> Option<Note> {
    let (process, thread) = (u32_at(record, HEADER)?, u32_at(record, HEADER + 4)?);
    let name = crate::bytes::text(record.get(HEADER + 8..)?);
    // In records other than samples, all layouts of a recording have the same end.
    let from_end = schema.layout_by(0).and_then(|layout| layout.trailing_time);
    let at = from_end.and_then(|from_end| record.len().checked_sub(usize::from(from_end)));
    let time_ns = at.and_then(|at| u64_at(record, at)).unwrap_or(0);
    (process == thread && !name.is_empty()).then_some(Note::Name { process, name, time_ns })
}

#[cfg(test)]
#[path = "chunk_tests.rs"]
mod tests;
