//! Synthetic recordings before and after: interrupt virtualization off and on, repeated recordings, and every fault.

use conclusions::profile_comparison::{ComparisonOptions, ProfileComparison, Recording};
use exits::{Access, Dimension, Direction, ExitReason, Grouping, Profile, SeriesKey, Slice, Span, Vcpu};
use report::comparison::Compared;
use traces::{Damage, Format, Options, Origin, Reading, Recordings, Unlike};

const HLT: ExitReason = ExitReason::svm(0x78);
const MSR: ExitReason = ExitReason::svm(0x7c);
const INTERRUPT: ExitReason = ExitReason::svm(0x60);
const VINTR: ExitReason = ExitReason::svm(0x64);
const INCOMPLETE_IPI: ExitReason = ExitReason::svm(0x401);
const NPF: ExitReason = ExitReason::svm(0x400);
const PAUSE: ExitReason = ExitReason::svm(0x77);
const IO: ExitReason = ExitReason::svm(0x7b);

const MILLISECOND: u64 = 1 << 20;

/// A reason, its exits per millisecond, and the shortest handling time.
type Load = (ExitReason, f64, u64);

/// The exits that a host without interrupt virtualization would record.
pub(crate) const OFF: &[Load] = &[
    (INTERRUPT, 50.0, 700),
    (MSR, 48.0, 500),
    (VINTR, 9.0, 700),
    (NPF, 0.2, 1_000),
    (HLT, 0.05, 600_000),
    (PAUSE, 0.004, 900),
    (IO, 0.02, 2_300),
];
const ON: &[Load] = &[
    (INTERRUPT, 3.2, 600),
    (MSR, 1.5, 900),
    (NPF, 0.2, 1_500),
    (HLT, 0.05, 610_000),
    (INCOMPLETE_IPI, 0.06, 2_000),
    (PAUSE, 0.005, 900),
    (IO, 0.02, 2_300),
];

/// Pseudo-random numbers, the same in every run.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

pub(crate) fn reading(vm: u32, milliseconds: u64, loads: &[Load]) -> Reading {
    let mut profile = Profile::new();
    let mut chance = Chance(u64::from(vm));
    for &(reason, rate, shortest_ns) in loads {
        let series = profile.timeline.series(SeriesKey { vm: Some(vm), reason });
        for cell in 0..milliseconds {
            // A load that rises and falls.
            let swell = 1.0 + 0.4 * (cell as f64 / 90.0).sin();
            let wanted = rate * swell * 1000.0;
            let count = (wanted as u64 + chance.below(1000)) / 1000;
            for number in 0..count {
                let vcpu = Vcpu {
                    vm: Some(vm),
                    number: Some(number as u32 % 2),
                    thread: Some(vm + 1 + number as u32 % 2),
                };
                let spread = chance.below(1000);
                let ns = shortest_ns + shortest_ns * spread.pow(4) / 100_000_000_000;
                let exits = profile.vcpu(vcpu).reasons.entry(reason).or_default();
                exits.count += 1;
                exits.handling.add(ns);
                if reason == IO {
                    let access = Access::Port { port: 0x3f8, direction: Direction::Write };
                    let exits = profile.vcpu(vcpu).accesses.entry(access).or_default();
                    exits.count += 1;
                    exits.handling.add(ns);
                }
                profile.timeline.add(series, cell * MILLISECOND, Slice { count: 1, handling_ns: ns });
            }
        }
    }
    profile.span = Some(Span { first_ns: 0, last_ns: milliseconds * MILLISECOND });
    profile.names.insert(vm, "qemu-system-x86".to_owned());
    profile.events.insert("kvm:kvm_exit".to_owned(), profile.total());
    let origin = Origin {
        version: Some("6.12.107".to_owned()),
        host: Some("host-17".to_owned()),
        kernel: Some("6.12.107".to_owned()),
        processor: Some("AMD EPYC 9654 96-Core Processor".to_owned()),
        bytes: 1 << 20,
        ..Origin::new(Format::PerfData)
    };
    Reading { profile, origin, damage: None, warnings: Vec::new() }
}

pub(crate) fn recordings(name: &str, reading: Reading) -> Recordings {
    let mut recordings = Recordings::new(Options::default());
    recordings.add(name.to_owned(), reading);
    recordings
}

pub(crate) struct Pair {
    before: Vec<Recordings>,
    after: Vec<Recordings>,
    grouping: Grouping,
    pub(crate) comparison: ProfileComparison,
    unlike: Vec<Unlike>,
}

impl Pair {
    pub(crate) fn new(
        before: Vec<Recordings>,
        after: Vec<Recordings>,
        by: &[Dimension],
        operations: Option<(u64, u64)>,
    ) -> Self {
        let grouping = Grouping::new(by.iter().copied()).unwrap();
        let [a, b] = [&before, &after].map(|side| {
            side.iter()
                .map(|one| Recording { observed: one.observed(), ..(&one.profile).into() })
                .collect::<Vec<_>>()
        });
        let options = ComparisonOptions { grouping: grouping.clone(), operations, seed: 0 };
        let comparison = ProfileComparison::new(&a, &b, &options);
        let unlike = traces::unlike(&before, &after);
        Self { before, after, grouping, comparison, unlike }
    }

    pub(crate) fn compared(&self) -> Compared<'_> {
        Compared {
            comparison: &self.comparison,
            grouping: &self.grouping,
            before: &self.before,
            after: &self.after,
            unlike: &self.unlike,
        }
    }
}

pub(crate) const REASON: &[Dimension] = &[Dimension::Reason];

pub(crate) fn virtualized() -> Pair {
    let before = recordings("off.perf.data", reading(366, 800, OFF));
    let after = recordings("on.perf.data", reading(402, 1_000, ON));
    Pair::new(vec![before], vec![after], REASON, None)
}

pub(crate) fn doubtful() -> Pair {
    let mut before = reading(366, 300, OFF);
    before.profile.losses.lost_events = 9_794;
    before.profile.losses.undecoded = 3;
    before.damage = Some(Damage { offset: 9_000_001, what: "a record of length zero".to_owned() });
    let mut after = reading(402, 12, ON);
    after.origin.kernel = Some("6.13.1".to_owned());
    after.warnings.push("The clock of the recording is not the monotonic one.".to_owned());
    let third = Vcpu { vm: Some(7), number: Some(0), thread: Some(8) };
    after.profile.vcpu(third).reasons.entry(PAUSE).or_default().count = 2;
    let (before, after) = (recordings("off.perf.data", before), recordings("on.perf.data", after));
    Pair::new(vec![before], vec![after], &[Dimension::Vm, Dimension::Reason], None)
}

pub(crate) fn repeated() -> Pair {
    let side = |first: u32, loads: &[Load]| -> Vec<Recordings> {
        (first..first + 3)
            .map(|vm| recordings(&format!("{vm}.dat"), reading(vm, 200 + u64::from(vm) % 7, loads)))
            .collect()
    };
    Pair::new(side(10, OFF), side(20, ON), REASON, Some((30_000, 31_500)))
}

pub(crate) fn empty() -> Pair {
    let nothing = |name| recordings(name, Reading { profile: Profile::new(), ..reading(1, 1, &[]) });
    Pair::new(vec![nothing("a")], vec![nothing("b")], REASON, None)
}
