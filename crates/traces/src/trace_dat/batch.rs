//! The decoded events of a chunk's pages.

use exits::Span;

use super::feed::Chunk;
use super::file::Flaw;
use super::page::Page;
use crate::decoder::{Counts, Decoded, Decoder};
use crate::event::{Event, Kind};
use crate::run::Run;

/// The events in the pages of a chunk.
#[derive(Default)]
pub(super) struct Batch {
    runs: Vec<Run<u32>>,
    used: usize,
    /// The losses: the number of runs before, and the number of lost events (zero if unknown).
    pub(super) losses: Vec<(usize, u64)>,
    pub(super) counts: Counts,
    pub(super) undecoded: u64,
    pub(super) flaws: Vec<Flaw>,
    /// The span from the first event to the last, of interest or not.
    pub(super) observed: Option<Span>,
    pub(super) cpu: u16,
    pub(super) buffer: usize,
    pub(super) reached_ns: u64,
}

impl Batch {
    fn clear(&mut self, chunk: &Chunk) {
        self.used = 0;
        self.losses.clear();
        self.counts.clear();
        self.undecoded = 0;
        self.flaws.clear();
        self.observed = None;
        (self.cpu, self.buffer, self.reached_ns) = (chunk.cpu, chunk.buffer, chunk.reached_ns);
    }

    pub(super) fn runs(&mut self) -> &mut [Run<u32>] {
        &mut self.runs[..self.used]
    }

    #[inline]
    fn push(&mut self, event: &Event, new_run: bool) {
        if new_run || self.used == 0 || self.runs[self.used - 1].thread != event.thread {
            self.begin(event.thread);
        }
        self.runs[self.used - 1].push(event);
    }

    #[cold]
    fn begin(&mut self, thread: u32) {
        if self.used == self.runs.len() {
            self.runs.push(Run::default());
        }
        self.used += 1;
        self.runs[self.used - 1].begin(thread);
    }

    /// Records that events were lost here.
    fn lost(&mut self, count: u64) {
        self.losses.push((self.used, count));
    }

    fn lost_here(&self) -> bool {
        self.losses.last().is_some_and(|&(runs, _)| runs == self.used)
    }
}

/// Decodes a chunk into `batch`, replacing its contents.
pub(super) fn decode(chunk: &Chunk, decoder: &Decoder, batch: &mut Batch) {
    batch.clear(chunk);
    let Some(clock) = chunk.clock else { return };
    for (number, bytes) in chunk.bytes.chunks(chunk.page_size).enumerate() {
        let start = number * chunk.page_size;
        let Some(page) = Page::parse(bytes, chunk.page_size) else {
            // The feed reports pages that are missing in the file.
            if bytes.len() >= super::page::HEADER {
                broken(chunk, start, batch);
            }
            continue;
        };
        if let Some(count) = page.lost {
            batch.lost(count);
        }
        let mut event = Event { time_ns: 0, value: 0, extra: 0, thread: 0, cpu: chunk.cpu, kind: Kind::Exit };
        let mut ends = None;
        let outcome = page.events(|ticks, raw| {
            ends = Some((ends.map_or(ticks, |(first, _)| first), ticks));
            match decoder.decode(raw, &mut event, &mut batch.counts) {
                Decoded::Event => {
                    event.time_ns = clock.ns(ticks);
                    event.thread = decoder.thread(raw).unwrap_or(0);
                    let new_run = batch.lost_here();
                    batch.push(&event, new_run);
                }
                Decoded::Other => {}
                Decoded::Undecoded => batch.undecoded += 1,
            }
        });
        if let Some((first, last)) = ends {
            let times = Span { first_ns: clock.ns(first), last_ns: clock.ns(last) };
            Span::widen(&mut batch.observed, times);
        }
        if let (Err(place), true) = (outcome, page.whole) {
            broken(chunk, start + place, batch);
        }
    }
    if let Some(flaw) = &chunk.flaw {
        batch.lost(0);
        batch.flaws.push(flaw.clone());
    }
}

/// Records that a page is invalid from this place on.
#[cold]
fn broken(chunk: &Chunk, place: usize, batch: &mut Batch) {
    batch.lost(0);
    // A packed part may unpack to any number of them, and all are at its offset.
    if chunk.packed && !batch.flaws.is_empty() {
        return;
    }
    let page = format!("a page of CPU {} makes no sense", chunk.cpu);
    batch.flaws.push(if chunk.packed {
        Flaw::new(format!("{page} (byte {place} of a packed part)"), chunk.offset)
    } else {
        Flaw::new(page, chunk.offset + place as u64)
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace_dat::clock::Clock;
    use crate::trace_dat::options::Facts;

    #[test]
    fn a_packed_part_of_nonsense_is_one_flaw() {
        for (packed, flaws) in [(true, 1), (false, 16)] {
            let clock = Some(Clock::new("local", &Facts::default()));
            let chunk =
                Chunk { bytes: vec![0xff; 16 << 12], page_size: 4096, packed, clock, ..Chunk::default() };
            let mut batch = Batch::default();
            decode(&chunk, &Decoder::new(), &mut batch);
            assert_eq!((batch.flaws.len(), batch.losses.len()), (flaws, 16));
        }
    }
}
