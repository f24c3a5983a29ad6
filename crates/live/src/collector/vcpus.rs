//! The vCPUs that the BPF programs follow.

use std::collections::BTreeSet;

use aya::Pod;
use aya::maps::{Array, MapData, MapError};
use exits::{Access, ExitReason, Isa};

use super::batches::Batches;
use super::cells::{access, vcpu};
use super::joining::LiveExit;
use super::map;
use super::programs::Attached;
use crate::Error;

/// `struct vcpu` of the BPF programs.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct State {
    key: u64,
    thread: u32,
    process: u32,
    exit_ns: u64,
    mmio_start_ns: u64,
    told_ns: u64,
    number: u32,
    reason: u32,
    cpu: u16,
    ignored: u8,
    waiting: u8,
    access_cells: u16,
    early: u8,
    unused: u8,
    pending: [Pending; 6],
}

/// `struct pending` of the BPF programs.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Pending {
    since_ns: u64,
    value: u64,
    kind: u32,
    unused: u32,
}

// SAFETY: plain numbers without padding, laid out as the programs' structure; every bit pattern is a value.
unsafe impl Pod for State {}
const _: () = assert!(size_of::<Pending>() == 2 * 8 + 2 * 4);
const _: () = assert!(size_of::<State>() == 4 * 8 + 4 * 4 + 2 + 2 + 2 + 2 + 6 * size_of::<Pending>());

impl State {
    /// The exit that is being handled, if any.
    pub(super) fn open(&self, isa: Isa) -> Option<LiveExit> {
        let exit = LiveExit {
            time_ns: self.exit_ns,
            vcpu: vcpu(self.process, self.number, self.thread),
            cpu: self.cpu,
            reason: ExitReason { isa, code: self.reason },
            handling_ns: None,
        };
        (self.exit_ns != 0).then_some(exit)
    }

    /// The accesses that wait for the entry, if they are counted in the kernel.
    fn accesses(&self, isa: Isa) -> Vec<Access> {
        let waiting = self.pending.iter().enumerate().filter(|(sort, _)| self.waiting >> sort & 1 != 0);
        waiting.filter_map(|(_, one)| access(isa, u8::try_from(one.kind).ok()?, one.value)).collect()
    }
}

/// The kernel's maps of vCPUs.
pub(super) struct Vcpus {
    places: Array<MapData, State>,
    /// The keys of the vCPUs that have elements of `places`, by index.
    places_taken: Batches<u32, u64>,
    hashed: Batches<u64, State>,
    /// The keys of vCPUs by thread.
    keys: Batches<u32, u64>,
}

impl Vcpus {
    pub(super) fn of(attached: &mut Attached) -> Result<Self, Error> {
        Ok(Self {
            places: map(attached, "places")?,
            places_taken: map(attached, "places_taken")?,
            hashed: map(attached, "vcpus")?,
            keys: map(attached, "keys")?,
        })
    }

    /// The exits that are being handled now by threads that `wanted` selects, with their accesses.
    pub(super) fn open(
        &self,
        isa: Isa,
        wanted: impl Fn(u32) -> bool,
    ) -> Result<Vec<(LiveExit, Vec<Access>)>, MapError> {
        let mut open = Vec::new();
        let mut take = |state: &State| {
            // Ask for each thread, even if it has no exit: `wanted` remembers its answer, so `free` does not take a
            // thread for ended that has only just ended and whose last exit was not read here.
            let exit = wanted(state.thread).then(|| state.open(isa)).flatten();
            open.extend(exit.map(|exit| (exit, state.accesses(isa))));
        };
        let mut places = Vec::new();
        self.places_taken.each(|at, _| places.push(at))?;
        for at in &places {
            take(&self.places.get(at, 0)?);
        }
        self.hashed.each(|_, state| take(&state))?;
        Ok(open)
    }

    /// Tests whether the maps are half full, and have vCPUs of ended threads.
    pub(super) fn is_crowded(&self, alive: impl Fn(u32) -> bool) -> Result<bool, MapError> {
        let (mut places, mut threads, mut have_ended) = (0_u32, 0_u32, false);
        self.places_taken.each(|_, _| places += 1)?;
        self.keys.each(|thread, _| {
            threads += 1;
            have_ended = have_ended || !alive(thread);
        })?;
        // Of 8,192 places and 65,536 threads.
        Ok(have_ended && (places > 1 << 12 || threads > 1 << 15))
    }

    /// Forgets vCPUs whose threads have ended: no program can be updating them.
    pub(super) fn free(&mut self, alive: impl Fn(u32) -> bool) -> Result<(), MapError> {
        let (mut keys, mut taken) = (Vec::new(), Vec::new());
        self.keys.each(|thread, key| keys.push((thread, key)))?;
        let ended = Ended::among(&keys, alive);
        self.places_taken.each(|at, key| taken.push((at, key)))?;
        for (at, _) in taken.iter().filter(|(_, key)| ended.keys.contains(key)) {
            // Clear it before others can take it.
            self.places.set(*at, State::default(), 0)?;
            self.places_taken.map.remove(at)?;
        }
        for key in &ended.keys {
            // Fails for most keys, because their vCPUs are in `places`.
            let _ = self.hashed.map.remove(key);
        }
        ended.threads.iter().try_for_each(|thread| self.keys.map.remove(thread))
    }
}

/// Threads that have ended, and vCPUs that have no living thread.
#[derive(Debug, PartialEq, Eq)]
struct Ended {
    threads: Vec<u32>,
    keys: BTreeSet<u64>,
}

impl Ended {
    /// Finds them among threads and the keys of their vCPUs. Several threads have the same key if the memory of an
    /// ended vCPU was reused.
    fn among(keys: &[(u32, u64)], alive: impl Fn(u32) -> bool) -> Self {
        let (living, ended): (Vec<_>, Vec<_>) = keys.iter().copied().partition(|&(thread, _)| alive(thread));
        // A vCPU that a living thread runs has not ended.
        let living: BTreeSet<u64> = living.into_iter().map(|(_, key)| key).collect();
        Self {
            threads: ended.iter().map(|&(thread, _)| thread).collect(),
            keys: ended.into_iter().map(|(_, key)| key).filter(|key| !living.contains(key)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_threads_that_ended_are_found_also_those_of_one_vcpu() {
        let keys = [(1, 7), (2, 7), (3, 7), (4, 8), (5, 9), (6, 9)];
        let ended = Ended::among(&keys, |thread| thread == 6);
        assert_eq!(ended, Ended { threads: vec![1, 2, 3, 4, 5], keys: [7, 8].into() });
    }
}
