//! Continuing a ring after another back-end: one that took requests and did not complete them, or one whose end the front-end
//! did not see.

use super::{AVAILABLE, HELD, INDIRECT, Lap, NEXT, PackedRing, USED, WRITE};
use crate::ring::chain::Chain;
use crate::ring::{Descriptor, RingError};
use std::sync::atomic::Ordering;

/// A descriptor as a packed ring has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawDescriptor {
    /// The guest address.
    pub guest: u64,
    /// Bytes.
    pub size: u32,
    /// The buffer id.
    pub id: u16,
    /// Flags.
    pub flags: u16,
}

impl PackedRing {
    /// The descriptors of the chain that was taken last, whose buffer id is `id`.
    #[must_use]
    pub(crate) fn last_taken(&self, id: u16) -> Vec<RawDescriptor> {
        let count = self.taken.get(usize::from(id)).copied().unwrap_or(0);
        let back = Lap { at: (self.next.at + self.size - count) % self.size, wrap: true };
        let slots = (0..count).map(|number| back.forward(number, self.size).at);
        let raw = slots.map(|at| {
            let Descriptor { guest, size, halves: [id, flags] } = self.descriptor(at);
            RawDescriptor { guest, size, id, flags }
        });
        let mut raw: Vec<_> = raw.collect();
        if let Some(last) = raw.last_mut() {
            last.id = id;
        }
        raw
    }

    /// Tests whether the driver has got back the buffer at this index in this lap: it sees a used entry there, or has made
    /// the descriptor available for the next lap since.
    #[must_use]
    pub(crate) fn was_seen_at(&self, at: u16, wrap: bool) -> bool {
        at < self.size && !Self::is_available(self.flags(at).load(Ordering::Acquire), wrap)
    }

    /// Tests whether the driver can see a used entry at this index in this lap.
    fn was_given_at(&self, at: u16, wrap: bool) -> bool {
        let flags = if at < self.size { self.flags(at).load(Ordering::Acquire) } else { return false };
        (flags & AVAILABLE != 0) == wrap && (flags & USED != 0) == wrap
    }

    /// Continues after another back-end: `given` is the next used entry, and `left` are the requests that it did not
    /// complete.
    ///
    /// # Errors
    ///
    /// [`RingError`] when the requests contradict the ring.
    pub fn resume(&mut self, given: u16, left: &[(u16, u16)]) -> Result<(), RingError> {
        let given = Lap::from_bits(given);
        let count: u32 = left.iter().map(|(_, count)| u32::from(*count)).sum();
        if given.at >= self.size || count > u32::from(self.size) {
            return Err(RingError::Index(given.at));
        }
        (self.given, self.next) = (given, given.forward(count as u16, self.size));
        // Used entries that the other back-end wrote but did not publish would become visible with the next one.
        for number in 0..count as u16 {
            let slot = given.forward(number, self.size);
            if self.was_given_at(slot.at, slot.wrap) {
                let flags = if slot.wrap { AVAILABLE } else { USED };
                self.flags(slot.at).store(flags, Ordering::Relaxed);
            }
        }
        for (id, count) in left {
            let taken = self.taken.get_mut(usize::from(*id)).ok_or(RingError::Index(*id))?;
            if std::mem::replace(taken, *count) != 0 || *count == 0 {
                return Err(RingError::InUse(*id));
            }
        }
        Ok(())
    }

    /// Continues for a device that has no buffers while its queue is stopped, and keeps the place from now on. `false` if
    /// neither the place that was kept nor the front-end's fits the ring.
    ///
    /// A front-end learns the place only from `VHOST_USER_GET_VRING_BASE`. After a kill QEMU says that of the last orderly
    /// start (hw/virtio/virtio.c, `virtio_queue_packed_restore_last_avail_idx`). So it is kept in the guest's memory: as the
    /// offset in the device's event suppression structure, which a driver reads only while it shall kick for that entry
    /// (2.8.10). Other back-ends leave an old place there.
    pub(crate) fn rest(&mut self) -> bool {
        self.keeps_place = true;
        let kept = Lap::from_bits(self.event(self.device, 0).load(Ordering::Acquire));
        let held = self.held_entry(kept);
        let places = [kept, self.given, self.next];
        let find = |sure| places.into_iter().find(|place| self.fits(*place) == Some(sure));
        let fitting = || held.map(|(_, end)| end).or_else(|| find(true)).or_else(|| find(false));
        // While the ring is read, the driver may make buffers available, until it is full.
        let Some(place) = (0..100).find_map(|_| fitting()) else { return false };
        (self.next, self.given) = (place, place);
        // Before the entry becomes visible, as in `publish`.
        self.keep_place();
        if let Some((first, _)) = held {
            let mark = if first.wrap { AVAILABLE | USED } else { 0 };
            let flags = self.flags(first.at);
            flags.store(mark | flags.load(Ordering::Relaxed) & WRITE, Ordering::Release);
            self.wrote(first.at);
        }
        true
    }

    /// Writes the place for [`Self::rest`].
    pub(super) fn keep_place(&self) {
        self.event(self.device, 0).store(self.given.bits(), Ordering::Relaxed);
        if let Some(logged) = self.logged {
            self.memory.wrote(logged.device, 4);
        }
    }

    /// The entry that a back-end held back when it was killed, and the place after its used entries. The kept place is one of
    /// both.
    fn held_entry(&self, kept: Lap) -> Option<(Lap, Lap)> {
        if kept.at >= self.size {
            return None;
        }
        let is_held = |slot: &Lap| {
            let flags = self.flags(slot.at).load(Ordering::Acquire);
            flags & HELD != 0 && Self::is_available(flags, slot.wrap)
        };
        let first = (0..=self.size).map(|count| kept.back(count, self.size)).find(is_held)?;
        let end = self.end_of_used(first);
        (kept == first || kept == end).then_some((first, end))
    }

    /// The place after the used entries from `first` on, none of which the driver has seen.
    fn end_of_used(&self, first: Lap) -> Lap {
        let (mut place, mut left) = (first, self.size);
        loop {
            // The driver has not got the buffer id back, so a new buffer cannot have it.
            let count = 1 + self.rest_of_chain(place, left - 1);
            left -= count;
            place = place.forward(count, self.size);
            if left == 0 || !self.was_given_at(place.at, place.wrap) {
                return place;
            }
        }
    }

    /// The number of descriptors, at most `limit`, that are left of a used chain: of these only the first one is written, and
    /// the last one has the same buffer id.
    fn rest_of_chain(&self, used: Lap, limit: u16) -> u16 {
        let id = self.descriptor(used.at).halves[0];
        let mut slots = (1..=limit).map(|count| (count, used.forward(count, self.size)));
        let last = slots.find_map(|(count, slot)| {
            let [last, flags] = self.descriptor(slot.at).halves;
            match Self::is_available(flags, slot.wrap) {
                true if flags & NEXT != 0 => None,
                is_whole => Some(if is_whole && last == id { count } else { 0 }),
            }
        });
        last.unwrap_or(0)
    }

    /// Tests whether the next used entry can be here, and the driver has seen all before it: from here on come the available
    /// descriptors, and then those of the last lap. `Some(false)` if this is doubtful.
    fn fits(&self, place: Lap) -> Option<bool> {
        if place.at >= self.size {
            return None;
        }
        let slot = |count: u16| {
            let Lap { at, wrap } = place.forward(count, self.size);
            (self.flags(at).load(Ordering::Acquire), wrap)
        };
        let is_available =
            |count: &u16| matches!(slot(*count), (flags, wrap) if Self::is_available(flags, wrap));
        let is_left = |count: &u16| matches!(slot(*count), (flags, wrap) if Self::is_available(flags, !wrap));
        let has_next = |count: u16| slot(count).0 & NEXT != 0;
        let mut count = (0..self.size).take_while(is_available).count() as u16;
        if self.is_of_last_lap(place, count).is_some() {
            return Some(true);
        }
        // The driver may be making a chain available: it writes the first flags last.
        let tail = (count + 1..self.size).take_while(is_available).count() as u16;
        if tail > 0 && (count + 1..count + tail).all(has_next) {
            count += 1 + tail;
        }
        // A chain of the last lap may have lost its used entry to an available descriptor. In a ring without chains, an
        // available buffer before this place looks the same.
        let mut left = (count..self.size).take_while(is_left).skip_while(|count| has_next(*count));
        count = left.next().map_or(count, |last| last + 1);
        let has_chains = self.is_of_last_lap(place, count)?;
        let is_of_chain = |count: u16| has_next(count) && (is_available(&count) || is_left(&count));
        Some(has_chains || (0..self.size).any(is_of_chain))
    }

    /// Tests whether all from the descriptor `count` after a place on are of the last lap: used, the rest of a used chain, or
    /// never used. If so, tells whether there is such a rest. That of the last chain does not count: the driver may have taken
    /// the buffer before back, and made available a new one with its id, where the next used entry belongs then.
    fn is_of_last_lap(&self, place: Lap, mut count: u16) -> Option<bool> {
        let mut has_chains = false;
        while count < self.size {
            let Lap { at, wrap } = place.forward(count, self.size);
            if !self.was_given_at(at, !wrap) {
                return None;
            }
            let rest = self.rest_of_chain(Lap { at, wrap: !wrap }, self.size - count - 1);
            count += 1 + rest;
            has_chains |= rest > 0 && count < self.size;
        }
        Some(has_chains)
    }

    /// Collects a chain again from its recorded descriptors.
    ///
    /// # Errors
    ///
    /// Those of [`Ring::pop`](crate::ring::Ring::pop).
    pub(crate) fn collect_again(
        &self,
        id: u16,
        raw: &[RawDescriptor],
        chain: &mut Chain,
    ) -> Result<(), RingError> {
        chain.clear(id, &self.memory);
        for RawDescriptor { guest, size, flags, .. } in raw.iter().copied() {
            let descriptor = Descriptor { guest, size, halves: [id, flags] };
            if flags & INDIRECT != 0 {
                return match raw.len() {
                    1 => self.collect_indirect(&descriptor, flags, chain),
                    _ => Err(RingError::Indirect),
                };
            }
            chain.add(&self.memory, &descriptor, flags)?;
        }
        Ok(())
    }
}
