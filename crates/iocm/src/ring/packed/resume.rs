//! Continuing a ring after another back-end: one that took requests and did not complete them, or one whose end the front-end
//! did not see.

use super::{AVAILABLE, INDIRECT, Lap, PackedRing, USED};
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

    /// Tests whether the driver can see a used entry at this index in this lap.
    #[must_use]
    pub(crate) fn was_given_at(&self, at: u16, wrap: bool) -> bool {
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
