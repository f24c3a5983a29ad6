//! Nested virtualization: exits of L2 are told from those of L1.

use std::fs;

use serde_json::Value;

use crate::command::{LIMIT, quick_boot, run};

/// The exits of L2 by row, without rows that a table lacks.
fn nested(table: &Value) -> Vec<(String, u64)> {
    let rows = table["rows"].as_array().unwrap().iter().filter(|row| row["access_kind"] == "nested");
    let row = |row: &Value| (row["access"].as_str().unwrap().to_owned(), row["exits"].as_u64().unwrap());
    let mut rows: Vec<_> = rows.map(row).collect();
    rows.sort();
    rows
}

#[test]
fn exits_of_a_guest_in_a_guest_are_told_from_the_guests_own() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().to_str().unwrap();
    let options = ["--timeout", LIMIT, "--get", "out", "--output", output];
    let script = concat!("export QUICK='", quick_boot!(), "'\n", include_str!("nested.sh"));
    let said = run(&[&["lab", "run", "amd-svm"], &options[..], &["--", "sh", "-c", script]].concat());
    let text = |name: &str| fs::read_to_string(folder.path().join("out").join(name)).unwrap_or_default();
    assert_eq!(said.status, 0, "{}{}{}{}", said.out, said.err, text("err"), text("l1.txt"));
    assert!(text("l1.txt").contains("L2 ran"), "{}", text("l1.txt"));
    let json = |name: &str| -> Value {
        serde_json::from_str(&text(name)).unwrap_or_else(|error| panic!("{name}: {error}: {}", text("err")))
    };
    let (stat, report, prediction) = (json("stat.json"), json("report.json"), json("predict.json"));

    // Both counted exactly as many as perf.
    let perf = |event: &str| -> u64 {
        let csv = text("perf.csv");
        let line = csv.lines().find(|line| line.split(',').nth(2) == Some(event));
        line.and_then(|line| line.split(',').next()?.parse().ok()).unwrap_or_else(|| panic!("{event}: {csv}"))
    };
    let all = nested(&stat);
    assert_eq!(all, nested(&report));
    let sum = |to_l1: bool| -> u64 {
        all.iter().filter(|(name, _)| name.ends_with(" to L1") == to_l1).map(|(_, exits)| exits).sum()
    };
    assert_eq!(
        (sum(false), sum(true)),
        (perf("kvm:kvm_nested_vmexit"), perf("kvm:kvm_nested_vmexit_inject"))
    );
    // The payload executes CPUID three times per sample, and its VM has only one arm here.
    let of = |name: &str| all.iter().find(|(row, _)| row == name).map_or(0, |(_, exits)| *exits);
    assert_eq!((of("L2 cpuid"), of("L2 cpuid to L1")), (300, 300), "{all:?}");

    // The prediction avoids none of them.
    let of_nested = |row: &&Value| row["part"] == "nested";
    let rows: Vec<&Value> = prediction["rows"].as_array().unwrap().iter().filter(of_nested).collect();
    let predicted: u64 = rows.iter().map(|row| row["exits"].as_u64().unwrap()).sum();
    assert_eq!(prediction["nested"]["exits"], sum(false));
    assert_eq!(predicted, sum(false), "{rows:?}");
    assert!(rows.iter().all(|row| row["fate"] == "stays"), "{rows:?}");
}
