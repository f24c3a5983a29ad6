use ::probe::run::Arm;

use super::super::Scene;
use super::super::testing::{as_printed, not_understood, parsed, plan, probed, refused};
use super::*;
use prove::{Failure, Plan, synthetic};

const EOI: &str = "tool = \"probe\"\nmeasure = \"eoi\"";

#[test]
fn both_arms_give_cycles_and_exits_for_each_operation() {
    let figures = |arm| {
        let found = parsed(&plan(EOI), &probed(Measure::Eoi, arm)).unwrap();
        move |name: &str| found.iter().find(|(other, _)| other == name).map(|(_, value)| *value)
    };
    let (on, off) = (figures(Arm::On), figures(Arm::Off));
    assert!(on("cycles.median") < off("cycles.median"));
    assert!(on("cycles.p99") >= on("cycles.median"));
    assert!(on("exits") < off("exits"));
    assert!(off("exits").unwrap() > 0.0);
}

#[test]
fn exits_by_reason_add_up_to_all() {
    let found = parsed(&plan(EOI), &probed(Measure::Eoi, Arm::Off)).unwrap();
    let all = found.iter().find(|(name, _)| name == "exits").unwrap().1;
    let sum: f64 = found.iter().filter(|(name, _)| name.starts_with("exits.")).map(|(_, value)| value).sum();
    assert!((all - sum).abs() < 1e-9, "{found:?}");
}

#[test]
fn a_measure_that_failed_is_no_figure() {
    let mut recording = synthetic::recording(Plan { measures: vec![Measure::Eoi], ..Plan::quick() }, 1);
    let why = "the guest stood still".to_owned();
    recording.failures.push(Failure { measure: Measure::Eoi, arm: Arm::On, counted: false, why });
    let error = not_understood(EOI, &as_printed(&recording));
    assert_eq!((error.expected.as_str(), error.found.as_str()), ("samples of eoi", "the guest stood still"));
    recording.failures[0].counted = true;
    assert_eq!(not_understood(EOI, &as_printed(&recording)).expected, "a count of exits");
    let error = not_understood(EOI, &probed(Measure::Cpuid, Arm::On));
    assert_eq!((error.expected.as_str(), error.found.as_str()), ("samples of eoi", "none"));
    assert!(not_understood(EOI, "").expected.contains("exitless probe"));
}

#[test]
fn the_arm_is_that_of_the_level() {
    for (level, arm) in [(Some(Switch::On), "on"), (Some(Switch::Off), "off"), (None, "host")] {
        let scene = Scene { interrupt_virtualization: level, ..Scene::default() };
        let script = plan(EOI).steps(&scene).run[0].script.clone();
        let line = format!(
            " probe --arm {arm} --measure eoi --samples 2000 --warm-up 200 --vcpus 2 --blocks 1 --json\n"
        );
        assert!(script.ends_with(&line), "{script}");
    }
}

#[test]
fn settings_that_cannot_work_are_refused_by_field() {
    for (more, expected) in [("samples = 0", "samples must be"), ("vcpus = 1", "vcpus must be 2")] {
        let refused = refused(&format!("{EOI}\n{more}"));
        assert!(refused.contains(expected), "{refused}");
    }
    assert!(refused("tool = \"probe\"\nmeasure = \"ioe\"").contains("unknown variant"));
}

#[test]
fn the_cycles_are_those_that_a_proof_would_say() {
    let printed = probed(Measure::Eoi, Arm::On);
    let recording = serde_json::from_str::<Whole>(&printed).unwrap().recording;
    let pooled = prove::analyse(&recording).unwrap().measures[0].cost.on.unwrap().pooled;
    let found = parsed(&plan(EOI), &printed).unwrap();
    for (name, expected) in [("cycles.median", pooled.median), ("cycles.p99", pooled.p99)] {
        assert_eq!(
            found.iter().find(|(other, _)| other == name).map(|(_, value)| *value),
            Some(expected),
            "{name}"
        );
    }
}
