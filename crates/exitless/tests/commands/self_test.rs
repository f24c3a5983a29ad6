//! `exitless self-test`: the capabilities that it names suffice, and each of them is needed.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use readiness::{COMMANDS, Part};
use serde_json::Value;

use crate::command::run;

#[test]
fn capabilities_go_to_the_program_that_runs() {
    let output = run(&["self-test", "stat", "--json"]);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let setcap = document["commands"][0]["setcap"].as_str().unwrap();
    assert!(setcap.ends_with(&format!("=ep {}", env!("CARGO_BIN_EXE_exitless"))), "{setcap}");
}

#[test]
fn the_page_names_the_commands_that_use_a_part_with_capabilities() {
    let page = include_str!("../../../../docs/install.md");
    let row =
        |about: &str| page.lines().find(|line| line.starts_with("| `") && line.contains(about)).unwrap();
    let (programs, events) = (row(": eBPF programs |"), row(": perf events, and tracefs"));
    for (part, row) in [(Part::Programs, programs), (Part::Sampling, programs), (Part::PerfEvents, events)] {
        let users = COMMANDS.iter().filter(|one| one.needed.contains(&part) || one.wanted.contains(&part));
        // A row of its own has the commands that need root.
        let users: Vec<_> = users.filter(|one| !one.needed.contains(&Part::Root)).collect();
        assert!(!users.is_empty(), "{part:?}");
        for one in users {
            assert!(row.contains(&format!("`{}`", one.command)), "docs/install.md: {}: {row}", one.command);
        }
    }
}

/// The parts of a host as seen by an unprivileged user with these capabilities.
fn parts(program: &Path, capabilities: &[&str]) -> Value {
    let list = match capabilities {
        [] => "-all".to_owned(),
        all => all.iter().map(|one| format!("+{}", &one[4..].to_lowercase())).collect::<Vec<_>>().join(","),
    };
    let output = Command::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .args(["--inh-caps", &list, "--ambient-caps", &list, "--bounding-set", &list])
        .arg(program)
        .args(["self-test", "--json"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{text}"))
}

fn works(document: &Value, part: &str) -> bool {
    let parts = document["parts"].as_array().unwrap();
    parts.iter().find(|one| one["part"] == part).unwrap()["works"] == true
}

#[test]
fn the_capabilities_of_a_part_are_enough_and_none_is_too_many() {
    let root = run(&["self-test", "--json"]);
    let root: Value = serde_json::from_slice(&root.stdout).unwrap();
    if root["user"] != 0 || Command::new("setpriv").arg("--version").output().is_err() {
        println!("not tested: this takes root and setpriv");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let program = folder.path().join("exitless");
    fs::copy(env!("CARGO_BIN_EXE_exitless"), &program).unwrap();
    let nobody = parts(&program, &[]);
    let mut tested = 0;
    for (part, capabilities) in [
        ("programs", &["CAP_BPF", "CAP_PERFMON"][..]),
        ("sampling", &["CAP_BPF", "CAP_PERFMON"]),
        ("perf-events", &["CAP_DAC_READ_SEARCH", "CAP_PERFMON"]),
        ("kernel-log", &["CAP_SYSLOG"]),
        ("tree", &["CAP_SYS_ADMIN"]),
    ] {
        // A part that root lacks here, or that works for everybody, cannot be tested.
        if !works(&root, part) || works(&nobody, part) {
            println!("not tested here: {part}");
            continue;
        }
        let is_for_all = |path: &str| fs::metadata(path).is_ok_and(|file| file.permissions().mode() & 6 == 6);
        if part == "tree" && !is_for_all("/dev/fuse") {
            println!("not tested here: tree: no udev has let everybody open /dev/fuse");
            continue;
        }
        tested += 1;
        assert!(works(&parts(&program, capabilities), part), "{part} with {capabilities:?}");
        for left_out in capabilities {
            let others: Vec<&str> = capabilities.iter().copied().filter(|one| one != left_out).collect();
            assert!(!works(&parts(&program, &others), part), "{part} without {left_out}");
        }
    }
    if tested == 0 {
        println!("not tested: all users of this host may do the same");
    }
}
