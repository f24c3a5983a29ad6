//! A synthetic host with three VMs, second by second.

use std::collections::BTreeMap;

use exits::{Access, Direction, ExitReason, Isa, Profile, Span, Vcpu};
use report::top::{Observation, Source, Top, VmFacts};

pub(crate) const SECOND: u64 = 1_000_000_000;
pub(crate) const WEB: u32 = 4711;
pub(crate) const DATABASE: u32 = 5200;
pub(crate) const SHORT: u32 = 6001;

const INTERRUPT: ExitReason = ExitReason::vmx(1);
const HALT: ExitReason = ExitReason::vmx(12);
const PORT: ExitReason = ExitReason::vmx(30);
const MSR_WRITE: ExitReason = ExitReason::vmx(32);
const MISCONFIG: ExitReason = ExitReason::vmx(49);

const fn vcpu(vm: u32, number: u32) -> Vcpu {
    Vcpu { vm: Some(vm), number: Some(number), thread: Some(vm + 10 + number) }
}

/// Adds `count` exits with handling times from `shortest_ns` to four times that.
fn load(profile: &mut Profile, vcpu: Vcpu, reason: ExitReason, count: u64, shortest_ns: u64) {
    let exits = profile.vcpu(vcpu).reasons.entry(reason).or_default();
    exits.count += count;
    (0..count).for_each(|number| exits.handling.add(shortest_ns + number * 3 * shortest_ns / count));
}

fn access(profile: &mut Profile, vcpu: Vcpu, access: Access, count: u64) {
    let exits = profile.vcpu(vcpu).accesses.entry(access).or_default();
    exits.count += count;
    (0..count).for_each(|number| exits.handling.add(1_500 + number));
}

/// The observation of the second with this number.
pub(crate) fn second(number: u64) -> Observation {
    let mut profile = Profile::new();
    // A load that rises and falls.
    let wave = [3, 5, 8, 9, 7, 4, 2, 1][usize::try_from(number % 8).unwrap()];
    for cpu in 0..2 {
        let web = vcpu(WEB, cpu);
        load(&mut profile, web, MSR_WRITE, 200 * wave, 1_200);
        load(&mut profile, web, INTERRUPT, 50 * wave, 2_500);
        load(&mut profile, web, HALT, 20, 12_000_000);
        load(&mut profile, web, PORT, 7, 31_000);
        let write = |number| Access::Msr { number, direction: Direction::Write };
        access(&mut profile, web, write(0x830), 120 * wave);
        access(&mut profile, web, write(0x6e0), 80 * wave);
        access(&mut profile, web, Access::Msr { number: 0x1b, direction: Direction::Read }, 3);
        access(&mut profile, web, Access::Port { port: 0x3f8, direction: Direction::Write }, 7);
    }
    for cpu in 0..4 {
        load(&mut profile, vcpu(DATABASE, cpu), MISCONFIG, 60 + u64::from(cpu), 5_000);
        load(&mut profile, vcpu(DATABASE, cpu), HALT, 1, 900_000_000);
    }
    if number < 4 {
        load(&mut profile, vcpu(SHORT, 0), HALT, 3, 100_000_000);
    }
    profile.span = Some(Span { first_ns: number * SECOND, last_ns: (number + 1) * SECOND });
    let facts = |name: &str, state: Option<&str>, is_gone| VmFacts {
        name: (!name.is_empty()).then(|| name.to_owned()),
        interrupt_virtualization: state.map(str::to_owned),
        is_gone,
        threads: None,
    };
    let facts = BTreeMap::from([
        (WEB, facts("web", Some("on"), false)),
        (DATABASE, facts("database-of-the-accounts", Some("off: HYPERV"), false)),
        (SHORT, facts("", None, number >= 4)),
    ]);
    Observation { profile, facts, cost_ns_per_exit: None }
}

pub(crate) fn source() -> Source {
    Source { isa: Isa::Vmx, mechanism: "raw tracepoints".to_owned(), missing: Vec::new() }
}

/// The page after this many seconds.
pub(crate) fn after(seconds: u64) -> Top {
    let mut top = Top::new(source(), SECOND);
    (0..seconds).for_each(|number| top.observe(second(number)));
    top
}
