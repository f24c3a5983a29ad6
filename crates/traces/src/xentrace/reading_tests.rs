use super::*;
use crate::input::Failure;
use crate::xentrace::writing::Written;
use crate::{Damage, ExitRecord};
use exits::{Access, Direction, ExitReason, Isa, Vcpu};
use proptest::prelude::*;

const D1V0: (u32, u32) = (1, 0);
const D2V1: (u32, u32) = (2, 1);
const IDLE0: (u32, u32) = (0x7fff, 0);
const CPUID: ExitReason = ExitReason::svm(0x72);
const HLT: ExitReason = ExitReason::svm(0x78);
const IOIO: ExitReason = ExitReason::svm(0x7b);

/// One tick is a nanosecond.
fn exact() -> Options {
    Options { tsc_hz: Some(1_000_000_000), ..Options::default() }
}

fn read_with(bytes: &[u8], options: Options) -> Result<(Reading, Vec<ExitRecord>), Error> {
    let survey = Survey::of(bytes);
    let records = Records::new(Box::new(std::io::Cursor::new(bytes.to_vec())), Failure::default());
    let mut exits = Vec::new();
    let mut take = |exit: &ExitRecord| exits.push(*exit);
    let reading = read_records(records, "a.trace".into(), &survey, options, &mut take)?;
    Ok((reading, exits))
}

fn read(written: &Written) -> (Reading, Vec<ExitRecord>) {
    read_with(&written.bytes, exact()).unwrap()
}

fn vcpu((domain, number): (u32, u32)) -> Vcpu {
    Vcpu { vm: Some(domain), number: Some(number), thread: None }
}

fn unknown_on(cpu: u32) -> Vcpu {
    Vcpu { vm: None, number: Some(cpu), thread: None }
}

/// The vCPU, reason and handling time of each exit, in order of time.
fn times(exits: &[ExitRecord]) -> Vec<(Vcpu, ExitReason, Option<u64>)> {
    let mut exits = exits.to_vec();
    exits.sort_by_key(|exit| exit.time_ns);
    exits.iter().map(|exit| (exit.vcpu, exit.reason, exit.handling_ns)).collect()
}

#[path = "doubtful_tests.rs"]
mod doubtful;

#[test]
fn a_vcpu_that_changes_processors_is_followed() {
    // It leaves CPU 1 by a HLT, is woken by CPU 0 and continues there; the file has CPU 0 first.
    let written = Written::new()
        .window(0)
        .change(50, 0x7fff, 0, 0, 0)
        .change(150, 1, 0, 2, 1)
        .switch(200, IDLE0, 1, D1V0)
        .entry(210)
        .exit(300, 0x72)
        .entry(310)
        .window(1)
        .switch(20, (0x7fff, 1), 1, D1V0)
        .entry(30)
        .exit(100, 0x78)
        .then(0x0008_2013, &[0])
        .switch(110, D1V0, 2, (0x7fff, 1));
    let (reading, exits) = read(&written);
    assert_eq!(times(&exits), [(vcpu(D1V0), HLT, Some(50)), (vcpu(D1V0), CPUID, Some(10))]);
    assert_eq!((exits[0].cpu, exits[1].cpu, exits[0].guest_rip), (1, 0, 0x1000));
    assert_eq!(reading.warnings, [""; 0]);
    assert!(reading.profile.losses.is_whole());
    assert_eq!(reading.profile.losses.entries_without_exit, 1);
    assert_eq!(reading.profile.events["hvm_svm_exit"], 2);
    assert_eq!(reading.profile.events["sched_runstate_change"], 8);
    assert_eq!(reading.origin.bytes, written.bytes.len() as u64);
}

#[test]
fn vcpus_beyond_the_limit_are_counted_together_and_end_no_exits_of_others() {
    let mut written = Written::new().window(1).entry(5);
    for number in 0..crate::assembly::MOST_THREADS as u32 {
        if number % 4096 == 0 {
            written = written.window(0);
        }
        written = written.change(10 + u64::from(number), 1 + number / 4, number % 4, 2, 1);
    }
    let further = (20_000, 0);
    let written = written
        .window(1)
        .exit(100_000, 0x72)
        .change(100_010, further.0, further.1, 2, 1)
        .entry(100_030)
        .window(0)
        .switch(100_040, IDLE0, 1, further)
        .exit(100_050, 0x78)
        .entry(100_060);
    let (reading, exits) = read_with(&written.bytes, Options { isa: Some(Isa::Svm), ..exact() }).unwrap();
    assert_eq!(times(&exits), [(unknown_on(1), CPUID, Some(30)), (Vcpu::default(), HLT, None)]);
    let warned = |words: &str| reading.warnings.iter().any(|warning| warning.contains(words));
    assert!(warned("; 1 exit of further ones count for no VM"), "{:?}", reading.warnings);
    assert!(warned("Of 2 exits 1 belong to unknown domains"), "{:?}", reading.warnings);
}

#[test]
fn waiting_for_a_processor_is_not_handling() {
    let written = Written::new()
        .window(0)
        .switch(10, IDLE0, 1, D1V0)
        .entry(20)
        .exit(30, 0x60)
        .switch(40, D1V0, 1, D2V1)
        .entry(50)
        .exit(60, 0x72)
        .entry(65)
        .exit(70, 0x60)
        .switch(80, D2V1, 1, D1V0)
        .entry(90);
    let (reading, exits) = read(&written);
    let interrupt = ExitReason::svm(0x60);
    let expected =
        [(vcpu(D1V0), interrupt, Some(10)), (vcpu(D2V1), CPUID, Some(5)), (vcpu(D2V1), interrupt, Some(10))];
    assert_eq!(times(&exits), expected);
    // The last exit was handled, although the recording does not have its entry.
    assert_eq!(reading.profile.losses.exits_at_the_end, 0);
}

#[test]
fn what_a_device_model_answers_belongs_to_its_exit() {
    let written = Written::new()
        .window(0)
        .switch(10, IDLE0, 1, D1V0)
        .exit(30, 0x7b)
        .switch(40, D1V0, 3, IDLE0)
        .change(100, 1, 0, 3, 1)
        .switch(200, IDLE0, 1, D1V0)
        .then(0x0008_2016, &[0xcfc, 7])
        .entry(210);
    let (reading, exits) = read(&written);
    let port = Access::Port { port: 0xcfc, direction: Direction::Read };
    assert_eq!((exits[0].reason, exits[0].handling_ns, exits[0].access), (IOIO, Some(70), Some(port)));
    let access = &reading.profile.vcpus()[0].accesses[&port];
    assert_eq!((access.count, access.handling.total_ns()), (1, 70));
}

#[test]
fn accesses_of_all_kinds_take_the_whole_exit() {
    let access = |event, words: &[u32]| {
        let written = Written::new().window(0).exit(100, 0x400).then(event, words).entry(130);
        let (reading, exits) = read(&written);
        let accesses = &reading.profile.vcpus()[0].accesses;
        assert_eq!(accesses.values().map(|exits| exits.handling.total_ns()).sum::<u64>(), 30);
        assert_eq!(accesses.keys().next().copied(), exits[0].access);
        exits[0].access.unwrap().to_string()
    };
    assert_eq!(access(0x0008_2016, &[0x3f8, 1]), "0x3f8:PIN");
    assert_eq!(access(0x0008_2216, &[0x1f0]), "0x1f0:POUT");
    assert_eq!(access(0x0008_2017, &[0xf000_0010, 1]), "0xf0000010:R");
    assert_eq!(access(0x0008_2217, &[0xf000_0010, 1]), "0xf0000010:W");
    assert_eq!(access(0x0008_2117, &[0x10, 0xfe, 1]), "0xfe00000010:R");
    assert_eq!(access(0x0008_2317, &[0x10, 0xfe, 1, 0]), "0xfe00000010:W");
    assert_eq!(access(0x0008_2217, &[0xfee0_00b0, 0]), "apic EOI:W");
    assert_eq!(access(0x0008_2017, &[0xfee0_0020, 0]), "apic ID:R");
    assert_eq!(access(0x0008_200c, &[0x830, 0, 0]), "ICR:R");
    assert_eq!(access(0x0008_200d, &[0x830, 0, 0]), "ICR:W");
}

#[test]
fn the_first_events_of_a_processor_are_of_the_vcpu_that_leaves_first() {
    let written = Written::new()
        .window(0)
        .entry(10)
        .exit(20, 0x72)
        .then(0x0008_200e, &[1, 0, 0, 0, 0, 0])
        .entry(30)
        .exit(40, 0x60)
        .window(1)
        .exit(35, 0x7c)
        .entry(37)
        .window(0)
        .switch(50, D1V0, 1, D2V1)
        .entry(60)
        .window(1)
        .at(70, 0x0002_1002, &[3 << 16 | 5]);
    let (reading, exits) = read(&written);
    let expected = [
        (vcpu(D1V0), CPUID, Some(10)),
        (vcpu((3, 5)), ExitReason::svm(0x7c), Some(2)),
        (vcpu(D1V0), ExitReason::svm(0x60), Some(10)),
    ];
    assert_eq!(times(&exits), expected);
    assert_eq!(reading.warnings, [""; 0]);
}

#[test]
fn whoever_says_nothing_for_two_rounds_stays_unknown() {
    let mut written = Written::new().window(0).switch(10, IDLE0, 1, D1V0).window(1);
    for round in 0..3 {
        let now = 100 * round;
        written = written.exit(now + 20, 0x72).entry(now + 25).window(0).exit(now + 30, 0x78);
        written = written.entry(now + 31).window(1);
    }
    let (reading, exits) = read(&written.change(900, 2, 1, 0, 2));
    assert_eq!(exits.iter().filter(|exit| exit.vcpu == unknown_on(1)).count(), 3);
    assert_eq!(exits.iter().filter(|exit| exit.vcpu == vcpu(D1V0)).count(), 3);
    assert!(reading.warnings[0].starts_with("Of 6 exits 3 belong to unknown domains"));
}

#[test]
fn without_scheduler_events_processors_stand_for_vcpus() {
    let written = Written::new().window(0).exit(1, 0x72).entry(3).window(2).exit(2, 0x78).entry(9);
    // Nothing would show that this vCPU leaves, so that it was there tells nothing.
    let written = written.window(0).lost(20, 7, 1, 0, 15).exit(30, 0x72).entry(31);
    let (reading, exits) = read(&written);
    let expected =
        [(unknown_on(0), CPUID, Some(2)), (unknown_on(2), HLT, Some(7)), (unknown_on(0), CPUID, Some(1))];
    assert_eq!(times(&exits), expected);
    assert!(reading.warnings[0].contains("`xentrace -e 0xaf000`"));
    assert_eq!(reading.profile.losses.lost_events, 7);
}

#[test]
fn switches_do_where_there_are_no_runstates() {
    let switch = |from: (u32, u32), to: (u32, u32)| [from.0, from.1, to.0, to.1];
    let written = Written::new()
        .window(0)
        .exit(10, 0x72)
        .entry(13)
        .at(20, 0x0002_800a, &switch(D1V0, D2V1))
        .exit(30, 0x78)
        .at(40, 0x0002_f00a, &switch(D2V1, IDLE0))
        .at(50, 0x0002_800a, &switch(IDLE0, D2V1))
        .entry(60);
    let (_, exits) = read(&written);
    assert_eq!(times(&exits), [(vcpu(D1V0), CPUID, Some(3)), (vcpu(D2V1), HLT, Some(30))]);
}

#[test]
fn no_time_is_taken_across_lost_records() {
    // Between the HLT of d1v0 on CPU 1 and its wakeup, it may have run on CPU 0 unseen.
    let written = Written::new()
        .window(0)
        .switch(5, IDLE0, 1, D2V1)
        .exit(100, 0x72)
        .window(1)
        .switch(5, (0x7fff, 1), 1, D1V0)
        .exit(150, 0x78)
        .switch(160, D1V0, 2, (0x7fff, 1))
        .window(0)
        .lost(300, 40, 2, 1, 120)
        .entry(310)
        .exit(320, 0x72)
        .entry(325)
        .window(1)
        .change(250, 1, 0, 2, 1)
        .switch(260, (0x7fff, 1), 1, D1V0)
        .entry(270)
        .exit(280, 0x72)
        .entry(281);
    let (reading, exits) = read(&written);
    let expected = [
        (vcpu(D2V1), CPUID, None),
        (vcpu(D1V0), HLT, None),
        (vcpu(D1V0), CPUID, Some(1)),
        (vcpu(D2V1), CPUID, Some(5)),
    ];
    assert_eq!(times(&exits), expected);
    let losses = reading.profile.losses;
    assert_eq!((losses.lost_events, losses.pairs_across_loss, losses.exits_without_entry), (40, 2, 0));
}

#[test]
fn after_lost_records_the_recorder_may_be_wrong_about_a_vcpu_that_just_left() {
    let written = Written::new()
        .window(0)
        .switch(5, IDLE0, 1, D1V0)
        .exit(10, 0x78)
        .lost(30, 3, 1, 0, 12)
        // The record of d1v0 leaving was lost, that of d2v1 entering was not.
        .change(31, 2, 1, 1, 0)
        .entry(40)
        .exit(50, 0x72)
        .entry(52);
    let (_, exits) = read(&written);
    assert_eq!(times(&exits), [(vcpu(D1V0), HLT, None), (vcpu(D2V1), CPUID, Some(2))]);
}
