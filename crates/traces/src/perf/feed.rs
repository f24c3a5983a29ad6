//! Splits a stream of bytes into chunks of complete records.

use std::io::Read;
use std::mem;
use std::sync::Arc;

use super::ahead::Ahead;
use super::attribute::{Attribute, HEADER};
use super::chunk::Chunk;
use super::features::Features;
use super::inflate::Inflater;
use super::kind;
use super::schema::{MOST_ATTRIBUTES, MOST_IDENTITIES, Schema};
use crate::Damage;
use crate::bytes::{MOST_SECTION, u16_at, u32_at, u64_at};
use crate::input::Failure;
use crate::misunderstood::Misunderstood;
use crate::pipeline::Feed;
use crate::tracing_data::{self, BadTracingData};

/// The size of a chunk: large enough that passing it on costs little, small enough for a core's cache.
const CHUNK: usize = 512 << 10;
/// The most chunks before which events were described: each such chunk copies all descriptions. perf describes all
/// events before the other records.
const MOST_COPIES: usize = 1 << 10;

/// The records of a recording, in order.
pub(super) struct Records {
    reader: Box<dyn Read + Send>,
    failure: Failure,
    /// The number of bytes that were read from the recording's start, including those in `ahead`.
    position: u64,
    /// The number of bytes of records that are still to be read; `None` if the header does not have it.
    left: Option<u64>,
    ahead: Ahead,
    ended: bool,
    done: bool,
    inflater: Option<Inflater>,
    pub(super) schema: Schema,
    /// The copy for chunks; `None` if the schema has changed since.
    shared: Option<Arc<Schema>>,
    copies: usize,
    pub(super) features: Features,
    pub(super) damage: Option<Damage>,
    pub(super) warnings: Vec<String>,
    pub(super) misunderstood: Misunderstood,
}

/// The reason why the walk over records stopped.
enum Stop {
    /// The bytes end, perhaps within a record.
    End,
    /// A record that the decoder does not handle begins here.
    Special(u32),
    /// The bytes at this place are invalid, for this reason.
    Broken(&'static str),
}

impl Records {
    /// Records begin at offset `position` of the recording, where `reader` is, and have `length` bytes.
    pub(super) fn new(
        reader: Box<dyn Read + Send>,
        failure: Failure,
        position: u64,
        length: Option<u64>,
        schema: Schema,
    ) -> Self {
        Self {
            reader,
            failure,
            position,
            left: length,
            ahead: Ahead::default(),
            ended: false,
            done: false,
            inflater: None,
            schema,
            shared: None,
            copies: 0,
            features: Features::default(),
            damage: None,
            warnings: Vec::new(),
            misunderstood: Misunderstood::default(),
        }
    }

    /// The offset in the recording up to which it was read.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// Tests whether all records were handed out.
    pub(super) fn is_done(&self) -> bool {
        self.done
    }

    /// Notes damage, but continues with the records.
    pub(super) fn note_damage(&mut self, offset: u64, what: String) {
        self.damage.get_or_insert(Damage { offset, what });
    }

    /// Reads until `bytes` has `wanted` bytes, of which the first `filled` are already there. Returns the new number.
    fn fill(&mut self, bytes: &mut Vec<u8>, mut filled: usize, wanted: usize) -> usize {
        // Chunks are reused, so the memory is zeroed only once.
        if bytes.len() < wanted {
            bytes.resize(wanted, 0);
        }
        while filled < wanted && !self.ended {
            let most = self.left.map_or(usize::MAX, |left| usize::try_from(left).unwrap_or(usize::MAX));
            let room = (wanted - filled).min(most);
            if room == 0 {
                self.ended = true;
                break;
            }
            match self.reader.read(&mut bytes[filled..filled + room]) {
                Ok(0) => {
                    self.ended = true;
                    self.note_early_end();
                }
                Ok(count) => {
                    filled += count;
                    self.position += count as u64;
                    self.left = self.left.map(|left| left - count as u64);
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.ended = true;
                    self.damaged(self.position, format!("it cannot be read further ({error})"));
                }
            }
        }
        filled
    }

    fn note_early_end(&mut self) {
        if let Some(error) = self.failure.take() {
            self.damaged(self.position, format!("it cannot be read further ({error})"));
        } else if let Some(left) = self.left.filter(|&left| left > 0) {
            self.damaged(self.position, format!("it ends here, {left} bytes of records are missing"));
        }
    }

    fn damaged(&mut self, offset: u64, what: String) {
        // Only the first damage is kept.
        self.note_damage(offset, what);
        self.ended = true;
    }

    /// Walks over complete records. Returns the offset and the reason of the end.
    fn walk(&mut self, bytes: &[u8]) -> (usize, Stop) {
        let mut at = 0;
        loop {
            // Type, flags and size.
            let Some(head) = bytes.get(at..).and_then(<[u8]>::first_chunk).copied().map(u64::from_le_bytes)
            else {
                return (at, Stop::End);
            };
            let (kind, size) = (head as u32, (head >> 48) as usize);
            if size < HEADER {
                return (at, Stop::Broken("it does not continue with a record"));
            }
            if size > bytes.len() - at {
                return (at, Stop::End);
            }
            if kind >= kind::FIRST_OF_PERF && kind != kind::FINISHED_ROUND {
                match kind {
                    kind::HEADER_TRACING_DATA | kind::AUXTRACE => return (at, Stop::Special(kind)),
                    kind if is_packed(kind) => return (at, Stop::Special(kind)),
                    kind::HEADER_ATTR => {
                        if let Err(what) = self.attribute(&bytes[at..at + size]) {
                            return (at, Stop::Broken(what));
                        }
                    }
                    kind::HEADER_FEATURE => self.features.read_record(&bytes[at..at + size]),
                    _ => {}
                }
            }
            at += size;
        }
    }

    /// Adds an event's attribute, which its IDs follow; refuses more than any recording has.
    fn attribute(&mut self, record: &[u8]) -> Result<(), &'static str> {
        let body = &record[HEADER..];
        let size = u32_at(body, 4).and_then(|size| usize::try_from(size).ok()).unwrap_or(0);
        let Some(attribute) = Attribute::parse(body) else { return Ok(()) };
        let identities = body.get(size..).unwrap_or_default().chunks_exact(8);
        if self.schema.attributes.len() >= MOST_ATTRIBUTES {
            return Err("it describes more than 65,536 events");
        }
        if self.schema.identities() + identities.len() > MOST_IDENTITIES {
            return Err("its events have more than 1,048,576 identities");
        }
        self.change()?;
        self.schema.add(attribute, identities.filter_map(|bytes| u64_at(bytes, 0)));
        Ok(())
    }

    /// Makes the next chunk copy the schema again, because it is about to change.
    fn change(&mut self) -> Result<(), &'static str> {
        if self.shared.is_some() && self.copies >= MOST_COPIES {
            return Err("it describes events over and over again");
        }
        self.shared = None;
        Ok(())
    }

    /// The schema for the next chunk. It may be large, so it is not copied for each event that is added.
    fn shared(&mut self) -> Arc<Schema> {
        let Self { schema, shared, copies, .. } = self;
        let shared = shared.get_or_insert_with(|| {
            *copies += 1;
            schema.shared()
        });
        Arc::clone(shared)
    }

    /// Adds the tracepoints' formats.
    pub(super) fn learn(&mut self, block: &[u8]) {
        let (formats, outcome) = tracing_data::parse(block, &mut self.misunderstood);
        let warning = outcome.err().map(|bad| match bad {
            BadTracingData::Cut => "The descriptions of the events end early; some events may be missing",
            BadTracingData::Foreign => {
                "The descriptions of the events do not begin as those of a 64-bit x86 machine, and were not read"
            }
        });
        // In pipe mode they are records, of which a corrupt recording may have many.
        let warning = warning.filter(|warning| !self.warnings.iter().any(|told| told == warning));
        self.warnings.extend(warning.map(str::to_owned));
        if formats.is_empty() {
            return;
        }
        match self.change() {
            Ok(()) => self.schema.learn(&formats),
            Err(what) => self.damaged(self.position, what.into()),
        }
    }

    /// Handles the record at the start of `ahead`, whose data follows the record itself.
    fn special(&mut self, kind: u32) {
        let mut ahead = mem::take(&mut self.ahead);
        let record = ahead.rest();
        let size = usize::from(u16_at(record, 6).unwrap_or(0));
        let length = match kind {
            kind::AUXTRACE => u64_at(record, HEADER),
            _ => u32_at(record, HEADER).map(|length| u64::from(length).next_multiple_of(8)),
        };
        let mut rest = length.and_then(|length| usize::try_from(length).ok()).unwrap_or(0);
        ahead.pass(size);
        let keeps = kind == kind::HEADER_TRACING_DATA;
        let mut block = Vec::new();
        // In pieces, so that a wrong length does not make us allocate memory.
        while rest > 0 {
            if ahead.rest().is_empty() {
                ahead.clear();
                let filled = self.fill(&mut ahead.bytes, 0, rest.min(CHUNK));
                ahead.bytes.truncate(filled);
                if filled == 0 {
                    break;
                }
            }
            let taken = rest.min(ahead.rest().len());
            if keeps {
                block.extend_from_slice(&ahead.rest()[..taken]);
            }
            if block.len() > MOST_SECTION {
                return self.damaged(self.position, "a section of more than 64 MiB".into());
            }
            ahead.pass(taken);
            rest -= taken;
        }
        if rest > 0 {
            self.damaged(self.position, format!("it ends here, {rest} bytes of a section are missing"));
        }
        self.ahead = ahead;
        if keeps {
            self.learn(&block);
        }
    }

    /// Ends a chunk of `filled` bytes after its last complete record, and keeps the rest for the next one.
    fn end(&mut self, chunk: &mut Chunk, filled: usize, end: usize, stop: Stop) {
        chunk.length = end;
        self.ahead.replace(&chunk.bytes[end..filled]);
        let begins = self.position - (filled - end) as u64;
        let unpacked_rest = self.inflater.as_ref().is_some_and(Inflater::has_rest);
        match stop {
            Stop::End if self.ended && (filled > end || unpacked_rest) => {
                self.damaged(begins, "a record is cut off".into());
                self.ahead.clear();
            }
            Stop::Broken(what) => {
                self.damaged(begins, what.into());
                self.ahead.clear();
            }
            Stop::End | Stop::Special(_) => {}
        }
    }

    /// Fills a chunk from the zstd stream in the records, up to its end or to a record that is not compressed.
    fn inflate(&mut self, chunk: &mut Chunk) {
        let mut inflater = self.inflater.take().unwrap_or_default();
        chunk.bytes.clear();
        inflater.give_rest(&mut chunk.bytes);
        while chunk.bytes.len() < CHUNK {
            let record = self.ahead.rest();
            let Some((_, size)) = record_at(record).filter(|&(kind, _)| is_packed(kind)) else { break };
            match inflater.inflate(&record[..size], &mut chunk.bytes, CHUNK) {
                Ok(true) => self.ahead.pass(size),
                Ok(false) => break,
                Err(what) => {
                    self.damaged(self.position - record.len() as u64, what);
                    self.ahead.clear();
                    break;
                }
            }
        }
        let bytes = mem::take(&mut chunk.bytes);
        let (end, stop) = self.walk(&bytes);
        if !matches!(stop, Stop::End) {
            let offset = self.position - self.ahead.rest().len() as u64;
            self.damaged(offset, "the bytes unpacked before are not whole records".into());
            self.ahead.clear();
        }
        inflater.keep_rest(&bytes[end..]);
        chunk.bytes = bytes;
        chunk.length = end;
        self.inflater = Some(inflater);
    }
}

/// The type and size of the first record, if it is complete.
fn record_at(bytes: &[u8]) -> Option<(u32, usize)> {
    let size = usize::from(u16_at(bytes, 6)?);
    (size >= HEADER && size <= bytes.len()).then_some((u32_at(bytes, 0)?, size))
}

fn is_packed(kind: u32) -> bool {
    matches!(kind, kind::COMPRESSED | kind::COMPRESSED2)
}

impl Feed for Records {
    type Chunk = Chunk;

    fn next(&mut self, chunk: &mut Chunk) -> bool {
        loop {
            chunk.length = 0;
            let ahead = mem::take(&mut self.ahead);
            let (end, stop) = self.walk(ahead.rest());
            // The bytes in `ahead` come first, but only up to a record that needs special handling. Copied, so that
            // the memory of `ahead` is reused.
            let copied = if matches!(stop, Stop::Special(_)) { end } else { ahead.rest().len() };
            if chunk.bytes.len() < copied {
                chunk.bytes.resize(copied, 0);
            }
            chunk.bytes[..copied].copy_from_slice(&ahead.rest()[..copied]);
            self.ahead = ahead;
            match stop {
                Stop::Special(kind) if end == 0 => {
                    if is_packed(kind) {
                        self.inflate(chunk);
                    } else {
                        self.special(kind);
                    }
                    if chunk.length == 0 {
                        continue;
                    }
                }
                Stop::Special(_) => {
                    self.ahead.pass(end);
                    chunk.length = end;
                }
                Stop::Broken(_) => self.end(chunk, copied, end, stop),
                Stop::End => {
                    let mut bytes = mem::take(&mut chunk.bytes);
                    let filled = self.fill(&mut bytes, copied, CHUNK.max(copied));
                    let (more, stop) = self.walk(&bytes[end..filled]);
                    chunk.bytes = bytes;
                    self.end(chunk, filled, end + more, stop);
                }
            }
            if chunk.length > 0 {
                chunk.schema = Some(self.shared());
                return true;
            }
            if self.ended && self.ahead.rest().is_empty() {
                self.done = true;
                return false;
            }
        }
    }
}

#[cfg(test)]
#[path = "feed_tests.rs"]
mod tests;
