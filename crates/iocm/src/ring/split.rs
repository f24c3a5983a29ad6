//! Split virtqueues (VIRTIO 1.3, 2.7).

use super::chain::Chain;
use super::{
    DESCRIPTOR, Descriptor, INDIRECT, LARGEST, NEXT, RingError, RingFeatures, RingLayout, part_of_ring,
};
use crate::memory::GuestMemory;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering, fence};

/// `VIRTQ_AVAIL_F_NO_INTERRUPT`.
const NO_CALLS: u16 = 1;
/// `VIRTQ_USED_F_NO_NOTIFY`.
const NO_KICKS: u16 = 1;

/// A split ring.
#[derive(Debug)]
pub struct SplitRing {
    /// Keeps the memory of all pointers mapped.
    memory: Arc<GuestMemory>,
    descriptors: *const Descriptor,
    /// `flags`, `idx`, `ring[size]`, `used_event`.
    available: *mut u16,
    /// `flags`, `idx`, `ring[size]` of pairs of 32 bits, `avail_event`.
    used: *mut u16,
    /// The addresses of the three parts, from the front-end.
    layout: RingLayout,
    /// The guest address of the used ring, if writes to it are logged: unchecked, as the front-end sent it.
    logged: Option<u64>,
    features: RingFeatures,
    size: u16,
    /// The next available entry to take.
    next: u16,
    /// The driver's index when it was last read: entries before it can be taken without reading it again.
    seen: u16,
    /// The next used entry to write.
    given: u16,
    /// The used index as the driver sees it.
    published: u16,
}

// SAFETY: the pointers are into memory that `memory` keeps mapped and that any thread may use.
unsafe impl Send for SplitRing {}

/// Translates the addresses of the descriptors, the available ring and the used ring.
fn parts(
    memory: &GuestMemory,
    layout: &RingLayout,
    size: u32,
    features: RingFeatures,
) -> Result<[*mut u8; 3], RingError> {
    let part = |what, user, size, alignment| part_of_ring(memory, what, user, size, alignment);
    // The event index is only there if it was negotiated.
    let event = if features.event_index { 2 } else { 0 };
    Ok([
        part("descriptors", layout.descriptors, DESCRIPTOR * size, 16)?,
        part("available entries", layout.driver, 4 + 2 * size + event, 2)?,
        part("used entries", layout.device, 4 + 8 * size + event, 4)?,
    ])
}

impl SplitRing {
    /// A ring that continues at the available index `base`.
    ///
    /// # Errors
    /// [`RingError::Size`] and [`RingError::Unmapped`].
    pub fn new(
        memory: &Arc<GuestMemory>,
        layout: &RingLayout,
        size: u32,
        base: u32,
        features: RingFeatures,
    ) -> Result<Self, RingError> {
        let entries = u16::try_from(size).ok().filter(|size| size.is_power_of_two() && *size <= LARGEST);
        let entries = entries.ok_or(RingError::Size(size))?;
        let [descriptors, available, used] = parts(memory, layout, size, features)?;
        let mut ring = Self {
            memory: Arc::clone(memory),
            descriptors: descriptors.cast(),
            available: available.cast(),
            used: used.cast(),
            layout: *layout,
            logged: layout.logged,
            features,
            size: entries,
            next: base as u16,
            seen: base as u16,
            given: 0,
            published: 0,
        };
        // Only the ring has the used index: vhost-user does not pass it.
        ring.given = ring.used_cell(1).load(Ordering::Acquire);
        ring.published = ring.given;
        Ok(ring)
    }

    /// A 16-bit word of the available ring.
    #[inline]
    fn available_cell(&self, word: usize) -> &AtomicU16 {
        debug_assert!(word < 3 + usize::from(self.size));
        // SAFETY: the part was checked to have this word, and to be aligned; all its users are atomic.
        unsafe { AtomicU16::from_ptr(self.available.wrapping_add(word)) }
    }

    /// A 16-bit word of the used ring.
    #[inline]
    fn used_cell(&self, word: usize) -> &AtomicU16 {
        debug_assert!(word < 3 + 4 * usize::from(self.size));
        // SAFETY: as of `available_cell`.
        unsafe { AtomicU16::from_ptr(self.used.wrapping_add(word)) }
    }

    #[inline]
    fn slot(&self, index: u16) -> usize {
        usize::from(index & (self.size - 1))
    }

    /// Does the same as [`super::Ring::pop`] for the usual chain, one descriptor whose buffer is one piece of memory.
    /// `None` for others and for violations, which [`Self::pop`] handles.
    #[inline]
    pub(crate) fn pop_usual(&mut self, chain: &mut Chain) -> Option<bool> {
        if self.next == self.seen {
            let seen = self.available_cell(1).load(Ordering::Acquire);
            match seen.wrapping_sub(self.next) {
                0 => return Some(false),
                available if available > self.size => return None,
                _ => self.seen = seen,
            }
        }
        let head = self.available_cell(2 + self.slot(self.next)).load(Ordering::Relaxed);
        if head >= self.size {
            return None;
        }
        // SAFETY: as in `collect`, which reads it again if need be.
        let descriptor = unsafe { self.descriptors.wrapping_add(usize::from(head)).read_volatile() };
        let [flags, _] = descriptor.halves;
        if flags & (INDIRECT | NEXT) != 0 || !chain.set(head, &self.memory, &descriptor, flags) {
            return None;
        }
        self.next = self.next.wrapping_add(1);
        Some(true)
    }

    /// See [`super::Ring::pop`].
    #[inline]
    pub fn pop(&mut self, chain: &mut Chain) -> Result<bool, RingError> {
        if self.next == self.seen {
            self.seen = self.available_cell(1).load(Ordering::Acquire);
            let available = self.seen.wrapping_sub(self.next);
            if available == 0 {
                return Ok(false);
            }
            if available > self.size {
                return Err(RingError::TooManyAvailable(available, self.size));
            }
        }
        let head = self.available_cell(2 + self.slot(self.next)).load(Ordering::Relaxed);
        self.collect(head, chain)?;
        self.next = self.next.wrapping_add(1);
        Ok(true)
    }

    /// Collects again a chain that was taken and never used.
    ///
    /// # Errors
    ///
    /// Those of [`super::Ring::pop`].
    pub fn collect(&self, head: u16, chain: &mut Chain) -> Result<(), RingError> {
        chain.clear(head, &self.memory);
        let mut index = head;
        for _ in 0..self.size {
            if index >= self.size {
                return Err(RingError::Index(index));
            }
            // SAFETY: the table was checked to have `size` descriptors, and the number is below it. The guest may write
            // to it meanwhile: a volatile read takes it once.
            let descriptor = unsafe { self.descriptors.wrapping_add(usize::from(index)).read_volatile() };
            let [flags, next] = descriptor.halves;
            if flags & INDIRECT != 0 {
                return self.collect_indirect(&descriptor, flags, chain);
            }
            chain.add(&self.memory, &descriptor, flags)?;
            if flags & NEXT == 0 {
                return Ok(());
            }
            index = next;
        }
        Err(RingError::TooLong(self.size))
    }

    fn collect_indirect(&self, table: &Descriptor, flags: u16, chain: &mut Chain) -> Result<(), RingError> {
        let entries = Chain::indirect(table, flags, self.features.indirect)?;
        let outside = RingError::OutOfMemory { guest: table.guest, size: table.size };
        let part = self.memory.one_part(table.guest, table.size).ok_or(outside)?;
        let descriptors = part.pointer.cast::<Descriptor>();
        let mut index = 0;
        for _ in 0..entries {
            if index >= entries {
                return Err(RingError::Index(index as u16));
            }
            // SAFETY: the table has `entries` descriptors within one mapped piece; it need not be aligned.
            let descriptor = unsafe { Descriptor::take(descriptors.wrapping_add(index as usize)) };
            let [flags, next] = descriptor.halves;
            if flags & INDIRECT != 0 {
                return Err(RingError::Indirect);
            }
            chain.add(&self.memory, &descriptor, flags)?;
            if flags & NEXT == 0 {
                return Ok(());
            }
            index = u32::from(next);
        }
        Err(RingError::TooLong(entries as u16))
    }

    /// See [`super::Ring::push`].
    #[inline]
    pub fn push(&mut self, id: u16, written: u32) {
        let word = 2 + 4 * self.slot(self.given);
        debug_assert!(word + 4 <= 3 + 4 * usize::from(self.size));
        let entry = self.used.wrapping_add(word).cast::<u32>();
        // An entry is two little-endian words of 32 bits.
        for (at, value) in [u32::from(id), written].into_iter().enumerate() {
            // SAFETY: the part was checked to have this entry, and it and its entries are aligned to four bytes; all
            // accesses are atomic.
            unsafe { AtomicU32::from_ptr(entry.wrapping_add(at)) }.store(value.to_le(), Ordering::Relaxed);
        }
        if let Some(logged) = self.logged {
            self.memory.wrote(logged.saturating_add(2 * word as u64), 8);
        }
        self.given = self.given.wrapping_add(1);
    }

    /// See [`super::Ring::put_back`].
    #[inline]
    pub(crate) fn put_back(&mut self) {
        self.next = self.next.wrapping_sub(1);
    }

    /// See [`super::Ring::publish`].
    #[inline]
    pub fn publish(&mut self) -> bool {
        if self.given == self.published {
            return false;
        }
        self.used_cell(1).store(self.given, Ordering::Release);
        if let Some(logged) = self.logged {
            self.memory.wrote(logged.saturating_add(2), 2);
        }
        let (old, new) = (self.published, self.given);
        self.published = new;
        // The driver writes its event index before it reads the used index (2.7.7.2), so that one side sees the other.
        fence(Ordering::SeqCst);
        if self.features.event_index {
            let event = self.available_cell(2 + usize::from(self.size)).load(Ordering::Relaxed);
            new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
        } else {
            self.available_cell(0).load(Ordering::Relaxed) & NO_CALLS == 0
        }
    }

    /// See [`super::Ring::has_more`].
    #[inline]
    #[must_use]
    pub(crate) fn has_more(&self) -> bool {
        self.next != self.seen || self.next != self.available_cell(1).load(Ordering::Acquire)
    }

    /// See [`super::Ring::enable_kicks`].
    #[inline]
    pub fn enable_kicks(&mut self) -> bool {
        let (word, value) =
            if self.features.event_index { (2 + 4 * usize::from(self.size), self.next) } else { (0, 0) };
        self.say(word, value);
        fence(Ordering::SeqCst);
        self.has_more()
    }

    /// See [`super::Ring::disable_kicks`]. With event indexes there is nothing to write: the driver kicks only for the
    /// entry that was named.
    #[inline]
    pub fn disable_kicks(&mut self) {
        if !self.features.event_index {
            self.say(0, NO_KICKS);
        }
    }

    fn say(&self, word: usize, value: u16) {
        self.used_cell(word).store(value, Ordering::Relaxed);
        if let Some(logged) = self.logged {
            self.memory.wrote(logged.saturating_add(2 * word as u64), 2);
        }
    }

    /// See [`super::Ring::memory`].
    #[must_use]
    pub const fn memory(&self) -> &Arc<GuestMemory> {
        &self.memory
    }

    /// See [`super::Ring::use_memory`].
    ///
    /// # Errors
    ///
    /// [`RingError::Unmapped`].
    pub(crate) fn use_memory(&mut self, memory: &Arc<GuestMemory>) -> Result<(), RingError> {
        let [descriptors, available, used] =
            parts(memory, &self.layout, u32::from(self.size), self.features)?;
        let are = (descriptors.cast_const().cast(), available.cast(), used.cast());
        if are != (self.descriptors, self.available, self.used) {
            return Err(RingError::Unmapped("parts", self.layout.descriptors));
        }
        self.memory = Arc::clone(memory);
        Ok(())
    }

    /// See [`super::Ring::base`].
    #[must_use]
    pub fn base(&self) -> u32 {
        u32::from(self.next)
    }

    /// See [`super::Ring::size`].
    #[must_use]
    pub fn size(&self) -> u16 {
        self.size
    }

    /// The used index as the driver sees it.
    #[must_use]
    pub(crate) fn used_index(&self) -> u16 {
        self.published
    }

    /// Goes back to the available index `base`, to take entries again that were not used.
    pub(crate) fn go_back_to(&mut self, base: u16) {
        self.next = base;
        self.seen = base;
    }
}
