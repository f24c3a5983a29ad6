//! `exitless prove` on recordings that a generator made: its statuses are those of its help.

use std::fs::File;

use probe::measure::Measure;
use probe::run::Arm;
use probe::{Agreement, Arms};
use prove::synthetic::recording;
use prove::{Plan, Recording};

use crate::command::{err, out, run};

fn prove(recording: &Recording) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().unwrap();
    let [file, output] = ["recording.json", "report"].map(|name| folder.path().join(name));
    recording.write(File::create(&file).unwrap()).unwrap();
    let said = run(&["prove", "--recording", file.to_str().unwrap(), "--output", output.to_str().unwrap()]);
    (said.status.code(), out(&said) + &err(&said))
}

fn with_measures(measures: Vec<Measure>) -> Recording {
    recording(Plan { blocks: 2, samples: 50, measures, ..Plan::full() }, 1)
}

#[test]
fn both_arms_are_success_whatever_was_measured_in_them() {
    for measures in [vec![Measure::Eoi, Measure::Cpuid], vec![Measure::Cpuid]] {
        let (status, said) = prove(&with_measures(measures));
        assert_eq!(status, Some(0), "{said}");
        assert!(said.contains("CPUID"), "{said}");
    }
}

#[test]
fn one_arm_a_contradiction_and_no_samples_have_statuses_of_their_own() {
    for measure in [Measure::Eoi, Measure::Cpuid] {
        let mut one = with_measures(vec![measure]);
        one.arms = Arms::OnlyOff { why: "kvm_intel has enable_apicv=N".to_owned() };
        one.timed.retain(|timed| timed.run.arm == Arm::Off);
        one.counted.retain(|counted| counted.run.arm == Arm::Off);
        assert_eq!(prove(&one).0, Some(1), "{measure}");
        let mut contradicted = with_measures(vec![measure]);
        contradicted.arm_checks[1].verdict = Agreement::Contradicted;
        assert_eq!(prove(&contradicted).0, Some(3), "{measure}");
        let mut empty = with_measures(vec![measure]);
        empty.timed.clear();
        assert_eq!(prove(&empty).0, Some(125), "{measure}");
    }
}
