//! Tests of the terminal output of `prove`, against snapshots and limits of width.

use probe::measure::Measure;
use probe::run::Arm;
use prove::synthetic::{only_off, recording};
use prove::{Disagreement, Disturbed, Failure, Plan, Proof, Recording, Warning, analyse};
use report::prove::{page, terminal};

fn full() -> Recording {
    recording(Plan { blocks: 4, samples: 100, counted_samples: 500, warm_up: 20, ..Plan::full() }, 1)
}

fn outcome() -> Proof {
    analyse(&full()).unwrap()
}

fn one_arm() -> Proof {
    let mut one = only_off(full(), "kvm_intel was loaded with enable_apicv=N");
    one.emulated = Some("Bochs 3.0".to_owned());
    analyse(&one).unwrap()
}

#[test]
fn both_arms_in_80_columns() {
    insta::assert_snapshot!(terminal(&outcome(), 80, false));
}

#[test]
fn one_arm_in_80_columns() {
    insta::assert_snapshot!(terminal(&one_arm(), 80, false));
}

#[test]
fn a_probe_in_80_columns() {
    let recording = full();
    let mut outcome = outcome();
    // The cost on a very slow emulated host.
    if let Some(cost) = &mut outcome.measures[1].cost.off {
        cost.pooled.p999 = 46_077_039.0;
        cost.pooled.maximum = 153_401_270;
    }
    let shown = report::probe::terminal(&outcome, &recording, 80);
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    insta::assert_snapshot!(shown);
}

#[test]
fn a_probe_says_what_of_a_measure_is_missing() {
    let mut recording = full();
    let why = "The guest shut down".to_owned();
    let failure = Failure { measure: Measure::Eoi, arm: Arm::On, why, counted: false };
    recording.failures = vec![failure.clone(), Failure { counted: true, ..failure }];
    let shown = report::probe::terminal(&outcome(), &recording, 80);
    for line in ["\nNot measured: eoi, on: The guest shut", "\nExits not counted: eoi, on: The guest shut"] {
        assert!(shown.contains(line), "{shown}");
    }
}

#[test]
fn a_proof_without_eois_says_nothing_of_them() {
    let mut outcome = outcome();
    let said = |outcome: &Proof| {
        let page = page(outcome, &full());
        [terminal(outcome, 80, false).contains("Exits an EOI"), page.contains("exits an EOI")]
    };
    assert_eq!(said(&outcome), [true, true]);
    outcome.evidence.exits_per_eoi = Default::default();
    assert_eq!(said(&outcome), [false, false]);
}

#[test]
fn with_every_kind_of_warning() {
    let mut outcome = outcome();
    outcome.measures.truncate(2);
    outcome.exits.reasons.truncate(1);
    let (measure, arm) = (Measure::IpiRunning, Arm::On);
    outcome.warnings = vec![
        Warning::ArmsAlike { off: 2.0, on: 1.99 },
        Warning::ArmContradicted { arm, why: "expected exits per interrupt: below 0.1".to_owned() },
        Warning::ArmsUnproved,
        Warning::SwitchUnseen,
        Warning::Failed { measure, arm, why: "The guest shut down at 0xfff0".to_owned(), counted: false },
        Warning::TooFewRuns { measure, runs: 2 },
        Warning::BrokenBlocks { measure, blocks: 1 },
        Warning::Drift { found: vec![Disturbed { measure, arm, percent: -12.3 }] },
        Warning::Outliers { found: vec![Disturbed { measure, arm, percent: 3.9 }; 2] },
        Warning::NoVariation { measure, others: Vec::new() },
        Warning::ControlMoved { measure: Measure::Cpuid, percent: 4.2 },
        Warning::Lost { measure, arm, events: 12 },
        Warning::CountsDisagree { found: vec![Disagreement { measure, arm, traced: 900, statistics: 1000 }] },
        Warning::Nested { below: "Acme Cloud".to_owned() },
        Warning::NoTracepoints { why: "tracefs may only be used by root".to_owned() },
    ];
    insta::assert_snapshot!(terminal(&outcome, 80, false));
}

#[test]
fn no_line_is_wider_than_80_columns() {
    for outcome in [outcome(), one_arm()] {
        for line in terminal(&outcome, 80, false).lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }
}

#[test]
fn colour_is_only_there_when_asked_for() {
    assert!(!terminal(&outcome(), 80, false).contains('\u{1b}'));
    assert!(terminal(&outcome(), 80, true).contains('\u{1b}'));
}

#[test]
fn a_hostile_name_cannot_speak_to_the_terminal() {
    let mut outcome = outcome();
    outcome.warnings = vec![Warning::Nested { below: "\u{1b}]0;owned\u{7}".to_owned() }];
    outcome.verdict.push_str("\u{1b}[2J");
    assert!(!terminal(&outcome, 80, false).contains('\u{1b}'));
}
