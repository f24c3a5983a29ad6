//! Recordings made by a seeded generator, for tests of code that reads recordings.
//!
//! The costs are invented but typical of servers of the 2020s. Nothing was measured.

use std::collections::BTreeMap;

use exits::{ExitCounts, ExitReason, HandlingTime, InhibitReason};
use host::Fingerprint;
use live::InhibitChange;
use probe::measure::Measure;
use probe::run::{Arm, Run};
use probe::{Agreement, ArmEvidence, Arms, InhibitMechanism};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

use super::{CountedRun, FORMAT, Plan, Recording, TimedRun, Tracing};

/// Off, On, On, Off.
const BLOCK: [Arm; 4] = [Arm::Off, Arm::On, Arm::On, Arm::Off];

/// The true cost of one measure.
struct Truth {
    cycles: [f64; 2],
    /// Reason, and exits for each operation with interrupt virtualization off and on.
    exits: &'static [(ExitReason, f64, f64)],
}

const EXTERNAL_INTERRUPT: ExitReason = ExitReason::vmx(1);
const INTERRUPT_WINDOW: ExitReason = ExitReason::vmx(7);
const CPUID: ExitReason = ExitReason::vmx(10);
const HLT: ExitReason = ExitReason::vmx(12);
const IO: ExitReason = ExitReason::vmx(30);
const MSR_READ: ExitReason = ExitReason::vmx(31);
const MSR_WRITE: ExitReason = ExitReason::vmx(32);
const EPT_MISCONFIG: ExitReason = ExitReason::vmx(49);
const PREEMPTION_TIMER: ExitReason = ExitReason::vmx(52);

fn truth(measure: Measure) -> Truth {
    let (off, on, exits): (f64, f64, &'static [(ExitReason, f64, f64)]) = match measure {
        Measure::Floor => (42.0, 42.0, &[]),
        Measure::IpiRunning => (
            4720.0,
            1361.0,
            &[(MSR_WRITE, 2.0, 1.0), (INTERRUPT_WINDOW, 0.998, 0.0), (EXTERNAL_INTERRUPT, 1.02, 0.02)],
        ),
        Measure::IpiHalted => (9800.0, 7900.0, &[(MSR_WRITE, 2.0, 1.0), (HLT, 1.0, 1.0)]),
        Measure::SelfIpi => (3100.0, 240.0, &[(MSR_WRITE, 2.0, 0.0), (INTERRUPT_WINDOW, 0.1, 0.0)]),
        Measure::Eoi => (1290.0, 61.0, &[(MSR_WRITE, 2.0, 0.0)]),
        Measure::TprWrite => (55.0, 55.0, &[]),
        Measure::TimerArm => (1450.0, 1447.0, &[(MSR_WRITE, 1.0, 1.0)]),
        Measure::TimerFire => (5200.0, 3350.0, &[(MSR_WRITE, 2.0, 1.0), (PREEMPTION_TIMER, 1.0, 1.0)]),
        Measure::Cpuid => (1180.0, 1180.0, &[(CPUID, 1.0, 1.0)]),
        Measure::Hlt => (2100.0, 1890.0, &[(HLT, 1.0, 1.0)]),
        Measure::PioKernel => (1960.0, 1960.0, &[(IO, 1.0, 1.0)]),
        Measure::PioUser => (5150.0, 5150.0, &[(IO, 1.0, 1.0)]),
        Measure::MmioUser => (6020.0, 6020.0, &[(EPT_MISCONFIG, 1.0, 1.0)]),
        Measure::MmioEventfd => (2040.0, 2040.0, &[(EPT_MISCONFIG, 1.0, 1.0)]),
        Measure::MsrRead => (1330.0, 1330.0, &[(MSR_READ, 1.0, 1.0)]),
        Measure::MsrWrite => (1380.0, 1380.0, &[(MSR_WRITE, 1.0, 1.0)]),
    };
    Truth { cycles: [off, on], exits }
}

fn index(arm: Arm) -> usize {
    match arm {
        Arm::Off => 0,
        Arm::On => 1,
    }
}

/// The part of a recording that a host on which interrupt virtualization cannot be switched on would give.
#[must_use]
pub fn only_off(mut recording: Recording, why: &str) -> Recording {
    recording.arms = Arms::OnlyOff { why: why.to_owned() };
    recording.timed.retain(|timed| timed.run.arm == Arm::Off);
    recording.counted.retain(|counted| counted.run.arm == Arm::Off);
    recording
}

/// A recording of `plan` with both arms, the same for the same seed.
pub fn recording(plan: Plan, seed: u64) -> Recording {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut recording = Recording {
        format: FORMAT,
        version: "0.1.0".to_owned(),
        started: 1_750_000_000,
        took_ms: 0,
        fingerprint: fingerprint(),
        emulated: None,
        switch_cycles: None,
        plan: plan.clone(),
        arms: Arms::Both { mechanism: InhibitMechanism::BlockIrq },
        arm_checks: [Arm::On, Arm::Off].map(check).to_vec(),
        tsc_khz: Some(2_400_000),
        tracing: Tracing::Tracepoints { inhibits: true },
        timed: Vec::new(),
        counted: Vec::new(),
        failures: Vec::new(),
        at_other_costs: Vec::new(),
    };
    let mut clock = 0;
    let mut position = 0;
    for &measure in &plan.measures {
        for block in 0..plan.blocks {
            for arm in BLOCK {
                let run = run(&plan, measure, arm, plan.samples, &mut random);
                let took_us = run.cycles.iter().sum::<u64>() / 2400 + 150;
                let timed = TimedRun { position, block, began_us: clock, took_us, run };
                recording.timed.push(timed);
                clock += took_us + 400;
                position += 1;
            }
        }
        for arm in [Arm::On, Arm::Off] {
            recording.counted.push(counted(&plan, measure, arm, position, &mut random));
            position += 1;
        }
    }
    recording.took_ms = clock / 1000;
    recording
}

fn run(plan: &Plan, measure: Measure, arm: Arm, samples: u32, random: &mut ChaCha8Rng) -> Run {
    let truth = truth(measure).cycles[index(arm)];
    let of_run = 1.0 + 0.008 * bell(random);
    let cycles = (0..samples)
        .map(|_| {
            let tail = if random.random_bool(0.004) { random.random_range(2.0..9.0) } else { 1.0 };
            // The TSC of this invented machine advances in steps of two.
            let value: f64 = truth * of_run * tail * (1.0 + 0.03 * bell(random).abs());
            (value / 2.0).round() as u64 * 2
        })
        .collect();
    let target = measure.needs_target().then_some(1);
    Run { measure, arm, target, warm_up: plan.warm_up, cycles, statistics: BTreeMap::new() }
}

fn counted(plan: &Plan, measure: Measure, arm: Arm, position: u32, random: &mut ChaCha8Rng) -> CountedRun {
    let mut run = run(plan, measure, arm, plan.counted_samples, random);
    let operations = f64::from(plan.warm_up + plan.counted_samples);
    let mut exits = ExitCounts::new();
    let mut handling = BTreeMap::new();
    for &(reason, off, on) in truth(measure).exits {
        let count = ([off, on][index(arm)] * operations).round() as u64;
        exits.add(reason, count);
        let mut time = HandlingTime::new();
        (0..count).for_each(|_| time.add(random.random_range(400..700)));
        handling.insert(reason, time);
    }
    exits.add(EXTERNAL_INTERRUPT, random.random_range(1..4));
    run.statistics.insert("exits".to_owned(), exits.total() + 2);
    let inhibits = vec![InhibitChange {
        time_ns: u64::from(position) * 1_000_000,
        thread: 4711,
        set: arm == Arm::Off,
        number: 3,
        reason: Some(InhibitReason::BlockIrq),
        mask: None,
    }];
    CountedRun { position, run, exits: Some(exits), handling, inhibits }
}

fn check(arm: Arm) -> ArmEvidence {
    let rate = if arm == Arm::Off { 2.0 } else { 0.0 };
    ArmEvidence {
        arm,
        interrupts: 272,
        exits: Some((rate * 272.0) as u64),
        exits_per_interrupt: Some(rate),
        verdict: Agreement::Confirmed,
        note: String::new(),
    }
}

/// A sum of uniform numbers, which approximates a normal distribution with standard deviation 1.
fn bell(random: &mut ChaCha8Rng) -> f64 {
    (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0
}

fn fingerprint() -> Fingerprint {
    let parameter = |name: &str, value: &str| (name.to_owned(), Some(value.to_owned()));
    Fingerprint {
        kernel_release: Some("6.12.0-example".to_owned()),
        kernel_version: Some("#1 SMP PREEMPT_DYNAMIC".to_owned()),
        architecture: Some("x86_64".to_owned()),
        online_cpus: Some(64),
        memory_mib: Some(262_144),
        modules: BTreeMap::from([
            ("kvm".to_owned(), BTreeMap::from([parameter("halt_poll_ns", "200000")])),
            (
                "kvm_intel".to_owned(),
                BTreeMap::from([parameter("enable_apicv", "Y"), parameter("enable_ipiv", "N")]),
            ),
        ]),
        cmdline: Some("BOOT_IMAGE=/vmlinuz root=/dev/sda1 ro quiet".to_owned()),
        lockdown: Some("none".to_owned()),
        clocksource: Some("tsc".to_owned()),
        ..Fingerprint::default()
    }
}
