//! A driver of a ring, with the guest's memory.

mod notify;

use crate::memory::{GuestMemory, RegionDescription};
use crate::ring::{Ring, RingError, RingFeatures, RingLayout};
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

/// The address of the guest's memory in the front-end's process.
pub const USER: u64 = 0x7f12_3400_0000;

/// The guest addresses of the ring's parts.
const DESCRIPTORS: u64 = 0x1_0000;
const DRIVER: u64 = 0xa_0000;
const DEVICE: u64 = 0xc_0000;
const TABLES: u64 = 0x10_0000;
/// The first address for buffers; all memory from here on belongs to the test.
pub const DATA: u64 = 0x20_0000;
/// Size of the guest's memory in bytes: room for two rings.
pub const SIZE: u64 = 2 * NEXT;

/// A piece of a buffer: address in the guest, bytes, and whether the device may write it.
pub type Piece = (u64, u32, bool);

/// A driver of one ring, of either layout.
#[derive(Debug)]
pub struct Driver {
    /// The guest's memory.
    pub memory: Arc<GuestMemory>,
    /// The file behind it.
    pub file: File,
    /// The negotiated features.
    pub features: RingFeatures,
    size: u16,
    /// Split: the next available index and the next used one. Packed: indexes with the wrap counter in the highest bit.
    next: u16,
    seen: u16,
    free: Vec<u16>,
    /// Descriptors of each buffer in use.
    counts: Vec<u16>,
    tables: u64,
    /// The distance of its parts from those of the first ring.
    shift: u64,
}

/// The distance of a ring's parts from those of the one before.
pub const NEXT: u64 = 0x80_0000;

impl Driver {
    /// A driver whose ring is empty.
    #[must_use]
    pub fn new(size: u16, features: RingFeatures) -> Self {
        Self::of_several(2, size, features)
    }

    /// The same in a memory with room for this many rings.
    #[must_use]
    pub fn of_several(rings: u64, size: u16, features: RingFeatures) -> Self {
        let bytes = rings * NEXT;
        let file = super::memory_file(bytes);
        let region = RegionDescription { guest: 0, size: bytes, user: USER, offset: 0 };
        let memory = Arc::new(GuestMemory::default().with(region, &file).expect("a region that fits"));
        Self::within(memory, file, size, features, 0)
    }

    /// The driver of another ring in the same memory. The first ring is number 0, and all parts of this one lie
    /// `number` times [`NEXT`] further.
    #[must_use]
    pub fn another(&self, number: u64) -> Self {
        let file = self.file.try_clone().expect("another descriptor");
        Self::within(Arc::clone(&self.memory), file, self.size, self.features, number * NEXT)
    }

    fn within(memory: Arc<GuestMemory>, file: File, size: u16, features: RingFeatures, shift: u64) -> Self {
        let start = if features.packed { 1 << 15 } else { 0 };
        Self {
            memory,
            file,
            features,
            size,
            next: start,
            seen: start,
            free: (0..size).rev().collect(),
            counts: vec![0; usize::from(size)],
            tables: TABLES + shift,
            shift,
        }
    }

    /// The addresses of the ring.
    #[must_use]
    pub fn layout(&self) -> RingLayout {
        RingLayout {
            descriptors: USER + DESCRIPTORS + self.shift,
            driver: USER + DRIVER + self.shift,
            device: USER + DEVICE + self.shift,
            logged: None,
        }
    }

    /// The device's side of the ring, from its start.
    ///
    /// # Errors
    ///
    /// Those of [`Ring::new`].
    pub fn ring(&self) -> Result<Ring, RingError> {
        let base = if self.features.packed { 0x8000_8000 } else { 0 };
        Ring::new(&self.memory, &self.layout(), u32::from(self.size), base, self.features)
    }

    fn pointer(&self, guest: u64, size: u32) -> *mut u8 {
        self.memory.one_part(guest, size).expect("an address in the guest").pointer
    }

    /// A 16-bit word of the guest's memory.
    #[must_use]
    pub fn word(&self, guest: u64) -> &AtomicU16 {
        // SAFETY: two mapped bytes, aligned because all places of words are.
        unsafe { AtomicU16::from_ptr(self.pointer(guest, 2).cast()) }
    }

    /// Writes to the guest's memory.
    pub fn write(&self, guest: u64, bytes: &[u8]) {
        let pointer = self.pointer(guest, bytes.len() as u32);
        // SAFETY: as many bytes are mapped there.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), pointer, bytes.len()) };
    }

    /// Reads the guest's memory.
    #[must_use]
    pub fn read(&self, guest: u64, size: usize) -> Vec<u8> {
        let pointer = self.pointer(guest, size as u32);
        let mut bytes = vec![0; size];
        // SAFETY: as many bytes are mapped there.
        unsafe { std::ptr::copy_nonoverlapping(pointer, bytes.as_mut_ptr(), size) };
        bytes
    }

    /// Writes a descriptor somewhere in the guest's memory.
    pub fn descriptor(&self, at: u64, guest: u64, size: u32, halves: [u16; 2]) {
        let mut bytes = guest.to_le_bytes().to_vec();
        bytes.extend(size.to_le_bytes());
        bytes.extend(halves.iter().flat_map(|half| half.to_le_bytes()));
        self.write(at, &bytes);
    }

    /// The address of a descriptor of the ring.
    #[must_use]
    pub const fn slot(index: u16) -> u64 {
        DESCRIPTORS + 16 * index as u64
    }

    fn entry(&self, index: u16) -> u64 {
        self.shift + Self::slot(index)
    }

    /// Makes a buffer available. Returns its id; `None` if there is no room.
    pub fn add(&mut self, pieces: &[Piece]) -> Option<u16> {
        self.add_with(pieces, 0)
    }

    /// The same with a table of indirect descriptors.
    pub fn add_indirect(&mut self, pieces: &[Piece]) -> Option<u16> {
        let table = self.tables;
        for (index, (guest, size, writable)) in pieces.iter().enumerate() {
            let next = u16::from(index + 1 < pieces.len());
            let flags = next | u16::from(*writable) << 1;
            let halves = if self.features.packed { [0, flags] } else { [flags, index as u16 + 1] };
            self.descriptor(table + 16 * index as u64, *guest, *size, halves);
        }
        self.tables += 16 * pieces.len() as u64;
        if self.tables > DATA - 0x1_0000 + self.shift {
            self.tables = TABLES + self.shift;
        }
        let indirect = 4;
        self.add_with(&[(table, 16 * pieces.len() as u32, false)], indirect)
    }

    fn add_with(&mut self, pieces: &[Piece], flags: u16) -> Option<u16> {
        match self.features.packed {
            true => self.add_packed(pieces, flags),
            false => self.add_split(pieces, flags),
        }
    }

    fn add_split(&mut self, pieces: &[Piece], extra: u16) -> Option<u16> {
        let keep = self.free.len().checked_sub(pieces.len())?;
        let indexes = self.free.split_off(keep);
        for (number, (index, (guest, size, writable))) in indexes.iter().zip(pieces).enumerate() {
            let next = indexes.get(number + 1);
            let flags = u16::from(next.is_some()) | u16::from(*writable) << 1 | extra;
            self.descriptor(self.entry(*index), *guest, *size, [flags, next.copied().unwrap_or(0)]);
        }
        let head = *indexes.first()?;
        self.counts[usize::from(head)] = pieces.len() as u16;
        self.offer(head);
        Some(head)
    }

    /// Puts any number into the available ring.
    pub fn offer(&mut self, head: u16) {
        let slot = u64::from(self.next % self.size);
        self.word(self.shift + DRIVER + 4 + 2 * slot).store(head, Ordering::Relaxed);
        self.next = self.next.wrapping_add(1);
        self.word(self.shift + DRIVER + 2).store(self.next, Ordering::Release);
    }

    fn add_packed(&mut self, pieces: &[Piece], extra: u16) -> Option<u16> {
        let used: u16 = self.counts.iter().sum();
        if usize::from(self.size - used) < pieces.len() {
            return None;
        }
        let id = self.free.pop()?;
        self.counts[usize::from(id)] = pieces.len() as u16;
        let first = self.next;
        let mut held = None;
        for (number, (guest, size, writable)) in pieces.iter().enumerate() {
            let (at, wrap) = (self.next & 0x7fff, self.next >> 15 != 0);
            let next = u16::from(number + 1 < pieces.len());
            let mark = if wrap { 1 << 7 } else { 1 << 15 };
            let flags = next | u16::from(*writable) << 1 | extra | mark;
            let slot = self.entry(at);
            let bytes: Vec<u8> = [&guest.to_le_bytes()[..], &size.to_le_bytes(), &id.to_le_bytes()].concat();
            self.write(slot, &bytes);
            if self.next == first && held.is_none() {
                held = Some((slot, flags));
            } else {
                self.word(slot + 14).store(flags, Ordering::Relaxed);
            }
            self.next = self.forward(self.next, 1);
        }
        let (slot, flags) = held?;
        self.word(slot + 14).store(flags, Ordering::Release);
        Some(id)
    }

    fn forward(&self, index: u16, count: u16) -> u16 {
        let at = (index & 0x7fff) + count;
        if at >= self.size { (at - self.size) | (!index & 0x8000) } else { at | (index & 0x8000) }
    }

    /// The next used buffer: its id, and the number of bytes that the device says it has written.
    pub fn take(&mut self) -> Option<(u16, u32)> {
        let (id, written) = match self.features.packed {
            true => {
                let (at, wrap) = (self.seen & 0x7fff, self.seen >> 15 != 0);
                let slot = self.entry(at);
                let flags = self.word(slot + 14).load(Ordering::Acquire);
                if (flags >> 15 != 0) != wrap || (flags >> 7 & 1 != 0) != wrap {
                    return None;
                }
                let bytes = self.read(slot + 8, 6);
                let id = u16::from_le_bytes([bytes[4], bytes[5]]);
                let written = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
                let written = if flags & 2 != 0 { written } else { 0 };
                self.seen = self.forward(self.seen, *self.counts.get(usize::from(id))?);
                self.counts[usize::from(id)] = 0;
                self.free.push(id);
                return Some((id, written));
            }
            false => {
                if self.word(self.shift + DEVICE + 2).load(Ordering::Acquire) == self.seen {
                    return None;
                }
                let bytes = self.read(self.shift + DEVICE + 4 + 8 * u64::from(self.seen % self.size), 8);
                self.seen = self.seen.wrapping_add(1);
                (
                    u16::from_le_bytes([bytes[0], bytes[1]]),
                    u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
                )
            }
        };
        self.release(id);
        Some((id, written))
    }

    /// Frees the descriptors of a split chain, by walking it.
    fn release(&mut self, head: u16) {
        let count = std::mem::take(&mut self.counts[usize::from(head)]);
        let mut index = head;
        for _ in 0..count {
            self.free.push(index);
            let halves = self.read(self.entry(index) + 12, 4);
            index = u16::from_le_bytes([halves[2], halves[3]]);
        }
    }

    /// The index up to which buffers were made available; in a packed ring with the wrap counter.
    #[must_use]
    pub const fn offered(&self) -> u16 {
        self.next
    }

    /// The index up to which the driver has seen used buffers; in a packed ring with the wrap counter.
    #[must_use]
    pub const fn given_back(&self) -> u16 {
        self.seen
    }

    /// Sets the used index before the device's side is made, to test how numbers wrap.
    pub fn begin_at(&mut self, index: u16) {
        assert!(!self.features.packed, "a packed ring has laps instead");
        (self.next, self.seen) = (index, index);
        self.word(self.shift + DRIVER + 2).store(index, Ordering::Relaxed);
        self.word(self.shift + DEVICE + 2).store(index, Ordering::Relaxed);
    }
}
