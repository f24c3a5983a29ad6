//! Crates use only crates on lower floors, as CONTRIBUTING.md lists them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The packages of a workspace and their targets, as cargo lists them.
pub(crate) fn metadata(manifest: &str) -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--no-deps", "--offline", "--manifest-path", manifest])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The floor of each crate, from rows like "| 1 | `host`, `domain` | does |".
fn floors(contributing: &str) -> BTreeMap<String, u32> {
    let mut floors = BTreeMap::new();
    for row in contributing.lines() {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [_, floor, names, ..] = cells[..] else { continue };
        let Ok(floor) = floor.parse() else { continue };
        for name in names.split(',').map(|name| name.trim().trim_matches('`')) {
            assert_eq!(floors.insert(name.to_owned(), floor), None, "{name} is listed twice");
        }
    }
    floors
}

/// Each crate of the workspace with the crates that it uses, including tests and build scripts.
fn uses(metadata: &Value) -> BTreeMap<String, Vec<String>> {
    let packages = metadata["packages"].as_array().unwrap();
    let name = |value: &Value| value["name"].as_str().unwrap().to_owned();
    let used = |package: &Value| {
        let all = package["dependencies"].as_array().unwrap();
        all.iter().filter(|one| one["path"].is_string()).map(name).collect()
    };
    packages.iter().map(|package| (name(package), used(package))).collect()
}

/// Violations of the floors, in words.
fn faults(floors: &BTreeMap<String, u32>, uses: &BTreeMap<String, Vec<String>>) -> Vec<String> {
    let mut faults = Vec::new();
    for name in floors.keys().filter(|name| !uses.contains_key(*name)) {
        faults.push(format!("CONTRIBUTING.md lists {name}, which is no crate of the workspace"));
    }
    for (name, used) in uses {
        let Some(floor) = floors.get(name) else {
            faults.push(format!("CONTRIBUTING.md gives {name} no floor"));
            continue;
        };
        for other in used.iter().filter(|other| floors.get(*other).is_some_and(|other| other >= floor)) {
            faults.push(format!("{name} on floor {floor} uses {other} on floor {}", floors[other]));
        }
    }
    faults
}

#[test]
fn crates_use_only_what_is_below_them() {
    let contributing = std::fs::read_to_string(root().join("CONTRIBUTING.md")).unwrap();
    let floors = floors(&contributing);
    let uses = uses(&metadata("Cargo.toml"));
    assert!(uses["exitless"].contains(&"report".to_owned()), "{uses:?}");
    let faults = faults(&floors, &uses);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn arrows_up_and_sideways_and_crates_without_a_floor_are_found() {
    let floors =
        floors("| floor | crate | does |\n|---|---|---|\n| 1 | `b`, `c` | x |\n| 0 | `a`, `gone` | y |\n");
    let uses = [("a", vec!["b"]), ("b", vec!["a"]), ("c", vec!["b"]), ("new", vec![])]
        .map(|(name, used)| (name.to_owned(), used.into_iter().map(str::to_owned).collect()));
    assert_eq!(
        faults(&floors, &uses.into_iter().collect()),
        [
            "CONTRIBUTING.md lists gone, which is no crate of the workspace",
            "a on floor 0 uses b on floor 1",
            "c on floor 1 uses b on floor 1",
            "CONTRIBUTING.md gives new no floor",
        ]
    );
}
