//! `exitless prove` on recordings that a generator made: the exit statuses are those in its help.

use std::fs::File;

use probe::Agreement;
use probe::measure::Measure;
use prove::synthetic::{only_off, recording};
use prove::{Plan, Recording};

use crate::command::{command, err, out, run};

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
fn options_of_a_measurement_are_refused_with_a_recording() {
    let options: [&[&str]; 10] = [
        &["--measure", "eoi"],
        &["--vcpus", "2"],
        &["--irqchip", "split"],
        &["--apic", "x2apic"],
        &["--samples", "10"],
        &["--warm-up", "1"],
        &["--blocks", "2"],
        &["--no-pin"],
        &["--switch-cycles", "500"],
        &["--timings"],
    ];
    for option in options {
        let said = run(&[&["prove", "--recording", "r.json"][..], option].concat());
        assert_eq!(said.status.code(), Some(2), "{option:?}");
        assert!(err(&said).contains("cannot be used with"), "{option:?}: {}", err(&said));
    }
}

#[test]
fn one_arm_a_contradiction_and_no_samples_have_statuses_of_their_own() {
    for measure in [Measure::Eoi, Measure::Cpuid] {
        let one = only_off(with_measures(vec![measure]), "kvm_intel has enable_apicv=N");
        assert_eq!(prove(&one).0, Some(1), "{measure}");
        let mut contradicted = with_measures(vec![measure]);
        contradicted.arm_checks[1].verdict = Agreement::Contradicted;
        assert_eq!(prove(&contradicted).0, Some(3), "{measure}");
        let mut empty = with_measures(vec![measure]);
        empty.timed.clear();
        assert_eq!(prove(&empty).0, Some(125), "{measure}");
    }
}

#[test]
fn a_folder_that_cannot_be_made_is_found_before_anything_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let output = file.join("results");
    let mut command = command(&["prove", "--lab", "intel-apicv", "--output", output.to_str().unwrap()]);
    let said = command.env("XDG_CACHE_HOME", folder.path()).output().unwrap();
    assert_eq!(said.status.code(), Some(125), "{}", err(&said));
    assert!(err(&said).contains("Could not create") && !err(&said).contains("Building"), "{}", err(&said));
}

#[test]
fn results_that_cannot_be_written_are_shown() {
    let folder = tempfile::tempdir().unwrap();
    let [file, output] = ["recording.json", "file"].map(|name| folder.path().join(name));
    with_measures(vec![Measure::Eoi]).write(File::create(&file).unwrap()).unwrap();
    std::fs::write(&output, "").unwrap();
    let said = run(&["prove", "--recording", file.to_str().unwrap(), "--output", output.to_str().unwrap()]);
    assert_eq!(said.status.code(), Some(125), "{}", err(&said));
    assert!(err(&said).contains("Could not create") && out(&said).contains("EOI"), "{}", out(&said));
}

#[test]
fn samples_of_another_measurement_are_not_overwritten_unless_the_folder_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().join("exitless-report/recording.json");
    let write = |name: &str, seed: u64| {
        let plan = Plan { blocks: 2, samples: 50, measures: vec![Measure::Eoi], ..Plan::full() };
        recording(plan, seed).write(File::create(folder.path().join(name)).unwrap()).unwrap();
    };
    let prove = |more: &[&str]| {
        let mut command = command(&["prove", "--recording"]);
        command.current_dir(folder.path()).args(more).output().unwrap()
    };
    write("first.json", 1);
    write("other.json", 2);
    // Twice the same file, then the copy in the result folder.
    for file in ["first.json", "first.json", "exitless-report/recording.json"] {
        let said = prove(&[file]);
        assert_eq!(said.status.code(), Some(0), "{}", err(&said));
    }
    let first = std::fs::read(&kept).unwrap();
    let refused = prove(&["other.json"]);
    assert_eq!(refused.status.code(), Some(2), "{}", err(&refused));
    assert!(err(&refused).contains("exitless-report has another recording"), "{}", err(&refused));
    assert!(err(&refused).contains("--output"), "{}", err(&refused));
    assert_eq!(std::fs::read(&kept).unwrap(), first);
    let asked = prove(&["other.json", "--output", "exitless-report"]);
    assert_eq!(asked.status.code(), Some(0), "{}", err(&asked));
    assert_ne!(std::fs::read(&kept).unwrap(), first);
}
