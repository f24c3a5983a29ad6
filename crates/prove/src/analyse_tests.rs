//! Tests of outcomes: each changes one thing in a recording.

use conclusions::RelativeChange;
use exits::{ExitCounts, ExitReason};
use probe::{Agreement, InhibitMechanism};

use super::*;
use crate::synthetic::{only_off, recording};
use crate::{Failure, Judgement, Plan};

fn sample() -> Recording {
    recording(Plan { blocks: 4, samples: 100, ..Plan::full() }, 1)
}

fn analysed(recording: &Recording) -> Proof {
    analyse(recording).unwrap()
}

fn scaled(recording: &mut Recording, measure: Measure, arm: Arm, factor: f64) {
    for timed in &mut recording.timed {
        if timed.run.measure == measure && timed.run.arm == arm {
            for cycles in &mut timed.run.cycles {
                *cycles = (*cycles as f64 * factor).round() as u64;
            }
        }
    }
}

fn of(outcome: &Proof, measure: Measure) -> &MeasureOutcome {
    outcome.measures.iter().find(|row| row.measure == measure).unwrap()
}

#[test]
fn a_gain_is_worth_it_and_its_figures_are_right() {
    let outcome = analysed(&sample());
    assert_eq!((outcome.judgement, outcome.headline), (Judgement::WorthIt, Some(Measure::IpiRunning)));
    let ipi = of(&outcome, Measure::IpiRunning);
    let difference = ipi.difference.unwrap();
    let interval = difference.interval.unwrap();
    let truth = (1361.0 / 4720.0 - 1.0) * 100.0;
    assert!(interval.low <= truth && truth <= interval.high, "{difference:?}");
    assert_eq!((ipi.effect, difference.pairs), (Effect::Fewer, 8));
    assert_eq!(ipi.cost.off.unwrap().runs, 8);
    assert_eq!(ipi.cost.off.unwrap().pooled.samples, 800);
    assert!(ipi.p_value.unwrap() < 0.01);
    let window = &ipi.exits.reasons.iter().find(|row| row.reason == ExitReason::vmx(7)).unwrap();
    assert_eq!(window.change, Some(RelativeChange::Percent(-100.0)));
    assert!((window.per_operation.off.unwrap() - 0.998).abs() < 0.01);
    assert!(
        outcome.verdict.starts_with("Interrupt virtualization is worth it here: 71.2 % fewer cycles per IPI"),
        "{}",
        outcome.verdict
    );
    assert!(outcome.verdict.contains("8 runs an arm) and"), "{}", outcome.verdict);
    let no_variation = |warning: &Warning| matches!(warning, Warning::NoVariation { .. });
    assert!(outcome.warnings.iter().all(no_variation), "{:?}", outcome.warnings);
}

#[test]
fn no_difference_is_not_called_one() {
    let mut same = sample();
    same.plan.measures = vec![Measure::IpiRunning];
    same.timed.retain(|timed| timed.run.measure == Measure::IpiRunning);
    scaled(&mut same, Measure::IpiRunning, Arm::On, 4720.0 / 1361.0);
    let outcome = analysed(&same);
    assert_eq!(outcome.judgement, Judgement::NoDifference, "{}", outcome.verdict);
    assert!(outcome.verdict.starts_with("No significant difference"), "{}", outcome.verdict);
}

#[test]
fn a_loss_is_said_to_be_one() {
    let mut worse = sample();
    worse.plan.measures = vec![Measure::IpiHalted];
    scaled(&mut worse, Measure::IpiHalted, Arm::On, 2.0);
    let outcome = analysed(&worse);
    assert_eq!(outcome.judgement, Judgement::Worse);
    assert!(outcome.verdict.contains("costs more than it saves here: 6"), "{}", outcome.verdict);
    assert!(outcome.verdict.contains("% more cycles per IPI to a halted vCPU"), "{}", outcome.verdict);
}

#[test]
fn gains_and_losses_are_both_named() {
    let mut mixed = sample();
    scaled(&mut mixed, Measure::IpiHalted, Arm::On, 2.0);
    let outcome = analysed(&mixed);
    assert_eq!(outcome.judgement, Judgement::Mixed);
    assert!(outcome.verdict.contains(", but 6"), "{}", outcome.verdict);
}

#[test]
fn one_arm_is_compared_with_nothing() {
    let outcome = analysed(&only_off(sample(), "kvm_intel has enable_apicv=N."));
    assert_eq!(outcome.judgement, Judgement::OneArm);
    assert!(outcome.verdict.contains("(kvm_intel has enable_apicv=N); IPI to a running vCPU takes 4,8"));
    assert!(of(&outcome, Measure::Eoi).difference.is_none());
    assert!(outcome.exits.traced.off.unwrap() > 0);
    assert_eq!(outcome.exits.change, None);
}

#[test]
fn measures_that_are_not_of_interrupts_give_no_verdict_of_them() {
    let mut others = sample();
    others.plan.measures = vec![Measure::Cpuid];
    others.timed.retain(|timed| timed.run.measure == Measure::Cpuid);
    let outcome = analysed(&others);
    assert_eq!((outcome.judgement, outcome.headline), (Judgement::Nothing, None));
    assert!(of(&outcome, Measure::Cpuid).difference.is_some());
    let others = only_off(others, "kvm_intel has enable_apicv=N.");
    assert_eq!(analysed(&others).judgement, Judgement::OneArm);
}

#[test]
fn two_blocks_give_an_interval_and_one_does_not() {
    let outcome = analysed(&recording(Plan { blocks: 1, ..Plan::quick() }, 1));
    assert_eq!(outcome.judgement, Judgement::TooFewRuns);
    assert!(outcome.verdict.contains("no interval, 2 runs an arm"), "{}", outcome.verdict);
    assert!(outcome.warnings.contains(&Warning::TooFewRuns { measure: Measure::Eoi, runs: 2 }));
    let outcome = analysed(&recording(Plan { blocks: 2, ..Plan::quick() }, 1));
    assert_eq!(outcome.judgement, Judgement::WorthIt);
}

#[test]
fn arms_that_exit_alike_give_no_verdict() {
    let mut alike = sample();
    let off = alike.counted_run(Measure::Eoi, Arm::Off).unwrap().exits.clone();
    for counted in &mut alike.counted {
        if counted.run.measure == Measure::Eoi && counted.run.arm == Arm::On {
            counted.exits.clone_from(&off);
        }
    }
    let outcome = analysed(&alike);
    assert_eq!(outcome.judgement, Judgement::Contradicted);
    assert!(outcome.warnings[0].is_grave());
}

#[test]
fn a_check_that_contradicts_its_arm_gives_no_verdict() {
    let mut contradicted = sample();
    contradicted.arm_checks[1].verdict = Agreement::Contradicted;
    contradicted.arm_checks[1].note = "expected at least 0.9, counted 0.0".to_owned();
    let outcome = analysed(&contradicted);
    assert_eq!(outcome.judgement, Judgement::Contradicted);
    let why = "expected at least 0.9, counted 0.0".to_owned();
    assert_eq!(outcome.warnings[0], Warning::ArmContradicted { arm: Arm::Off, why });
    // Each arm's warning has the note of its own check.
    contradicted.arm_checks[0].verdict = Agreement::Contradicted;
    contradicted.arm_checks[0].note = "expected below 0.1, counted 1.0".to_owned();
    let expected =
        [(Arm::Off, "expected at least 0.9, counted 0.0"), (Arm::On, "expected below 0.1, counted 1.0")];
    let expected = expected.map(|(arm, why)| Warning::ArmContradicted { arm, why: why.to_owned() });
    assert_eq!(analysed(&contradicted).warnings[..2], expected);
}

#[test]
fn a_switch_that_the_kernel_did_not_report_is_a_warning() {
    let mut unseen = sample();
    unseen.counted.iter_mut().for_each(|counted| counted.inhibits.clear());
    assert!(analysed(&unseen).warnings.contains(&Warning::SwitchUnseen));
    assert_eq!(analysed(&unseen).evidence.mechanism, Some(InhibitMechanism::BlockIrq));
}

#[test]
fn lost_events_and_disagreeing_counts_are_warnings() {
    let mut lossy = sample();
    for counted in &mut lossy.counted {
        if counted.run.measure == Measure::Hlt && counted.run.arm == Arm::On {
            counted.exits.as_mut().unwrap().lost = 7;
            counted.run.statistics.insert("exits".to_owned(), 9_999);
        }
    }
    let outcome = analysed(&lossy);
    assert!(outcome.warnings.contains(&Warning::Lost { measure: Measure::Hlt, arm: Arm::On, events: 7 }));
    assert_eq!(outcome.exits.lost, ArmPair { off: 0, on: 7 });
    let disagree = |warning: &Warning| match warning {
        Warning::CountsDisagree { found } => found.iter().any(|at| at.statistics == 9_999),
        _ => false,
    };
    assert!(outcome.warnings.iter().any(disagree));
}

#[test]
fn without_tracepoints_kvm_itself_is_believed() {
    let mut untraced = sample();
    untraced.tracing = Tracing::Statistics { why: "tracefs may only be used by root".to_owned() };
    for counted in &mut untraced.counted {
        counted.exits = None;
        counted.inhibits.clear();
    }
    let outcome = analysed(&untraced);
    assert_eq!(outcome.exits.reasons, []);
    assert_eq!(outcome.exits.traced.off, None);
    assert!(outcome.exits.statistics.off.unwrap() > 0);
    assert!(outcome.verdict.contains("fewer VM exits over all measures"), "{}", outcome.verdict);
    assert_eq!(outcome.evidence.inhibit_events, None);
    assert!(!outcome.warnings.contains(&Warning::SwitchUnseen));
}

#[test]
fn tracepoints_that_saw_nothing_are_not_believed() {
    let mut silent = sample();
    for counted in &mut silent.counted {
        counted.exits = Some(ExitCounts::new());
    }
    let outcome = analysed(&silent);
    assert_eq!(outcome.exits.traced.off, None);
    assert!(outcome.warnings.iter().any(|warning| matches!(warning, Warning::NoTracepoints { .. })));
    assert!(outcome.verdict.contains("fewer VM exits"), "{}", outcome.verdict);
}

#[test]
fn a_moved_control_and_a_drift_are_warnings() {
    let mut moved = sample();
    scaled(&mut moved, Measure::Cpuid, Arm::On, 1.2);
    for timed in &mut moved.timed {
        if timed.run.measure == Measure::Eoi && timed.block >= 2 {
            timed.run.cycles.iter_mut().for_each(|cycles| *cycles *= 2);
        }
    }
    let warnings = analysed(&moved).warnings;
    let is_control =
        |warning: &Warning| matches!(warning, Warning::ControlMoved { measure: Measure::Cpuid, .. });
    assert!(warnings.iter().any(is_control));
    let drifts = warnings.iter().find_map(|warning| match warning {
        Warning::Drift { found } => Some(found.iter().map(|drift| (drift.measure, drift.arm)).collect()),
        _ => None,
    });
    assert_eq!(drifts, Some(vec![(Measure::Eoi, Arm::Off), (Measure::Eoi, Arm::On)]));
}

#[test]
fn an_emulator_is_named_in_the_verdict() {
    let verdict_under = |emulator: &str| {
        let recording = Recording { emulated: Some(emulator.to_owned()), ..sample() };
        analysed(&recording).verdict
    };
    let verdict = verdict_under("Bochs 3.0");
    assert!(verdict.ends_with("instructions of an emulator (Bochs 3.0), not time on hardware."), "{verdict}");
    let verdict = verdict_under("QEMU TCG 10.0.13");
    assert!(
        verdict.ends_with("eighths of an emulator's instruction (QEMU TCG 10.0.13), not time on hardware."),
        "{verdict}"
    );
    let charged = Recording { emulated: Some("Bochs 3.0".to_owned()), switch_cycles: Some(1350), ..sample() };
    let verdict = analysed(&charged).verdict;
    let switch = "(Bochs 3.0), 1,350 instructions for a switch, not time on hardware";
    assert!(verdict.contains(switch), "{verdict}");
    let mut named = sample();
    named.fingerprint.virtualization = Some("Bochs Bochs".to_owned());
    assert_eq!(analysed(&named).emulated.as_deref(), Some("Bochs"));
    named.fingerprint.virtualization = Some("Acme Cloud".to_owned());
    assert!(analysed(&named).warnings.contains(&Warning::Nested { below: "Acme Cloud".to_owned() }));
}

#[test]
fn a_measure_that_failed_in_one_arm_counts_in_neither() {
    let mut failed = sample();
    failed.counted.retain(|counted| counted.run.measure != Measure::PioUser || counted.run.arm == Arm::Off);
    failed.failures.push(Failure {
        measure: Measure::PioUser,
        arm: Arm::On,
        why: "the guest shut down".to_owned(),
        counted: true,
    });
    let (before, after) = (analysed(&sample()).exits, analysed(&failed).exits);
    assert!(after.traced.off < before.traced.off);
    let said = ", on: its exits were not counted. the guest shut down";
    assert!(analysed(&failed).warnings.iter().any(|warning| warning.to_string().ends_with(said)));
}

#[test]
fn nothing_at_all_is_an_error_with_the_cause() {
    let mut empty = sample();
    empty.timed.clear();
    let why = "no /dev/kvm".to_owned();
    empty.failures.push(Failure { measure: Measure::Eoi, arm: Arm::Off, why, counted: false });
    let error = analyse(&empty).unwrap_err().to_string();
    assert_eq!(error, "The recording holds no samples: eoi: no /dev/kvm");
}
