//! Synthetic recordings: several VMs, both instruction sets, losses, unknown codes, long names.

use exits::{Access, Direction, ExitReason, Losses, Profile, Selection, SeriesKey, Slice, Span, Vcpu};
use traces::{Damage, Format, Options, Origin, Reading, Recordings};

const HALT: ExitReason = ExitReason::vmx(12);
const INTERRUPT: ExitReason = ExitReason::vmx(1);
const MSR_WRITE: ExitReason = ExitReason::vmx(32);
const PORT: ExitReason = ExitReason::vmx(30);
const UNKNOWN: ExitReason = ExitReason::vmx(79);
const FLAGGED: ExitReason = ExitReason::vmx(0x8400_0021);
const NPF: ExitReason = ExitReason::svm(0x400);
const NO_CODE: ExitReason = ExitReason::svm(0x7f);

const SECOND: u64 = 1_000_000_000;
/// The start of the recording, by its clock.
const START: u64 = 32 * SECOND + 510_469_000;

const fn vcpu(vm: u32, number: u32) -> Vcpu {
    Vcpu { vm: Some(vm), number: Some(number), thread: Some(vm + 10 + number) }
}

/// A load of `count` exits that begin `every_ns` apart. Handling times have the minimum `shortest_ns` and a long tail.
struct Load {
    vcpu: Vcpu,
    reason: ExitReason,
    count: u64,
    every_ns: u64,
    shortest_ns: u64,
}

impl Load {
    fn add_to(&self, profile: &mut Profile) {
        let series = profile.timeline.series(SeriesKey { vm: self.vcpu.vm, reason: self.reason });
        for number in 0..self.count {
            let time_ns = START + number * self.every_ns;
            // The same numbers in every test run, most of them near the shortest and some far above it.
            let spread = number.wrapping_mul(2_654_435_761) % 1000;
            let ns = self.shortest_ns + self.shortest_ns * (spread.pow(4) / 1_000_000) / 20_000;
            let exits = profile.vcpu(self.vcpu).reasons.entry(self.reason).or_default();
            exits.count += 1;
            exits.handling.add(ns);
            profile.timeline.add(series, time_ns, Slice { count: 1, handling_ns: ns });
        }
    }
}

fn access(profile: &mut Profile, vcpu: Vcpu, access: Access, count: u64, shortest_ns: u64) {
    let exits = profile.vcpu(vcpu).accesses.entry(access).or_default();
    exits.count += count;
    (0..count).for_each(|number| exits.handling.add(shortest_ns + number * 7));
}

/// Adds an exit without an entry.
fn without_entry(profile: &mut Profile, vcpu: Vcpu, reason: ExitReason) {
    profile.vcpu(vcpu).reasons.entry(reason).or_default().count += 1;
    let series = profile.timeline.series(SeriesKey { vm: vcpu.vm, reason });
    profile.timeline.add(series, START, Slice { count: 1, handling_ns: 0 });
}

fn busy() -> Reading {
    let mut profile = Profile::new();
    let (web, second, long) = (vcpu(366, 0), vcpu(366, 1), vcpu(4_194_303, 0));
    let loads = [
        (web, MSR_WRITE, 12_115, 400_000, 27_186),
        (web, HALT, 1_768, 2_000_000, 340_000),
        (web, PORT, 900, 700_000, 37_093),
        (second, INTERRUPT, 2_438, 2_100_000, 912),
        (second, PORT, 300, 2_000_000, 41_000),
        (second, UNKNOWN, 3, SECOND, 5_300_000),
        (second, FLAGGED, 1, 1, 17),
        (long, NPF, 3_633, 1_300_000, 55_981),
        (long, NO_CODE, 40, 90_000_000, 1_250_000),
    ];
    for (vcpu, reason, count, every_ns, shortest_ns) in loads {
        Load { vcpu, reason, count, every_ns, shortest_ns }.add_to(&mut profile);
    }
    without_entry(&mut profile, web, MSR_WRITE);
    without_entry(&mut profile, second, INTERRUPT);
    let write = Direction::Write;
    access(&mut profile, web, Access::Port { port: 0x3f8, direction: write }, 900, 28_030);
    access(&mut profile, second, Access::Port { port: 0x3fd, direction: Direction::Read }, 300, 6_870);
    access(&mut profile, web, Access::Msr { number: 0x830, direction: write }, 9_000, 27_190);
    access(&mut profile, web, Access::Msr { number: 0x6e0, direction: write }, 3_115, 31_000);
    access(&mut profile, long, Access::Mmio { address: 0xd000_0490, direction: write }, 26, 38_070);
    access(&mut profile, long, Access::Apic { register: 0xb0, direction: write }, 12, 900);
    profile.names.insert(366, "web".to_owned());
    profile.names.insert(4_194_303, "a-virtual-machine-of-a-very-long-name".to_owned());
    profile.events.insert("kvm:kvm_exit".to_owned(), 21_200);
    profile.events.insert("kvm:kvm_entry".to_owned(), 21_198);
    profile.span = Some(Span { first_ns: START, last_ns: START + 5_186_419_000 });
    let origin = Origin {
        version: Some("6.12.107".to_owned()),
        host: Some("host-17".to_owned()),
        kernel: Some("6.12.107+deb13-cloud-amd64".to_owned()),
        bytes: 10_060_640,
        ..Origin::new(Format::PerfData)
    };
    Reading { profile, origin, damage: None, warnings: Vec::new() }
}

fn of(readings: Vec<(&str, Reading)>, options: Options) -> Recordings {
    let mut recordings = Recordings::new(options);
    readings.into_iter().for_each(|(name, reading)| recordings.add(name.to_owned(), reading));
    recordings
}

/// A recording without faults.
pub(crate) fn whole() -> Recordings {
    let mut reading = busy();
    reading.profile.losses.exits_at_the_end = 2;
    of(vec![("perf.data", reading)], Options::default())
}

/// A recording with every fault.
pub(crate) fn broken() -> Recordings {
    let mut reading = busy();
    reading.profile.losses = Losses {
        lost_events: 9_794,
        lost_exits: 4_288,
        exits_without_entry: 1,
        exits_at_the_end: 0,
        entries_without_exit: 53,
        pairs_across_loss: 47,
        pairs_back_in_time: 11,
        out_of_order: 11,
        undecoded: 4,
        exits_without_vcpu: 0,
    };
    reading.damage = Some(Damage { offset: 9_000_001, what: "a record of length zero".to_owned() });
    reading.warnings.push("The clock of the recording is not the monotonic one.".to_owned());
    let origin = Origin { host: Some("host-18".to_owned()), ..Origin::new(Format::TraceDat) };
    let mut other = busy();
    other.profile.span = Some(Span { first_ns: 90 * SECOND, last_ns: 91 * SECOND });
    let other = Reading { origin, ..other };
    of(vec![("one/perf.data", reading), ("two/trace.dat", other)], Options::default())
}

/// A part of one VM's recording.
pub(crate) fn part() -> Recordings {
    let options = Options { from_ns: Some(SECOND / 2), to_ns: Some(SECOND), ..Options::default() };
    let selection = Selection { vms: vec!["web".to_owned()], vcpus: vec![1] };
    of(vec![("-", busy())], options).select(selection).unwrap()
}

/// A profile with the same span, but without events.
fn empty(profile: &Profile) -> Profile {
    let mut empty = Profile::new();
    empty.span = profile.span;
    empty
}

/// A recording with events but no exits.
pub(crate) fn without_exits() -> Recordings {
    let mut reading = busy();
    reading.profile = empty(&reading.profile);
    reading.profile.events.insert("kvm:kvm_fpu".to_owned(), 1_204);
    of(vec![("perf.data", reading)], Options::default())
}

/// A recording whose selected time is after its end.
pub(crate) fn after_the_end() -> Recordings {
    let mut reading = busy();
    reading.profile = empty(&reading.profile);
    let options = Options { from_ns: Some(10 * SECOND), to_ns: Some(20 * SECOND), ..Options::default() };
    of(vec![("perf.data", reading)], options)
}

/// Names with terminal control sequences, or with several CSV fields.
pub(crate) fn hostile() -> Recordings {
    let mut reading = busy();
    reading.profile.names.insert(366, "\u{1b}]0;owned\u{7},\"x\"\n".to_owned());
    reading.origin.host = Some("\u{1b}[31m".to_owned());
    reading.warnings.push("\u{1b}[2J".to_owned());
    reading.damage = Some(Damage { offset: 1, what: "\u{1b}[2J".to_owned() });
    of(vec![("\u{1b}[1m", reading)], Options::default())
}
