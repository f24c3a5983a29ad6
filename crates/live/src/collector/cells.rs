//! The counts in the kernel's maps, and the profile made from them.

use std::collections::BTreeSet;

use aya::Pod;
use aya::maps::{Array, HashMap, MapData, MapError};
use exits::{Access, Direction, ExitReason, Exits, HandlingTime, Isa, Octave, Profile, Vcpu};

/// The number of buckets of an octave (`BUCKETS` in the BPF programs).
const BUCKETS: usize = 32;
/// The kind of cells for exits (`KIND_REASON` in the BPF programs).
const REASON: u8 = 0;
/// The kind of accesses that are counted together (`KIND_OTHER_ACCESS`).
const OTHER_ACCESS: u8 = 15;
/// The octave of exits without a handling time (`UNTIMED`).
const UNTIMED: u8 = 255;

/// `struct cell_key` of the BPF programs.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct CellKey {
    value: u64,
    thread: u32,
    kind: u8,
    octave: u8,
    turn: u8,
    unused: u8,
}

/// `struct cell` of the BPF programs.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Cell {
    key: CellKey,
    epoch: u64,
    total_ns: u64,
    squares_low: u64,
    squares_high: u64,
    min_ns: u64,
    max_ns: u64,
    process: u32,
    vcpu: u32,
    buckets: [u32; BUCKETS],
}

// SAFETY: plain numbers without padding, laid out as the programs' structure; every bit pattern is a value.
unsafe impl Pod for CellKey {}
// SAFETY: as above.
unsafe impl Pod for Cell {}
const _: () = assert!(size_of::<CellKey>() == 8 + 4 + 4);
const _: () = assert!(size_of::<Cell>() == size_of::<CellKey>() + 6 * 8 + 2 * 4 + BUCKETS * 4);

/// The kernel's maps of cells.
pub(super) struct Cells {
    /// Most cells, in an array, and the keys of the elements in use.
    pub(super) direct: Array<MapData, Cell>,
    pub(super) direct_taken: HashMap<MapData, u32, CellKey>,
    /// Cells whose elements of the array were taken.
    pub(super) hashed: HashMap<MapData, CellKey, Cell>,
    /// The counts for which there was no room otherwise; the key has the CPU instead of the thread.
    pub(super) other: HashMap<MapData, CellKey, Cell>,
    /// The number of cells above that are used for accesses.
    pub(super) of_accesses: Array<MapData, u64>,
    pub(super) isa: Isa,
}

impl Cells {
    /// Adds the counts of `epoch` to `profile`, but not to its timeline; no program may count in it any more. Skips
    /// untimed exits of the threads in `known`: these were added when the threads ended.
    pub(super) fn read(
        &self,
        epoch: u64,
        known: &BTreeSet<u32>,
        profile: &mut Profile,
    ) -> Result<(), MapError> {
        let turn = turn_of(epoch);
        let wanted =
            |key: &CellKey| key.turn == turn && !(key.octave == UNTIMED && known.contains(&key.thread));
        for taken in self.direct_taken.iter() {
            let (at, key) = taken?;
            if wanted(&key) {
                self.add(&key, &self.direct.get(&at, 0)?, epoch, profile);
            }
        }
        for key in self.hashed.keys() {
            let key = key?;
            if wanted(&key) {
                self.add(&key, &self.hashed.get(&key, 0)?, epoch, profile);
            }
        }
        for key in self.other.keys() {
            let key = key?;
            if key.turn == turn {
                let cell = self.other.get(&key, 0)?;
                self.add(&CellKey { thread: 0, ..key }, &cell, epoch, profile);
            }
        }
        Ok(())
    }

    fn add(&self, key: &CellKey, cell: &Cell, epoch: u64, profile: &mut Profile) {
        if cell.epoch != epoch {
            return;
        }
        let count = cell.buckets.iter().map(|&count| u64::from(count)).sum();
        let mut handling = HandlingTime::new();
        if key.octave != UNTIMED {
            handling.add_octave(&Octave {
                number: key.octave,
                total_ns: cell.total_ns,
                squares_ns2: (u128::from(cell.squares_high) << 64) | u128::from(cell.squares_low),
                min_ns: cell.min_ns,
                max_ns: cell.max_ns,
                buckets: cell.buckets,
            });
        }
        let vcpu = match key.thread {
            // Counts for which there was no room by thread.
            0 => Vcpu::default(),
            thread => vcpu(cell.process, cell.vcpu, thread),
        };
        let exits = Exits { count, handling };
        if key.kind == REASON && key.octave == UNTIMED {
            profile.losses.exits_without_entry += count;
        }
        if let Some(access) = access(self.isa, key.kind, key.value) {
            profile.vcpu(vcpu).accesses.entry(access).or_default().merge(&exits);
            return;
        }
        // The BPF programs also keep 32 bits of an exit reason.
        let reason = ExitReason { isa: self.isa, code: key.value as u32 };
        profile.vcpu(vcpu).reasons.entry(reason).or_default().merge(&exits);
    }

    /// Tests whether the maps are half full.
    pub(super) fn is_crowded(&self) -> bool {
        // Of 32,768 and 65,536 entries.
        self.direct_taken.keys().count() > 1 << 14 || self.hashed.keys().count() > 1 << 15
    }

    /// Frees the cells of ended threads that were read with `epoch`; those of the other turn may have counts of the
    /// next epoch, which were not read yet. Cells of living threads stay, because a program may be updating them.
    pub(super) fn free(&mut self, epoch: u64, alive: impl Fn(u32) -> bool) -> Result<(), MapError> {
        let is_over = |key: &CellKey| key.turn == turn_of(epoch) && !alive(key.thread);
        let taken: Vec<(u32, CellKey)> = self.direct_taken.iter().filter_map(Result::ok).collect();
        for (at, _) in taken.iter().filter(|(_, key)| is_over(key)) {
            // Clear it before others can take it.
            self.direct.set(*at, Cell::default(), 0)?;
            self.direct_taken.remove(at)?;
        }
        let hashed: Vec<CellKey> = self.hashed.keys().filter_map(Result::ok).collect();
        hashed.iter().filter(|key| is_over(key)).try_for_each(|key| self.hashed.remove(key))?;
        let left = taken.iter().map(|(_, key)| key).chain(&hashed).filter(|key| !is_over(key));
        let of_accesses = left.filter(|key| !matches!(key.kind, REASON | OTHER_ACCESS)).count();
        self.of_accesses.set(0, of_accesses as u64, 0)
    }
}

/// The turn of an epoch's cells.
const fn turn_of(epoch: u64) -> u8 {
    (epoch & 1) as u8
}

/// The access of a cell with this kind and value; `None` for kinds that are not accesses.
pub(super) fn access(isa: Isa, kind: u8, value: u64) -> Option<Access> {
    let direction = match kind {
        1 | 3 | 5 | 7 | 10 => Direction::Read,
        _ => Direction::Write,
    };
    // The hardware's numbers are narrower than the field.
    let narrow = value as u32;
    Some(match kind {
        1 | 2 => Access::Port { port: value as u16, direction },
        3 | 4 => Access::Mmio { address: value, direction },
        5 | 6 => Access::Msr { number: narrow, direction },
        7 | 8 => Access::Apic { register: narrow, direction },
        9 => Access::IncompleteIpi { id: narrow },
        10 | 11 => Access::Unaccelerated { register: narrow, direction },
        12 | 13 => Access::Nested { reason: ExitReason { isa, code: narrow }, to_l1: kind == 13 },
        14 => Access::FastMmio { address: value },
        OTHER_ACCESS => Access::Other,
        _ => return None,
    })
}

/// The vCPU as the BPF programs identify it.
pub(super) fn vcpu(process: u32, number: u32, thread: u32) -> Vcpu {
    // `NO_VCPU` of the BPF programs: the number is not known yet.
    const UNKNOWN: u32 = u32::MAX;
    Vcpu { vm: Some(process), number: (number != UNKNOWN).then_some(number), thread: Some(thread) }
}
