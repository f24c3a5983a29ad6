//! The tuning loop and the plans of known cures, in the laboratory with AMD's virtualization.

use std::path::Path;

use serde_json::Value;

use crate::command::run;

/// Runs `tune` on the small shipped plan into `result`.
fn tune(result: &Path) -> Value {
    let result = result.to_str().unwrap();
    let said = run(&["tune", "tune-old-guest-lab", "--target", "lab:amd-svm", "--output", result, "--json"]);
    assert_eq!(said.status, 0, "{}\n{}", said.out, said.err);
    said.json()
}

fn ruling<'a>(tuning: &'a Value, name: &str) -> &'a str {
    let steps = tuning["steps"].as_array().unwrap();
    steps.iter().find(|step| step["name"] == name).unwrap()["ruling"].as_str().unwrap()
}

#[test]
fn a_tuning_keeps_the_change_that_helps_and_reverts_the_one_that_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let result = folder.path().join("result");
    let tuning = tune(&result);
    assert_eq!(tuning["complete"], true, "{tuning}");
    assert_eq!(ruling(&tuning, "virtio-blk"), "kept", "{tuning:#}");
    assert_ne!(ruling(&tuning, "acpi-clock"), "kept", "{tuning:#}");
    assert_eq!(tuning["kept"], serde_json::json!(["virtio-blk"]));
    let difference = std::fs::read_to_string(result.join("changes.diff")).unwrap();
    for line in ["--device ide-hd,bus=ide.0,drive=data", "+-device virtio-blk-pci,drive=data"] {
        assert!(difference.contains(&format!("\n{line}")), "{line} is not in\n{difference}");
    }
    assert!(!difference.contains("acpi_pm"), "{difference}");
    let page = std::fs::read_to_string(result.join("report.md")).unwrap();
    assert!(page.contains("## 1. virtio-blk: kept"), "{page}");
    assert!(result.join("steps/1-virtio-blk/report.html").is_file());
    // All of it is there: nothing is started again, which would take minutes.
    let begun = std::time::Instant::now();
    assert_eq!(tune(&result), tuning);
    assert!(begun.elapsed().as_secs() < 10, "it measured again: {:?}", begun.elapsed());
}

#[test]
fn a_dry_run_shows_the_steps_and_makes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let result = folder.path().join("result");
    let said = run(&["tune", "tune-old-guest", "--dry-run", "--output", result.to_str().unwrap()]);
    assert_eq!(said.status, 0, "{}", said.err);
    for part in ["7. io-uring (16 runs)", "--device ide-hd", "+-device virtio-blk-pci"] {
        assert!(said.out.contains(part), "{part} is not in\n{}", said.out);
    }
    assert!(!result.exists());
}
