//! Pages, decoded.

use super::feed::Chunk;
use super::file::Flaw;
use super::page::Page;
use crate::decoder::{Counts, Decoded, Decoder};
use crate::event::{Event, Kind};

/// Events in a row, all of one thread.
#[derive(Default)]
pub(super) struct Row {
    pub(super) thread: u32,
    pub(super) events: Vec<Event>,
    /// They are ordered by time.
    pub(super) ordered: bool,
    pub(super) newest_ns: u64,
}

/// The content of a chunk's pages.
#[derive(Default)]
pub(super) struct Batch {
    rows: Vec<Row>,
    used: usize,
    /// So many events (zero: an unknown number) were lost behind so many rows.
    pub(super) losses: Vec<(usize, u64)>,
    pub(super) counts: Counts,
    pub(super) undecoded: u64,
    pub(super) flaws: Vec<Flaw>,
    pub(super) cpu: u16,
    pub(super) buffer: usize,
    pub(super) reached_ns: u64,
}

impl Batch {
    fn clear(&mut self, chunk: &Chunk) {
        self.rows().iter_mut().for_each(|row| row.events.clear());
        self.used = 0;
        self.losses.clear();
        self.counts.clear();
        self.undecoded = 0;
        self.flaws.clear();
        (self.cpu, self.buffer, self.reached_ns) = (chunk.cpu, chunk.buffer, chunk.reached_ns);
    }

    pub(super) fn rows(&mut self) -> &mut [Row] {
        &mut self.rows[..self.used]
    }

    #[inline]
    fn push(&mut self, event: &Event, new_row: bool) {
        if new_row || self.used == 0 || self.rows[self.used - 1].thread != event.thread {
            self.begin(event.thread);
        }
        let row = &mut self.rows[self.used - 1];
        row.ordered &= event.time_ns >= row.newest_ns;
        row.newest_ns = row.newest_ns.max(event.time_ns);
        row.events.push(*event);
    }

    #[cold]
    fn begin(&mut self, thread: u32) {
        if self.used == self.rows.len() {
            self.rows.push(Row::default());
        }
        self.used += 1;
        let row = &mut self.rows[self.used - 1];
        (row.thread, row.ordered, row.newest_ns) = (thread, true, 0);
    }

    /// Events were lost here.
    fn lost(&mut self, count: u64) {
        self.losses.push((self.used, count));
    }

    fn lost_here(&self) -> bool {
        self.losses.last().is_some_and(|&(rows, _)| rows == self.used)
    }
}

/// Decodes a chunk into `batch`, whose former content is forgotten.
pub(super) fn decode(chunk: &Chunk, decoder: &Decoder, batch: &mut Batch) {
    batch.clear(chunk);
    let Some(clock) = chunk.clock else { return };
    for (number, bytes) in chunk.bytes.chunks(chunk.page_size).enumerate() {
        let start = number * chunk.page_size;
        let Some(page) = Page::parse(bytes, chunk.page_size) else {
            // What the file does not have is told by the feed.
            if bytes.len() >= super::page::HEADER {
                broken(chunk, start, batch);
            }
            continue;
        };
        if let Some(count) = page.lost {
            batch.lost(count);
        }
        let mut event = Event { time_ns: 0, value: 0, extra: 0, thread: 0, cpu: chunk.cpu, kind: Kind::Exit };
        let outcome = page.events(|ticks, raw| match decoder.decode(raw, &mut event, &mut batch.counts) {
            Decoded::Event => {
                event.time_ns = clock.ns(ticks);
                event.thread = decoder.thread(raw).unwrap_or(0);
                let new_row = batch.lost_here();
                batch.push(&event, new_row);
            }
            Decoded::Other => {}
            Decoded::Undecoded => batch.undecoded += 1,
        });
        if let (Err(place), true) = (outcome, page.whole) {
            broken(chunk, start + place, batch);
        }
    }
    if let Some(flaw) = &chunk.flaw {
        batch.lost(0);
        batch.flaws.push(flaw.clone());
    }
}

/// Notes that a page makes no sense from some place on.
#[cold]
fn broken(chunk: &Chunk, place: usize, batch: &mut Batch) {
    let page = format!("a page of CPU {} makes no sense", chunk.cpu);
    batch.flaws.push(if chunk.packed {
        Flaw::new(format!("{page} (byte {place} of a packed part)"), chunk.offset)
    } else {
        Flaw::new(page, chunk.offset + place as u64)
    });
    batch.lost(0);
}
