//! Live exits of Xen, from a fake xentrace that writes a real recording.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::{Value, json};

use crate::command::command;

/// A folder with a recording and a program that writes it and then waits to be stopped.
pub(crate) struct Host {
    folder: tempfile::TempDir,
}

impl Host {
    pub(crate) fn new(name: &str) -> Self {
        let fixture = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../traces/tests/fixtures/xentrace")
            .join(format!("{name}.trace.zst"));
        let folder = tempfile::tempdir().unwrap();
        let recording = zstd::decode_all(&fs::read(fixture).unwrap()[..]).unwrap();
        fs::write(folder.path().join("trace"), recording).unwrap();
        let host = Self { folder };
        host.program("cat \"$(dirname \"$0\")/trace\"; trap 'exit 0' TERM; while :; do sleep 0.05; done");
        host
    }

    fn program(&self, script: &str) {
        let path = self.path("xentrace");
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        command(arguments).current_dir(&self.folder).output().unwrap()
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// The rows of a command that follows xentrace or reads a file.
    fn rows(&self, arguments: &[&str]) -> Value {
        self.json(&[arguments, &["--json", "--by", "vm,vcpu,reason"]].concat())["rows"].clone()
    }
}

const XENTRACE: [&str; 2] = ["--xentrace", "./xentrace"];

#[test]
fn what_is_counted_and_recorded_live_is_what_a_report_of_the_recording_says() {
    let host = Host::new("qemu10-a-all");
    // The TSC frequency is unknown here, so both use the default.
    let expected = host.rows(&["report", "--tsc-hz", "2.4G", "trace"]);
    assert!(expected.as_array().unwrap().len() > 5, "{expected}");

    for words in [&["record", "-o", "own.exits"][..], &["record", "--profile", "-o", "own.profile"]] {
        let output = host.run(&[words, &XENTRACE, &["--duration", "1s"]].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let counts = |rows: &Value| -> Vec<(Value, Value, Value, Value)> {
        let rows = rows.as_array().unwrap().iter();
        rows.map(|row| (row["vm"].clone(), row["vcpu"].clone(), row["reason"].clone(), row["exits"].clone()))
            .collect()
    };
    for file in ["own.exits", "own.profile"] {
        assert_eq!(counts(&host.rows(&["report", file])), counts(&expected), "{file}");
    }
    let reports = ["own.exits", "own.profile"].map(|file| host.json(&["report", "--json", file]));
    let began = reports.each_ref().map(|report| report["files"][0]["observed"]["first_ns"].as_u64());
    let [exits, profile] = began.map(Option::unwrap);
    assert!(exits.abs_diff(profile) < 1_000_000_000, "of one clock: {exits} and {profile}");
    assert_eq!(reports[1]["files"][0]["warnings"], json!([]));
    let arguments =
        [&["stat", "--json", "--by", "vm,vcpu,reason"][..], &XENTRACE, &["--", "sleep", "1"]].concat();
    assert_eq!(counts(&host.json(&arguments)["rows"]), counts(&expected));
}

#[test]
fn only_the_domains_that_were_asked_for_are_shown() {
    let host = Host::new("qemu10-a-all");
    let all = host.rows(&["report", "--tsc-hz", "2.4G", "trace"]);
    let domain = all[0]["vm"].to_string();
    let arguments = [&["stat", "--json", "--vm", &domain][..], &XENTRACE, &["--", "sleep", "1"]].concat();
    assert!(host.json(&arguments)["totals"]["exits"].as_u64().unwrap() > 0);
    let arguments = [&["stat", "--json", "--vm", "nobody"][..], &XENTRACE, &["--", "sleep", "1"]].concat();
    assert_eq!(host.json(&arguments)["totals"]["exits"], 0);
}

#[test]
fn a_program_that_fails_is_told_with_its_words() {
    let host = Host::new("qemu10-a-all");
    host.program("echo 'ERROR: Failed to get trace buffers' >&2; exit 1");
    for command in [&["stat", "--count", "2"][..], &["record", "--duration", "1s"]] {
        let output = host.run(&[command, &XENTRACE].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(125), "{said}");
        assert!(said.contains("Failed to get trace buffers"), "{said}");
    }
}

#[test]
fn what_is_recorded_of_a_xentrace_that_ends_early_is_kept() {
    let host = Host::new("qemu10-a-all");
    let expected = host.rows(&["report", "--tsc-hz", "2.4G", "trace"]);
    let exits = |rows: &Value| -> u64 {
        rows.as_array().unwrap().iter().map(|row| row["exits"].as_u64().unwrap()).sum()
    };
    // An orderly end is that of a signal of another program.
    for (end, words) in [("exit 1", "the buffers are gone"), ("exit 0", "another program stopped it")] {
        host.program(&format!(
            "cat \"$(dirname \"$0\")/trace\"; echo 'ERROR: the buffers are gone' >&2; {end}"
        ));
        for arguments in [&["record", "-o", "own"][..], &["record", "--profile", "-o", "own"]] {
            let output = host.run(&[arguments, &XENTRACE].concat());
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
            assert!(said.contains(words), "{arguments:?}: {said}");
            // A report of a damaged recording has another status.
            assert_eq!(exits(&host.rows(&["report", "own"])), exits(&expected), "{arguments:?}");
        }
    }
}

#[test]
fn a_command_outlasts_a_xentrace_that_ends_early() {
    let host = Host::new("qemu10-a-all");
    host.program("cat \"$(dirname \"$0\")/trace\"; exit 0");
    for (arguments, status) in [(&["stat", "--json"][..], 125), (&["record", "-o", "own"][..], 1)] {
        let command = ["--", "sh", "-c", "sleep 0.5; touch done; exit 7"];
        let output = host.run(&[arguments, &XENTRACE, &command].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("the command goes on"), "{arguments:?}: {said}");
        assert!(said.contains("another program stopped it"), "{arguments:?}: {said}");
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {said}");
        fs::remove_file(host.path("done")).expect("the command ended");
        if arguments[0] == "stat" {
            let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
            assert!(shown["totals"]["exits"].as_u64().unwrap() > 0, "{shown}");
        }
    }
}

#[test]
fn without_a_xentrace_that_works_the_older_recording_stays_and_no_command_is_started() {
    let host = Host::new("qemu10-a-all");
    host.program("echo 'ERROR: Failed to get trace buffers' >&2; exit 1");
    fs::write(host.path("old"), "older").unwrap();
    for words in [&["record"][..], &["record", "--profile"]] {
        for xentrace in ["./none", "./xentrace"] {
            let output =
                host.run(&[words, &["-o", "old", "--xentrace", xentrace, "--", "touch", "done"]].concat());
            assert!(!output.status.success());
            assert_eq!(fs::read(host.path("old")).unwrap(), b"older", "{words:?} {xentrace}");
            assert!(!host.path("done").exists(), "{words:?} {xentrace}");
        }
    }
}

#[test]
fn what_steers_kvms_programs_is_refused() {
    let host = Host::new("qemu10-a-all");
    for arguments in [&["stat", "--self-cost"][..], &["record", "--no-accesses"], &["record", "--vm", "1"]] {
        let output = host.run(&[arguments, &XENTRACE].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("KVM hosts"), "{said}");
    }
}

#[test]
fn predictions_and_advice_for_xen_say_nothing_of_another_hypervisor() {
    for name in ["h-boot", "qemu10-a-hvm"] {
        let host = Host::new(name);
        let predicted = host.json(&["predict", "--json", "--tsc-hz", "2.4G", "trace"]);
        assert_eq!(predicted["assumption"]["hypervisor"], "xen");
        assert_eq!(
            (&predicted["totals"]["gone_exits"]["high"], &predicted["record"]),
            (&0.0.into(), &json!([]))
        );
        for command in ["predict", "advise"] {
            let output = host.run(&[command, "--tsc-hz", "2.4G", "trace"]);
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            for word in ["kvm", "AVIC would", "-cpu", "--reload", "-machine"] {
                assert!(!said.contains(word), "{command} of {name}: {word} in {said}");
            }
            assert!(output.status.success() && said.contains("Xen"), "{said}");
        }
        let advised = host.json(&["advise", "--json", "--tsc-hz", "2.4G", "trace"]);
        let cures = advised["vms"].as_array().unwrap().iter().flat_map(|vm| vm["rows"].as_array().unwrap());
        let mut cures = cures.flat_map(|row| row["cures"].as_array().unwrap());
        assert!(cures.any(|cure| cure["xl"].is_string()), "{name}");
    }
}

#[test]
fn what_xen_has_not_is_refused_and_recordings_of_two_hypervisors_too() {
    let host = Host::new("h-boot");
    let refused = |arguments: &[&str], words: &str| {
        let output = host.run(arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && said.contains(words), "{arguments:?}: {said}");
    };
    for (option, words) in [
        ("--ipi-virtualization", "no IPI virtualization"),
        ("--for=x2avic", "neither AVIC"),
        ("--for=apicv", "uses no AVIC"),
        ("--host-hz=250", "no tick"),
    ] {
        refused(&["predict", option, "trace"], words);
    }
    let kvm = crate::command::recording("small");
    for command in ["predict", "advise"] {
        refused(&[command, "trace", &kvm], "some of Xen");
    }
}

#[test]
fn what_is_recorded_on_xen_says_so() {
    let host = Host::new("qemu10-a-all");
    for words in [&["record", "-o", "own.exits"][..], &["record", "--profile", "-o", "own.profile"]] {
        let output = host.run(&[words, &XENTRACE, &["--duration", "1s"]].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    for file in ["own.exits", "own.profile"] {
        assert_eq!(
            host.json(&["report", "--json", file])["files"][0]["origin"]["hypervisor"],
            "xen",
            "{file}"
        );
    }
    let stat = [&["stat", "--json"][..], &XENTRACE, &["--", "sleep", "1"]].concat();
    assert_eq!(host.json(&stat)["files"][0]["origin"]["hypervisor"], "xen");
}
