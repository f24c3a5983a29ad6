//! The counts in the kernel's maps, and the profile made from them.

use std::collections::{BTreeSet, HashSet};

use aya::Pod;
use aya::maps::{Array, MapData, MapError};
use exits::{Access, Direction, ExitReason, Exits, HandlingTime, Isa, Octave, Profile, Vcpu};

use super::batches::Batches;
use super::programs::DIRECT_CELLS;

/// The number of buckets of an octave (`BUCKETS` in the BPF programs).
const BUCKETS: usize = 32;
/// The kind of cells for exits (`KIND_REASON` in the BPF programs).
const REASON: u8 = 0;
/// The kind of accesses that are counted together (`KIND_OTHER_ACCESS`).
const OTHER_ACCESS: u8 = 15;
/// The octave of exits without a handling time (`UNTIMED`).
const UNTIMED: u8 = 255;
/// The number of epochs after which an unused cell of a living thread may be freed: an hour of the exporter, if it is asked
/// every 15 s. Rare octaves would otherwise take cells as long as their VMs run.
const IDLE: u64 = 240;

/// `struct cell_key` of the BPF programs.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
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
    pub(super) direct_taken: Batches<u32, CellKey>,
    /// Cells whose elements of the array were taken.
    pub(super) hashed: Batches<CellKey, Cell>,
    /// The number of cells for which `hashed` has room.
    pub(super) most_hashed: u32,
    /// The counts for which there was no room otherwise; the key has the CPU instead of the thread.
    pub(super) other: Batches<CellKey, Cell>,
    /// The number of cells above that are used for accesses.
    pub(super) of_accesses: Array<MapData, u64>,
    /// `cells_have_room` and `other_cells_have_room` of the BPF programs.
    pub(super) have_room: Array<MapData, [u32; 2]>,
    pub(super) isa: Isa,
    pub(super) seen: Seen,
}

/// The cells in use at the last reading.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// The elements of the array, and their keys.
    direct: Vec<(u32, CellKey)>,
    hashed: Vec<CellKey>,
    threads: HashSet<u32>,
    /// Cells for exits that were not used in the last [`IDLE`] epochs.
    idle: HashSet<CellKey>,
}

impl Seen {
    fn is_crowded(&self, most_hashed: u32) -> bool {
        self.direct.len() > DIRECT_CELLS as usize / 2 || self.hashed.len() > most_hashed as usize / 2
    }

    /// Tests whether some of the cells can be freed.
    fn can_shrink(&self, alive: impl Fn(u32) -> bool) -> bool {
        !self.idle.is_empty() || !self.threads.iter().all(|&thread| alive(thread))
    }

    /// Notes a cell that was read with `epoch`. Those of accesses stay, because the vCPU counts them (`access_cells`).
    fn note(&mut self, key: &CellKey, cell: &Cell, epoch: u64) {
        if key.kind == REASON && cell.epoch.saturating_add(IDLE) < epoch {
            self.idle.insert(*key);
        }
    }
}

impl Cells {
    /// Adds the counts of `epoch` to `profile`, but not to its timeline; no program may count in it any more. Skips
    /// untimed exits of the threads in `known`: these were added when the threads ended.
    pub(super) fn read(
        &mut self,
        epoch: u64,
        known: &BTreeSet<u32>,
        profile: &mut Profile,
    ) -> Result<(), MapError> {
        let turn = turn_of(epoch);
        let wanted =
            |key: &CellKey| key.turn == turn && !(key.octave == UNTIMED && known.contains(&key.thread));
        let mut seen = Seen::default();
        let mut direct = Vec::new();
        self.direct_taken.each(|at, key| {
            seen.threads.insert(key.thread);
            direct.push((at, key));
        })?;
        for (at, key) in direct.iter().filter(|(_, key)| wanted(key)) {
            let cell = self.direct.get(at, 0)?;
            seen.note(key, &cell, epoch);
            self.add(key, &cell, epoch, profile);
        }
        seen.direct = direct;
        self.hashed.each(|key, cell| {
            seen.hashed.push(key);
            seen.threads.insert(key.thread);
            if wanted(&key) {
                seen.note(&key, &cell, epoch);
                self.add(&key, &cell, epoch, profile);
            }
        })?;
        self.other.each(|key, cell| {
            if key.turn == turn {
                self.add(&CellKey { thread: 0, ..key }, &cell, epoch, profile);
            }
        })?;
        self.seen = seen;
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
        if key.kind == REASON && key.thread == 0 {
            profile.losses.exits_without_vcpu += count;
        }
        if let Some(access) = access(self.isa, key.kind, key.value) {
            profile.vcpu(vcpu).accesses.entry(access).or_default().merge(&exits);
            return;
        }
        // The BPF programs also keep 32 bits of an exit reason.
        let reason = ExitReason { isa: self.isa, code: key.value as u32 };
        profile.vcpu(vcpu).reasons.entry(reason).or_default().merge(&exits);
    }

    /// Tests whether the maps are half full, and have cells that can be freed.
    pub(super) fn is_crowded(&self, alive: impl Fn(u32) -> bool) -> bool {
        self.seen.is_crowded(self.most_hashed) && self.seen.can_shrink(alive)
    }

    /// Makes the programs look for room again in maps that were full.
    pub(super) fn look_for_room(&mut self) -> Result<(), MapError> {
        self.have_room.set(0, [1_u32; 2], 0)
    }

    /// Frees cells that were last read with `epoch`: those of ended threads, and idle ones. No program uses cells of this
    /// turn before the next reading; those of the other turn may have counts of the next epoch, which were not read yet.
    /// Goes by what that reading saw: reading the maps takes long if there are many cells.
    pub(super) fn free(&mut self, epoch: u64, alive: impl Fn(u32) -> bool) -> Result<(), MapError> {
        let Seen { direct, hashed, idle, .. } = std::mem::take(&mut self.seen);
        let is_over =
            |key: &CellKey| key.turn == turn_of(epoch) && (!alive(key.thread) || idle.contains(key));
        for (at, _) in direct.iter().filter(|(_, key)| is_over(key)) {
            // Clear it before others can take it.
            self.direct.set(*at, Cell::default(), 0)?;
            self.direct_taken.map.remove(at)?;
        }
        hashed.iter().filter(|key| is_over(key)).try_for_each(|key| self.hashed.map.remove(key))?;
        let left = direct.iter().map(|(_, key)| key).chain(&hashed).filter(|key| !is_over(key));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Collector, Watch};

    #[test]
    fn maps_are_crowded_from_half_of_their_room_on() {
        let seen = |direct, hashed| Seen {
            direct: vec![(0, CellKey::default()); direct],
            hashed: vec![CellKey::default(); hashed],
            ..Seen::default()
        };
        for (direct, hashed, most_hashed, crowded) in [
            (16_384, 32_768, 65_536, false),
            (16_385, 0, 65_536, true),
            (0, 32_769, 65_536, true),
            (0, 32_769, 131_072, false),
        ] {
            let is_crowded = seen(direct, hashed).is_crowded(most_hashed);
            assert_eq!(is_crowded, crowded, "{direct}, {hashed} of {most_hashed}");
        }
    }

    #[test]
    fn cells_of_ended_threads_and_idle_ones_can_be_freed() {
        let can_shrink = |kind, used, epoch| {
            let mut seen = Seen { threads: [7].into(), ..Seen::default() };
            let cell = Cell { epoch: used, ..Cell::default() };
            seen.note(&CellKey { kind, thread: 7, ..CellKey::default() }, &cell, epoch);
            (seen.can_shrink(|_| true), seen.can_shrink(|_| false))
        };
        assert_eq!(can_shrink(REASON, 3, 3 + IDLE), (false, true));
        assert_eq!(can_shrink(REASON, 3, 4 + IDLE), (true, true));
        assert_eq!(can_shrink(OTHER_ACCESS, 3, 4 + IDLE), (false, true));
    }

    /// The cells of this thread for the system call `getppid`, which no library makes on its own.
    fn own_cells(collector: &Collector) -> usize {
        // SAFETY: takes nothing and changes nothing.
        let own = unsafe { libc::gettid() }.cast_unsigned();
        let mut keys = Vec::new();
        collector.cells.direct_taken.each(|_, key| keys.push(key)).unwrap();
        collector.cells.hashed.each(|key, _| keys.push(key)).unwrap();
        keys.retain(|key| {
            (key.thread, key.kind, key.value) == (own, REASON, libc::SYS_getppid.cast_unsigned())
        });
        keys.len()
    }

    /// Makes calls, and tests whether this thread has cells for them after `then`. On a busy machine, all calls of a round may
    /// be made while the kernel has preempted a thread within a program.
    fn is_used_after(collector: &mut Collector, then: fn(&mut Collector)) -> bool {
        (0..50).any(|_| {
            for _ in 0..100 {
                // SAFETY: takes nothing and changes nothing.
                unsafe { libc::syscall(libc::SYS_getppid) };
            }
            then(collector);
            own_cells(collector) > 0
        })
    }

    /// As if the maps were crowded.
    fn take_and_free(collector: &mut Collector) {
        let epoch = collector.epoch;
        collector.take().unwrap();
        collector.cells.free(epoch, |_| true).unwrap();
    }

    #[test]
    fn cells_that_were_not_read_are_not_freed() {
        let watch = Watch { processes: Some(vec![std::process::id()]), ..Watch::default() };
        let mut collector = match Collector::attach_to_system_calls(&watch) {
            Ok(collector) => collector,
            Err(error) => return eprintln!("not tested: {error}"),
        };
        let free = |collector: &mut Collector| collector.cells.free(collector.epoch, |_| false).unwrap();
        assert!(is_used_after(&mut collector, free));
    }

    #[test]
    fn a_living_thread_gives_back_cells_that_it_no_longer_uses() {
        let watch = Watch { processes: Some(vec![std::process::id()]), ..Watch::default() };
        let mut collector = match Collector::attach_to_system_calls(&watch) {
            Ok(collector) => collector,
            Err(error) => return eprintln!("not tested: {error}"),
        };
        assert!(is_used_after(&mut collector, take_and_free), "cells in use stay");
        // As many epochs later. Each reading frees cells of its turn.
        collector.epoch += 2 * IDLE;
        collector.epoch_map.set(0, collector.epoch, 0).unwrap();
        (0..2).for_each(|_| take_and_free(&mut collector));
        assert_eq!(own_cells(&collector), 0);
        assert!(is_used_after(&mut collector, take_and_free), "they are taken again");
    }
}
