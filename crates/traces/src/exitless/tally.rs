//! Counts the exits of a recording.

use exits::{Access, ExitReason, Exits, Profile, SeriesIndex, SeriesKey, Slice, Timeline, Vcpu};
use rustc_hash::FxHashMap;

use crate::bounded::{AccessRoom, MOST_REASONS, ReasonRoom};
use crate::rows::{self, ReasonRows};
use crate::{AccessRecord, ExitRecord};

/// The number of rows, one per vCPU and reason, that any recording may have.
const ROWS_AT_LEAST: u64 = 1024;
/// Beyond that, one row per this number of bytes of the recording, so that a small file cannot use much memory. Four
/// exits have this size.
const BYTES_OF_A_ROW: u64 = 16;

/// The most triples of VM, number and thread that are cached.
const MOST_TRIPLES: usize = 1 << 16;

/// The exits of all vCPUs so far.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// The vCPU of each triple.
    by_triple: FxHashMap<Vcpu, usize>,
    /// The current vCPU of a thread, or of a number if there are no threads.
    by_identity: FxHashMap<Vcpu, usize>,
    latest: Option<(Vcpu, usize)>,
    vcpus: Vec<Counted>,
    timeline: Timeline,
    rows: u64,
    room: AccessRoom,
    reason_room: ReasonRoom,
    /// The exits for whose vCPU and reason there was no room.
    beyond: ReasonRows,
    /// The vCPU that stands for all beyond as many as there are rows.
    others: Option<usize>,
}

/// The exits of one vCPU.
#[derive(Debug, Default)]
struct Counted {
    vcpu: Vcpu,
    reasons: FxHashMap<(Option<u32>, ExitReason), (Exits, SeriesIndex)>,
    accesses: FxHashMap<Access, Exits>,
}

/// The error of a recording with more vCPUs and reasons than its size allows.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooManyRows;

impl Tally {
    /// Counts an exit. `bytes` is the part of the recording that was read so far.
    pub(super) fn add(
        &mut self,
        exit: &ExitRecord,
        accesses: &[AccessRecord],
        bytes: u64,
    ) -> Result<(), TooManyRows> {
        let at = self.vcpu(exit.vcpu);
        let Self { vcpus, timeline, rows, reason_room, beyond, .. } = self;
        let counted = &mut vcpus[at];
        let (vm, reason) = (exit.vcpu.vm, exit.reason);
        let row = match counted.reasons.entry((vm, reason)) {
            std::collections::hash_map::Entry::Occupied(found) => Some(found.into_mut()),
            std::collections::hash_map::Entry::Vacant(place) => {
                if *rows >= ROWS_AT_LEAST.max(bytes / BYTES_OF_A_ROW) {
                    return Err(TooManyRows);
                }
                reason_room.take().then(|| {
                    *rows += 1;
                    let series = timeline.series(SeriesKey { vm, reason });
                    place.insert((Exits::default(), series))
                })
            }
        };
        if let Some((exits, series)) = row {
            exits.count += 1;
            exit.handling_ns.into_iter().for_each(|ns| exits.handling.add(ns));
            let slice = Slice { count: 1, handling_ns: exit.handling_ns.unwrap_or(0) };
            timeline.add(*series, exit.time_ns, slice);
        } else {
            let series = || timeline.series(SeriesKey { vm: None, reason });
            let row = beyond.find_without_times(reason, series);
            beyond.row(row).add(exit.time_ns, None, timeline);
        }
        for one in accesses {
            self.access(at, one);
        }
        Ok(())
    }

    fn access(&mut self, at: usize, one: &AccessRecord) {
        let known = &mut self.vcpus[at].accesses;
        let access = self.room.row(one.access, known.contains_key(&one.access));
        let exits = known.entry(access).or_default();
        exits.count += 1;
        one.handling_ns.into_iter().for_each(|ns| exits.handling.add(ns));
    }

    /// The vCPU of a row. The number of a thread's vCPU is known from its first entry on, and so may be its VM.
    fn vcpu(&mut self, vcpu: Vcpu) -> usize {
        if let Some((_, at)) = self.latest.filter(|(latest, _)| *latest == vcpu) {
            return at;
        }
        let at = match self.by_triple.get(&vcpu) {
            Some(&at) => at,
            None => self.identify(vcpu),
        };
        if self.others != Some(at) {
            let counted = &mut self.vcpus[at].vcpu;
            counted.number = vcpu.number.or(counted.number);
        }
        self.latest = Some((vcpu, at));
        at
    }

    #[cold]
    fn identify(&mut self, vcpu: Vcpu) -> usize {
        let identity = match vcpu.thread {
            Some(_) => Vcpu { vm: None, number: None, ..vcpu },
            None => vcpu,
        };
        let known = self.by_identity.get(&identity).copied().filter(|&at| {
            let known = &mut self.vcpus[at].vcpu;
            known.vm = known.vm.or(vcpu.vm);
            known.vm == vcpu.vm
        });
        // Each vCPU took a row when it was added or found none left, so there is none for further ones.
        if known.is_none() && self.vcpus.len() >= MOST_REASONS {
            return *self.others.get_or_insert_with(|| {
                self.vcpus.push(Counted::default());
                self.vcpus.len() - 1
            });
        }
        let at = known.unwrap_or_else(|| {
            self.vcpus.push(Counted { vcpu, ..Counted::default() });
            self.vcpus.len() - 1
        });
        self.by_identity.insert(identity, at);
        // A thread with another number in every row would fill the cache.
        if self.by_triple.len() >= MOST_TRIPLES {
            self.by_triple.clear();
        }
        self.by_triple.insert(vcpu, at);
        at
    }

    /// The profile: its vCPUs and its timeline. Adds a warning if there were more rows than the limit.
    pub(super) fn finish(self, warnings: &mut Vec<String>) -> Profile {
        let mut profile = Profile::new();
        let mut vcpus = self.vcpus;
        // In the profile's order, so that each vCPU is appended.
        vcpus.sort_by_key(|counted| counted.vcpu);
        let has_some = |counted: &Counted| !counted.reasons.is_empty() || !counted.accesses.is_empty();
        for counted in vcpus.into_iter().filter(has_some) {
            let vcpu = profile.vcpu(counted.vcpu);
            for ((_, reason), (exits, _)) in counted.reasons {
                vcpu.reasons.entry(reason).or_default().merge(&exits);
            }
            for (access, exits) in counted.accesses {
                vcpu.accesses.entry(access).or_default().merge(&exits);
            }
        }
        rows::add_beyond(&mut profile, &self.beyond, warnings);
        profile.timeline = self.timeline;
        profile
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_beyond_the_limit_are_counted_without_times() {
        let mut tally = Tally { reason_room: ReasonRoom(1), ..Tally::default() };
        for (thread, reason) in [(1, 12), (1, 12), (1, 30), (2, 12), (2, 12)] {
            let vcpu = Vcpu { vm: Some(7), number: None, thread: Some(thread) };
            let exit = ExitRecord {
                time_ns: 100,
                vcpu,
                cpu: 0,
                reason: ExitReason::vmx(reason),
                guest_rip: 0,
                access: None,
                handling_ns: Some(10),
            };
            tally.add(&exit, &[], 0).unwrap();
        }
        let mut warnings = Vec::new();
        let profile = tally.finish(&mut warnings);
        assert!(warnings[0].contains("; 3 exits of further ones"), "{warnings:?}");
        let [others, own] = profile.vcpus() else { unreachable!() };
        assert_eq!((others.vcpu, own.vcpu.thread), (Vcpu::default(), Some(1)));
        let counts = others.reasons.iter().map(|(reason, exits)| (reason.code, exits.count));
        assert_eq!(counts.collect::<Vec<_>>(), [(12, 2), (30, 1)]);
        assert!(others.reasons.values().all(|exits| exits.handling.count() == 0));
        assert_eq!(own.reasons[&ExitReason::vmx(12)].handling.total_ns(), 20);
        assert_eq!(profile.total(), 5);
    }
}
