//! Counts the exits of a recording.

use exits::{Access, ExitReason, Exits, Profile, SeriesIndex, SeriesKey, Slice, Timeline, Vcpu};
use rustc_hash::FxHashMap;

use crate::bounded::AccessRoom;
use crate::{AccessRecord, ExitRecord};

/// Rows that any recording may have: a vCPU's exits of one reason.
const ROWS_AT_LEAST: u64 = 1024;
/// Beyond them one row for so many bytes of the recording, so that few bytes do not take up much memory. Four exits
/// take as much.
const BYTES_OF_A_ROW: u64 = 16;

/// Triples of VM, number and thread that are found at once.
const MOST_TRIPLES: usize = 1 << 16;

/// All vCPUs' exits so far.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// The vCPU of each triple that was seen.
    by_triple: FxHashMap<Vcpu, usize>,
    /// The vCPU that a thread, or without threads a number, is now.
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

/// The recording has more different vCPUs and reasons than its size allows.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooManyRows;

impl Tally {
    /// Counts an exit of a recording of which so many bytes were read.
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

    /// The vCPU that a row names. A thread's number becomes known with its first entry, perhaps its VM too.
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
        // A thread that has another number in every row would fill it.
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
        // In the profile's order, so that each goes to its end.
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
