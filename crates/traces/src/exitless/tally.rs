//! Counts the exits of a recording.

use exits::{Access, ExitReason, Exits, Profile, SeriesIndex, SeriesKey, Slice, Timeline, Vcpu};
use rustc_hash::FxHashMap;

use crate::bounded::AccessRoom;
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
        let Self { vcpus, timeline, rows, .. } = self;
        let counted = &mut vcpus[at];
        let vm = exit.vcpu.vm;
        let (exits, series) = match counted.reasons.entry((vm, exit.reason)) {
            std::collections::hash_map::Entry::Occupied(found) => found.into_mut(),
            std::collections::hash_map::Entry::Vacant(place) => {
                if *rows >= ROWS_AT_LEAST.max(bytes / BYTES_OF_A_ROW) {
                    return Err(TooManyRows);
                }
                *rows += 1;
                let series = timeline.series(SeriesKey { vm, reason: exit.reason });
                place.insert((Exits::default(), series))
            }
        };
        exits.count += 1;
        exit.handling_ns.into_iter().for_each(|ns| exits.handling.add(ns));
        let slice = Slice { count: 1, handling_ns: exit.handling_ns.unwrap_or(0) };
        timeline.add(*series, exit.time_ns, slice);
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
        let counted = &mut self.vcpus[at].vcpu;
        counted.number = vcpu.number.or(counted.number);
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

    /// The profile: its vCPUs and its timeline.
    pub(super) fn finish(self) -> Profile {
        let mut profile = Profile::new();
        let mut vcpus = self.vcpus;
        // In the profile's order, so that each vCPU is appended.
        vcpus.sort_by_key(|counted| counted.vcpu);
        for counted in vcpus {
            let vcpu = profile.vcpu(counted.vcpu);
            for ((_, reason), (exits, _)) in counted.reasons {
                vcpu.reasons.entry(reason).or_default().merge(&exits);
            }
            for (access, exits) in counted.accesses {
                vcpu.accesses.entry(access).or_default().merge(&exits);
            }
        }
        profile.timeline = self.timeline;
        profile
    }
}
