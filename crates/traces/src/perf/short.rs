//! The fast path from a chunk to its events, for recordings in which all samples of tracepoints have the same layout:
//! nearly all of them. Records that do not match are decoded one by one in the normal way.

use std::mem;

use super::attribute::{HEADER, Layout};
use super::batch::{Batch, Member};
use super::kind;
use crate::decoder::Decoder;
use crate::event::{Event, Kind};
use crate::quick::{Load, Quick, Window};
use crate::run::Run;

/// Type, flags and size.
const HEAD: Load = Load::whole(0);
/// At least the number of events for which the decoder has a fast path.
const MOST_EVENTS: usize = 16;

/// The largest distance between the numbers that identify events.
const MOST_NUMBERS: u64 = 1 << 16;

/// The offsets in samples of tracepoints.
trait Places {
    /// The number that identifies the event.
    fn key(&self, sample: &Window) -> u64;
    fn thread(&self, sample: &Window) -> u64;
    fn time(&self, sample: &Window) -> u64;
    fn cpu(&self, sample: &Window) -> u64;
    /// The length of the raw data.
    fn length(&self, sample: &Window) -> u64;
    /// The event ID, with which the raw data begins.
    fn id(&self, sample: &Window) -> u64;
    /// The offset of the raw data.
    fn raw(&self) -> u64;
}

/// With `IDENTIFIER`, `IP`, `TID`, `TIME`, `CPU`, `PERIOD` and `RAW`, as perf records several kinds of tracepoints by
/// default. Constant offsets take a third of the instructions.
struct Usual;

impl Usual {
    const IDENTITY: u16 = 8;
    const THREAD: u16 = 24;
    const TIME: u16 = 32;
    const CPU: u16 = 40;
    const RAW: u16 = 56;

    fn is(layout: &Layout) -> bool {
        let usual = [Self::IDENTITY, Self::THREAD, Self::TIME, Self::CPU, Self::RAW].map(Some);
        [layout.identity, layout.thread, layout.time, layout.cpu, layout.fixed_raw()] == usual
    }

    #[inline(always)]
    fn read<const SIZE: u32>(at: u16, sample: &Window) -> u64 {
        let all = Load::whole(at as u8).read(sample);
        all & (u64::MAX >> (64 - 8 * SIZE))
    }
}

impl Places for Usual {
    #[inline(always)]
    fn key(&self, sample: &Window) -> u64 {
        Self::read::<8>(Self::IDENTITY, sample)
    }

    #[inline(always)]
    fn thread(&self, sample: &Window) -> u64 {
        Self::read::<8>(Self::THREAD, sample)
    }

    #[inline(always)]
    fn time(&self, sample: &Window) -> u64 {
        Self::read::<8>(Self::TIME, sample)
    }

    #[inline(always)]
    fn cpu(&self, sample: &Window) -> u64 {
        Self::read::<4>(Self::CPU, sample)
    }

    #[inline(always)]
    fn length(&self, sample: &Window) -> u64 {
        Self::read::<4>(Self::RAW, sample)
    }

    #[inline(always)]
    fn id(&self, sample: &Window) -> u64 {
        Self::read::<2>(Self::RAW + 4, sample)
    }

    #[inline(always)]
    fn raw(&self) -> u64 {
        u64::from(Self::RAW) + 4
    }
}

/// The offsets as found in the recording.
#[derive(Debug, Clone)]
struct Told {
    key: Load,
    thread: Load,
    time: Load,
    cpu: Load,
    length: Load,
    id: Load,
    raw: u64,
}

impl Places for Told {
    #[inline(always)]
    fn key(&self, sample: &Window) -> u64 {
        self.key.read(sample)
    }

    #[inline(always)]
    fn thread(&self, sample: &Window) -> u64 {
        self.thread.read(sample)
    }

    #[inline(always)]
    fn time(&self, sample: &Window) -> u64 {
        self.time.read(sample)
    }

    #[inline(always)]
    fn cpu(&self, sample: &Window) -> u64 {
        self.cpu.read(sample)
    }

    #[inline(always)]
    fn length(&self, sample: &Window) -> u64 {
        self.length.read(sample)
    }

    #[inline(always)]
    fn id(&self, sample: &Window) -> u64 {
        self.id.read(sample)
    }

    #[inline(always)]
    fn raw(&self) -> u64 {
        self.raw
    }
}

/// An event with a fast path.
#[derive(Debug, Clone)]
struct Step {
    /// The event ID.
    id: u64,
    /// The slot in the decoder.
    slot: usize,
    quick: Quick,
}

/// The data for the fast path of a recording.
#[derive(Debug, Clone)]
pub(super) struct ShortWay {
    places: Told,
    usual: bool,
    /// The lowest key; `numbers` has for each key from there on the index in `steps` plus one, or zero.
    first: u64,
    numbers: Vec<u8>,
    steps: Vec<Step>,
}

impl ShortWay {
    /// The fast path for tracepoints with this layout. `identities` are the IDs of the samples that have it, each
    /// with the event's ID; they identify the event if the layout has them.
    pub(super) fn new(
        layout: &Layout,
        identities: impl Iterator<Item = (u64, u64)>,
        decoder: &Decoder,
    ) -> Option<Self> {
        let load = |place: Option<u16>, size| Load::new(usize::from(place?), size);
        let raw = layout.fixed_raw()?;
        let id = load(Some(raw + 4), 2)?;
        let places = Told {
            key: if layout.identity.is_some() { load(layout.identity, 8)? } else { id },
            thread: load(layout.thread, 8)?,
            time: load(layout.time, 8)?,
            cpu: load(layout.cpu, 4)?,
            length: load(Some(raw), 4)?,
            id,
            raw: u64::from(raw) + 4,
        };
        let quick = decoder.quick(usize::from(raw) + 4).take(MOST_EVENTS);
        let steps: Vec<_> = quick.map(|(id, slot, quick)| Step { id: id as u64, slot, quick }).collect();
        if steps.is_empty() {
            return None;
        }
        let number = |id: u64| steps.iter().position(|step| step.id == id).map(|at| at as u8 + 1);
        let keys: Vec<_> = if layout.identity.is_some() {
            identities.filter_map(|(identity, id)| Some((identity, number(id)?))).collect()
        } else {
            steps.iter().filter_map(|step| Some((step.id, number(step.id)?))).collect()
        };
        let first = keys.iter().map(|key| key.0).min()?;
        let last = keys.iter().map(|key| key.0).max()?;
        if last - first >= MOST_NUMBERS {
            return None;
        }
        let mut numbers = vec![0; (last - first) as usize + 1];
        keys.iter().for_each(|&(key, number)| numbers[(key - first) as usize] = number);
        Some(Self { places, usual: Usual::is(layout), first, numbers, steps })
    }

    /// Decodes the records in the first `length` of `bytes`, except those at the very end of the memory; returns the
    /// offset of these. `long` decodes a record in the normal way.
    pub(super) fn decode(
        &self,
        bytes: &[u8],
        length: usize,
        slots: usize,
        batch: &mut Batch,
        long: impl FnMut(&[u8], &mut Batch),
    ) -> usize {
        let mut walk = Walk { way: self, batch, occurred: [0; MOST_EVENTS], long };
        let end = match self.usual {
            true => walk.all(&Usual, bytes, length),
            false => walk.all(&self.places, bytes, length),
        };
        let Walk { occurred, batch, .. } = walk;
        batch.counts.resize(slots.max(batch.counts.len()), 0);
        for (step, count) in self.steps.iter().zip(occurred) {
            batch.counts[step.slot] += count;
        }
        end
    }
}

/// The walk over a chunk.
struct Walk<'w, L> {
    way: &'w ShortWay,
    batch: &'w mut Batch,
    /// The number of occurrences of each event.
    occurred: [u64; MOST_EVENTS],
    long: L,
}

impl<L: FnMut(&[u8], &mut Batch)> Walk<'_, L> {
    fn all(&mut self, places: &impl Places, bytes: &[u8], length: usize) -> usize {
        let behind = bytes.len() - length;
        let mut rest = bytes;
        // Most records are of the same thread as the one before.
        let mut pen = Pen::default();
        // The window may extend beyond the record; the bytes there are ignored.
        while let Some(window) = rest.first_chunk() {
            let head = HEAD.read(window);
            let size = (head >> 48) as usize;
            if size < HEADER || size + behind > rest.len() {
                break;
            }
            match self.sample(head, window, places) {
                Some((member, event)) => {
                    self.batch.last_of_cpu.set(event.cpu, event.time_ns);
                    if pen.member != Some(member) {
                        self.take_up(&mut pen, member);
                    }
                    pen.run.push(&event);
                }
                None => {
                    self.put_down(&mut pen);
                    (self.long)(&rest[..size], self.batch);
                }
            }
            rest = &rest[size..];
        }
        self.put_down(&mut pen);
        bytes.len() - rest.len()
    }

    /// Decodes a record, if the fast path can.
    #[inline(always)]
    fn sample(&mut self, head: u64, window: &Window, places: &impl Places) -> Option<(Member, Event)> {
        let length = places.length(window);
        if head as u32 != kind::SAMPLE || places.raw() + length > head >> 48 {
            return None;
        }
        let key = places.key(window).wrapping_sub(self.way.first);
        let number = usize::from(*self.way.numbers.get(key as usize)?).wrapping_sub(1);
        let Step { id, quick, .. } = self.way.steps.get(number)?;
        let mut event = Event { time_ns: 0, value: 0, extra: 0, thread: 0, cpu: 0, kind: Kind::Exit };
        if *id != places.id(window) || length < u64::from(quick.length) || !quick.fill(window, &mut event) {
            return None;
        }
        self.occurred[number % MOST_EVENTS] += 1;
        let member = Member::new(places.thread(window));
        event.thread = member.thread();
        event.time_ns = places.time(window);
        event.cpu = places.cpu(window) as u16;
        Some((member, event))
    }

    #[inline(never)]
    fn take_up(&mut self, pen: &mut Pen, member: Member) {
        self.put_down(pen);
        pen.number = self.batch.run_of(member);
        pen.member = Some(member);
        pen.run = mem::take(self.batch.run(pen.number));
    }

    #[inline(never)]
    fn put_down(&mut self, pen: &mut Pen) {
        if pen.member.take().is_some() {
            *self.batch.run(pen.number) = mem::take(&mut pen.run);
        }
    }
}

/// The run to which events are added.
#[derive(Default)]
struct Pen {
    member: Option<Member>,
    number: usize,
    run: Run<Member>,
}
