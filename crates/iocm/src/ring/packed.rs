//! Packed virtqueues (VIRTIO 1.3, 2.8).

mod resume;

use super::chain::Chain;
use super::{
    DESCRIPTOR, Descriptor, INDIRECT, LARGEST, NEXT, RingError, RingFeatures, RingLayout, WRITE, part_of_ring,
};
use crate::memory::GuestMemory;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering, fence};

pub use resume::RawDescriptor;

/// `VIRTQ_DESC_F_AVAIL`.
const AVAILABLE: u16 = 1 << 7;
/// `VIRTQ_DESC_F_USED`.
const USED: u16 = 1 << 15;
/// Our mark of a used entry that is complete, and that the driver shall not see yet: a bit that no driver sets (2.8.1), in
/// an entry whose flags are otherwise those of an available one. The next back-end finds it if this one is killed.
const HELD: u16 = 1 << 3;

/// `RING_EVENT_FLAGS_ENABLE`, `_DISABLE`, `_DESC` (2.8.10).
const EVENTS_ON: u16 = 0;
const EVENTS_OFF: u16 = 1;
const EVENTS_AT: u16 = 2;

/// An index with the wrap counter, which tells the entries of one lap from those of the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Lap {
    at: u16,
    wrap: bool,
}

impl Lap {
    /// Parses the form of vhost-user and of the event suppression structures: the index, and the wrap counter in the
    /// highest bit.
    fn from_bits(bits: u16) -> Self {
        Self { at: bits & !(1 << 15), wrap: bits >> 15 != 0 }
    }

    fn bits(self) -> u16 {
        self.at | u16::from(self.wrap) << 15
    }

    #[inline]
    fn forward(self, count: u16, size: u16) -> Self {
        let at = self.at + count;
        if at >= size { Self { at: at - size, wrap: !self.wrap } } else { Self { at, ..self } }
    }

    #[inline]
    fn back(self, count: u16, size: u16) -> Self {
        match self.at.checked_sub(count) {
            Some(at) => Self { at, ..self },
            None => Self { at: self.at + size - count, wrap: !self.wrap },
        }
    }
}

/// The guest addresses of what the device writes, if writes are logged. vhost-user only passes that of the device area; QEMU
/// logs nothing for the descriptors itself.
#[derive(Debug, Clone, Copy)]
struct Logged {
    descriptors: u64,
    /// Unchecked, as the front-end sent it.
    device: u64,
}

/// A packed ring.
#[derive(Debug)]
pub struct PackedRing {
    /// Keeps the memory of all pointers mapped.
    memory: Arc<GuestMemory>,
    descriptors: *mut Descriptor,
    /// The driver's event suppression structure: the entry for which it wants a call, and flags.
    driver: *mut u16,
    /// The device's event suppression structure.
    device: *mut u16,
    /// The addresses of the three parts, from the front-end.
    layout: RingLayout,
    logged: Option<Logged>,
    features: RingFeatures,
    size: u16,
    /// The next entry to take.
    next: Lap,
    /// The next used entry.
    given: Lap,
    /// The first used entry that the driver does not see yet, and the flags that make it visible. It has [`HELD`] until then.
    held: Option<(Lap, u16)>,
    /// The number of used entries since the driver was last called, to know whether it asked for one of them.
    fresh: u16,
    /// The number of descriptors of each buffer id; 0 when it is not in use.
    taken: Box<[u16]>,
    /// The ring keeps its place for the next back-end: see [`Self::rest`].
    keeps_place: bool,
}

// SAFETY: as for a split ring.
unsafe impl Send for PackedRing {}

/// Translates the addresses of the descriptors and of both event suppression structures.
fn parts(memory: &GuestMemory, layout: &RingLayout, size: u32) -> Result<[*mut u8; 3], RingError> {
    let part = |what, user, size, alignment| part_of_ring(memory, what, user, size, alignment);
    Ok([
        part("descriptors", layout.descriptors, DESCRIPTOR * size, 16)?,
        part("driver's event structure", layout.driver, 4, 4)?,
        part("device's event structure", layout.device, 4, 4)?,
    ])
}

impl PackedRing {
    /// A ring that continues at `base`: the next available entry in the lower half, the next used one in the upper.
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
        let entries = u16::try_from(size).ok().filter(|size| (1..=LARGEST).contains(size));
        let entries = entries.ok_or(RingError::Size(size))?;
        let next = Lap::from_bits(base as u16);
        let given = match base >> 16 {
            // DPDK's virtio-user driver leaves the upper half out. As an index it would be a lap behind.
            0 if next.wrap => next,
            used => Lap::from_bits(used as u16),
        };
        if next.at >= entries || given.at >= entries {
            return Err(RingError::Index(next.at.max(given.at)));
        }
        let [descriptors, driver, device] = parts(memory, layout, size)?;
        let logged = layout.logged.and_then(|device| {
            let ring = memory.of_user(layout.descriptors, DESCRIPTOR)?;
            Some(Logged { descriptors: ring.guest, device })
        });
        Ok(Self {
            memory: Arc::clone(memory),
            descriptors: descriptors.cast(),
            driver: driver.cast(),
            device: device.cast(),
            layout: *layout,
            logged,
            features,
            size: entries,
            next,
            given,
            held: None,
            fresh: 0,
            taken: vec![0; usize::from(entries)].into_boxed_slice(),
            keeps_place: false,
        })
    }

    /// A word of an event suppression structure: 0 for the index, 1 for the flags.
    #[inline]
    fn event(&self, pointer: *mut u16, word: usize) -> &AtomicU16 {
        debug_assert!(word < 2);
        // SAFETY: the structure was checked to have both words and to be aligned; its users are atomic.
        unsafe { AtomicU16::from_ptr(pointer.wrapping_add(word)) }
    }

    #[inline]
    fn entry(&self, at: u16) -> *mut Descriptor {
        debug_assert!(at < self.size);
        self.descriptors.wrapping_add(usize::from(at))
    }

    /// The flags of a descriptor, by which driver and device hand it over.
    #[inline]
    fn flags(&self, at: u16) -> &AtomicU16 {
        // SAFETY: the ring was checked to have `size` entries, and `at` is below it; flags are in the last two bytes.
        unsafe { AtomicU16::from_ptr(self.entry(at).cast::<u16>().wrapping_add(7)) }
    }

    #[inline]
    fn is_available(flags: u16, wrap: bool) -> bool {
        (flags & AVAILABLE != 0) == wrap && (flags & USED != 0) != wrap
    }

    /// See [`super::Ring::pop`].
    #[inline]
    pub fn pop(&mut self, chain: &mut Chain) -> Result<bool, RingError> {
        if !self.has_more() {
            return Ok(false);
        }
        let count = self.collect(chain)?;
        let id = chain.id;
        let taken = self.taken.get_mut(usize::from(id)).ok_or(RingError::Index(id))?;
        if *taken != 0 {
            return Err(RingError::InUse(id));
        }
        *taken = count;
        self.next = self.next.forward(count, self.size);
        Ok(true)
    }

    fn descriptor(&self, at: u16) -> Descriptor {
        // SAFETY: `at` is below the ring's size; the guest may write meanwhile, so it is taken once.
        unsafe { self.entry(at).read_volatile() }
    }

    /// The index of the next used entry, with the wrap counter in the highest bit.
    #[must_use]
    pub fn given(&self) -> u16 {
        self.given.bits()
    }

    /// Collects the chain at `next`. Returns the number of its descriptors.
    fn collect(&self, chain: &mut Chain) -> Result<u16, RingError> {
        chain.clear(0, &self.memory);
        let mut at = self.next;
        for count in 1..=self.size {
            let descriptor = self.descriptor(at.at);
            let [id, flags] = descriptor.halves;
            // The buffer id is that of the last descriptor (2.8.6).
            chain.id = id;
            if flags & INDIRECT != 0 {
                if count > 1 {
                    return Err(RingError::Indirect);
                }
                self.collect_indirect(&descriptor, flags, chain)?;
                return Ok(1);
            }
            chain.add(&self.memory, &descriptor, flags)?;
            if flags & NEXT == 0 {
                return Ok(count);
            }
            at = at.forward(1, self.size);
        }
        Err(RingError::TooLong(self.size))
    }

    fn collect_indirect(&self, table: &Descriptor, flags: u16, chain: &mut Chain) -> Result<(), RingError> {
        let entries = Chain::indirect(table, flags, self.features.indirect)?;
        let outside = RingError::OutOfMemory { guest: table.guest, size: table.size };
        let part = self.memory.one_part(table.guest, table.size).ok_or(outside)?;
        for index in 0..entries as usize {
            // SAFETY: the table has `entries` descriptors within one mapped piece; it need not be aligned.
            let descriptor =
                unsafe { Descriptor::take(part.pointer.cast::<Descriptor>().wrapping_add(index)) };
            // The whole table belongs to the buffer: of its flags only `WRITE` counts (2.8.7).
            chain.add(&self.memory, &descriptor, descriptor.halves[1] & WRITE)?;
        }
        Ok(())
    }

    /// See [`super::Ring::push`]. Ids that are not in use are ignored.
    #[inline]
    pub fn push(&mut self, id: u16, written: u32) {
        let Some(taken) = self.taken.get_mut(usize::from(id)).filter(|taken| **taken != 0) else { return };
        let count = std::mem::take(taken);
        let at = self.given;
        let mark = if at.wrap { AVAILABLE | USED } else { 0 };
        let flags = if written > 0 { mark | WRITE } else { mark };
        // The flags of the first entry are written last: they make all that follow visible (2.8.13).
        let shown = if self.held.is_none() { flags ^ USED | HELD } else { flags };
        let word = u64::from(written) | u64::from(id) << 32 | u64::from(shown) << 48;
        // SAFETY: the length, the buffer id and the flags are the second half of an entry, which is aligned to 16. They are
        // one store, so a kill leaves the driver's descriptor or a whole used entry.
        unsafe { AtomicU64::from_ptr(self.entry(at.at).cast::<u64>().wrapping_add(1)) }
            .store(word, Ordering::Release);
        match self.held {
            None => self.held = Some((at, flags)),
            Some(_) => self.wrote(at.at),
        }
        self.given = at.forward(count, self.size);
        // A driver can have more entries in use than the ring has, if it makes them available again before they are used.
        self.fresh = self.fresh.saturating_add(count);
    }

    /// See [`super::Ring::put_back`]. Ids that are not in use are ignored.
    #[inline]
    pub(crate) fn put_back(&mut self, id: u16) {
        let Some(taken) = self.taken.get_mut(usize::from(id)) else { return };
        let count = std::mem::take(taken);
        self.next = self.next.back(count, self.size);
    }

    /// See [`super::Ring::publish`].
    #[inline]
    pub fn publish(&mut self) -> bool {
        let Some((first, flags)) = self.held.take() else { return false };
        if self.keeps_place {
            self.keep_place();
        }
        self.flags(first.at).store(flags, Ordering::Release);
        self.wrote(first.at);
        let fresh = std::mem::take(&mut self.fresh);
        fence(Ordering::SeqCst);
        match self.event(self.driver, 1).load(Ordering::Acquire) & 0b11 {
            EVENTS_ON => true,
            EVENTS_AT if self.features.event_index => {
                let wanted = Lap::from_bits(self.event(self.driver, 0).load(Ordering::Relaxed));
                self.passed(wanted, fresh)
            }
            _ => false,
        }
    }

    /// Tests whether `wanted` is among the last `fresh` used entries.
    fn passed(&self, wanted: Lap, fresh: u16) -> bool {
        let size = u32::from(self.size);
        let back = match wanted.wrap == self.given.wrap {
            true => u32::from(self.given.at).checked_sub(u32::from(wanted.at)),
            false => (u32::from(self.given.at) + size).checked_sub(u32::from(wanted.at)),
        };
        back.is_some_and(|back| (1..=u32::from(fresh)).contains(&back))
    }

    /// Logs the write of a descriptor.
    #[inline]
    fn wrote(&self, at: u16) {
        if let Some(logged) = self.logged {
            let at = logged.descriptors + u64::from(at) * u64::from(DESCRIPTOR);
            self.memory.wrote(at, u64::from(DESCRIPTOR));
        }
    }

    /// See [`super::Ring::has_more`].
    #[inline]
    #[must_use]
    pub(crate) fn has_more(&self) -> bool {
        Self::is_available(self.flags(self.next.at).load(Ordering::Acquire), self.next.wrap)
    }

    /// See [`super::Ring::enable_kicks`].
    #[inline]
    pub fn enable_kicks(&mut self) -> bool {
        // The place of buffers that are put back is not the one to be kept.
        let at_entry = self.features.event_index && (!self.keeps_place || self.next == self.given);
        let flags = if at_entry { EVENTS_AT } else { EVENTS_ON };
        if at_entry {
            self.event(self.device, 0).store(self.next.bits(), Ordering::Relaxed);
            // The flags make the index valid.
            fence(Ordering::Release);
        }
        self.say(flags);
        fence(Ordering::SeqCst);
        self.has_more()
    }

    /// See [`super::Ring::disable_kicks`].
    #[inline]
    pub fn disable_kicks(&mut self) {
        self.say(EVENTS_OFF);
    }

    /// Writes the flags of the device's event suppression structure, and logs the whole structure.
    fn say(&self, flags: u16) {
        self.event(self.device, 1).store(flags, Ordering::Relaxed);
        if let Some(logged) = self.logged {
            self.memory.wrote(logged.device, 4);
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
        let [descriptors, driver, device] = parts(memory, &self.layout, u32::from(self.size))?;
        if (descriptors.cast(), driver.cast(), device.cast()) != (self.descriptors, self.driver, self.device)
        {
            return Err(RingError::Unmapped("parts", self.layout.descriptors));
        }
        self.memory = Arc::clone(memory);
        Ok(())
    }

    /// See [`super::Ring::base`].
    #[must_use]
    pub fn base(&self) -> u32 {
        u32::from(self.next.bits()) | u32::from(self.given.bits()) << 16
    }

    /// See [`super::Ring::size`].
    #[must_use]
    pub fn size(&self) -> u16 {
        self.size
    }
}
