//! `diff` on real recordings: of one host with APICv off and on, of different hosts, damaged, and repeated.

use std::process::Stdio;

use crate::command::{command, err, json, out, recording, run};
use serde_json::Value;

fn row(document: &Value, reason: &str) -> Value {
    let rows = document["rows"].as_array().unwrap();
    rows.iter().find(|row| row["reason"] == reason).unwrap().clone()
}

#[test]
fn what_apicv_takes_away_is_gone_and_the_rest_is_as_before() {
    let (off, on) = (recording("vmx"), recording("vmx-apicv"));
    // Both recordings are of the same program: equal work in different times.
    let work = ["--operations-before", "1", "--operations-after", "1"];
    let document = json(&[&["diff", &off, &on][..], &work].concat());
    assert_eq!(document["per"], "operation");
    let window = row(&document, "INTERRUPT_WINDOW");
    assert_eq!((window["before"]["exits"].as_u64(), window["after"]["exits"].as_u64()), (Some(26), Some(0)));
    assert_eq!(window["rate"]["change"]["percent"], -100.0);
    assert!(window["rate"]["interval"]["high"].as_f64().unwrap() < -75.0);
    assert!(window["after"]["rate_bound"].as_f64().unwrap() >= 2.99);
    let writes = row(&document, "MSR_WRITE");
    assert!(writes["rate"]["interval"]["high"].as_f64().unwrap() < 0.0, "{writes}");
    let control = row(&document, "CPUID");
    assert_eq!(control["rate"]["change"]["percent"], 0.0);
    // Each side must equal a report of its own.
    for (side, file) in [("before", &off), ("after", &on)] {
        let report = json(&["report", file]);
        assert_eq!(document["total"][side]["exits"], report["totals"]["exits"]);
        let alone = row(&report, "MSR_WRITE");
        for figure in ["exits", "time_ns", "mean_ns", "p99_ns"] {
            assert_eq!(writes[side][figure], alone[figure], "{side} {figure}");
        }
    }
}

/// A text recording of these events, each with its time in microseconds.
fn recorded(mut events: Vec<(u64, &str)>) -> tempfile::NamedTempFile {
    events.sort_by_key(|event| event.0);
    let file = tempfile::Builder::new().suffix(".txt").tempfile().unwrap();
    let line = |&(us, what): &(u64, &str)| {
        format!("  mix-9   [000] d..1.  {}.{:06}: {what}\n", us / 1_000_000, us % 1_000_000)
    };
    std::fs::write(file.path(), events.iter().map(line).collect::<String>()).unwrap();
    file
}

#[test]
fn exits_that_end_early_do_not_shorten_the_time() {
    let side = |exits: u64, every_us: u64| {
        let mut events: Vec<_> =
            (0..100).map(|tenth| (tenth * 100_000, "sched_wakeup: comm=sh pid=3")).collect();
        for start_us in (0..exits).map(|exit| exit * every_us) {
            events.push((start_us + 3, "kvm_exit: reason vintr rip 0x1 info 0 0"));
            events.push((start_us + 5, "kvm_entry: vcpu 0"));
        }
        recorded(events)
    };
    let (before, after) = (side(1000, 9_900), side(100, 990));
    let document = json(&["diff", before.path().to_str().unwrap(), after.path().to_str().unwrap()]);
    let percent = document["total"]["rate"]["change"]["percent"].as_f64().unwrap();
    assert!((percent + 90.0).abs() < 1e-6, "{percent}");
}

#[test]
fn every_access_of_an_exit_counts_over_time() {
    // An EOI by x2APIC gives two events: of the APIC, then of the MSR.
    let side = |seed: u64| {
        let mut events = Vec::new();
        for burst in 0..100 {
            for exit in 0..(burst * seed) % 17 {
                let start_us = burst * 100_000 + exit * 50;
                events.push((start_us + 1, "kvm_exit: vcpu 0 reason MSR_WRITE rip 0x1 info1 0x0"));
                events.push((start_us + 3, "kvm_apic: apic_write APIC_EOI = 0x0"));
                events.push((start_us + 4, "kvm_msr: msr_write 80b = 0x0"));
                events.push((start_us + 6, "kvm_entry: vcpu 0"));
            }
        }
        recorded(events)
    };
    let (before, after) = (side(5), side(7));
    let rate = |by: &str| {
        let files = [&before, &after].map(|file| file.path().to_str().unwrap());
        json(&["diff", files[0], files[1], "--by", by])["rows"][0]["rate"].clone()
    };
    let (by_msr, by_apic) = (rate("msr"), rate("apic"));
    assert_eq!(by_msr["basis"]["method"], "blocks", "{by_msr}");
    assert_eq!(by_apic, by_msr);
}

#[test]
fn nobody_has_changed_against_himself() {
    let file = recording("small");
    let document = json(&["diff", &file, &file]);
    assert_eq!(document["verdict"], "same");
    for row in document["rows"].as_array().unwrap() {
        let interval = &row["rate"]["interval"];
        assert!(
            interval["low"].as_f64().unwrap() < -1.0 && interval["high"].as_f64().unwrap() > 1.0,
            "{row}"
        );
        assert_eq!(row["rate"]["basis"]["method"], "blocks");
    }
}

#[test]
fn a_time_that_one_recording_does_not_have_is_not_compared() {
    // The recordings are 5.19 s and 4.11 s long.
    let (longer, shorter) = (recording("small"), recording("small61"));
    let work = ["--operations-before", "1", "--operations-after", "1"];
    for arguments in [
        vec!["diff", &longer, &shorter, "--from", "4.5s"],
        [&["diff", &shorter, &longer, "--from", "4.5s"][..], &work].concat(),
        vec!["diff", &longer, &shorter, "--from", "4.5s", "--vm", "mix"],
    ] {
        let output = run(&arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", out(&output));
        let said = err(&output);
        assert!(
            said.contains("small61.perf.data.zst has nothing from 4.50 s on: it is 4.11 s long"),
            "{said}"
        );
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn the_part_that_was_compared_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    let (small, other) = (recording("small"), recording("small61"));
    let base = ["diff", &small, &other, "--from", "1s", "--to", "2s", "--vm", "mix"];
    let text = out(&run(&[&base[..], &["--html", page.to_str().unwrap()]].concat()));
    assert!(text.contains("\nonly       VM mix; from 1.00 s to 2.00 s\n"), "{text}");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("Only VM mix; from 1.00 s to 2.00 s."));
    let selection = &json(&base)["selection"];
    assert_eq!((&selection["vms"][0], &selection["from_ns"]), (&"mix".into(), &1_000_000_000_u64.into()));
    assert!(!out(&run(&["diff", &small, &other])).contains("\nonly "));
}

#[test]
fn a_recording_is_not_another_run_of_itself() {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("latest");
    let (small, other) = (recording("small"), recording("small61"));
    std::os::unix::fs::symlink(&small, &link).unwrap();
    let link = link.to_str().unwrap();
    for arguments in [
        vec!["diff", &format!("{other},{small},{link}"), &other],
        vec!["diff", &small, &format!("{small},{link}")],
        vec!["report", &small, link],
        vec!["timeline", &small, link],
        vec!["predict", &small, link],
        vec!["advise", &small, link],
    ] {
        let output = run(&arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", out(&output));
        assert!(err(&output).contains(&format!("{link} is given twice")), "{}", err(&output));
    }
}

#[test]
fn a_seed_gives_the_same_figures_and_another_does_not() {
    let (before, after) = (recording("small"), recording("small61"));
    let once = |seed: &str| out(&run(&["diff", &before, &after, "--json", "--seed", seed]));
    assert_eq!(once("5"), once("5"));
    assert_ne!(once("5").replace("\"seed\": 5", "\"seed\": 6"), once("6"));
}

#[test]
fn unlike_hosts_are_compared_only_when_that_is_meant() {
    let arguments = ["diff", &recording("small"), &recording("vmx")];
    let refused = run(&arguments);
    assert_eq!(refused.status.code(), Some(2));
    let said = err(&refused);
    assert!(said.contains("instruction set: svm before, vmx after"), "{said}");
    assert!(said.contains("processor: ") && said.contains("--allow-unlike"), "{said}");
    assert!(refused.stdout.is_empty());
    let meant = run(&[&arguments[..], &["--allow-unlike"]].concat());
    assert_eq!(meant.status.code(), Some(0), "{}", err(&meant));
    assert!(out(&meant).contains("The sides differ in their instruction set"), "{}", out(&meant));
}

#[test]
fn damage_and_losses_are_said_and_damage_has_a_status_of_its_own() {
    let damaged = run(&["diff", &recording("small"), &recording("killed")]);
    assert_eq!(damaged.status.code(), Some(4), "{}", err(&damaged));
    let said = out(&damaged).lines().map(str::trim).collect::<Vec<_>>().join(" ");
    assert!(said.contains("damaged at byte 953000: perf was killed"), "{said}");
    let lost = run(&["diff", &recording("small"), &recording("lost")]);
    assert_eq!(lost.status.code(), Some(0));
    assert!(out(&lost).replace("\n    ", " ").contains("Its counts are lower bounds."), "{}", out(&lost));
}

#[test]
fn three_recordings_a_side_are_figures_of_their_own() {
    let before = ["one-vcpu", "zstd", "all-kvm"].map(recording).join(",");
    let after = ["eight-vcpus", "several-vms", "migrating"].map(recording).join(",");
    let document = json(&["diff", &before, &after]);
    assert_eq!(document["total"]["rate"]["basis"]["method"], "recordings");
    assert_eq!(document["files"]["before"].as_array().unwrap().len(), 3);
    assert_eq!(document["before"]["recordings"], 3);
}

#[test]
fn rows_by_port_rest_on_slices_of_their_own() {
    let document = json(&["diff", &recording("small"), &recording("small61"), "--by", "port"]);
    let port = &document["rows"].as_array().unwrap()[0];
    assert_eq!(port["rate"]["basis"]["method"], "blocks", "{port}");
    let ports = |row: &Value| row["access"].as_str().unwrap().starts_with("0x3f");
    assert!(document["rows"].as_array().unwrap().iter().any(ports));
}

#[test]
fn one_side_may_be_standard_input_and_not_both() {
    let file = recording("small");
    let input = std::fs::File::open(recording("small61")).unwrap();
    let mut child = command(&["diff", &file, "-"]);
    let output = child.stdin(Stdio::from(input)).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert!(out(&output).contains("standard input"));
    let both = run(&["diff", "-", "-"]);
    assert_eq!((both.status.code(), err(&both).contains("read once")), (Some(2), true));
    let missing = run(&["diff", &file, "no-such-recording"]);
    assert_eq!((missing.status.code(), err(&missing).contains("no such recording")), (Some(2), true));
}

#[test]
fn a_name_with_a_comma_is_one_recording() {
    let folder = tempfile::tempdir().unwrap();
    let odd = folder.path().join("a,b.perf.data.zst");
    std::fs::copy(recording("small"), &odd).unwrap();
    let output = run(&["diff", odd.to_str().unwrap(), &recording("small61")]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
}

#[test]
fn tables_fit_and_other_forms_have_everything() {
    let files = [recording("small"), recording("small61")];
    let base = ["diff", &files[0], &files[1]];
    let text = out(&run(&base));
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(!text.contains('\u{1b}'));
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    let csv = out(&run(&[&base[..], &["--csv", "--html", page.to_str().unwrap()]].concat()));
    // The header, the sum, and seven reasons.
    assert_eq!(csv.lines().count(), 9);
    let lost = run(&["diff", &recording("lost"), &files[0], "--csv"]);
    assert!(err(&lost).contains("Its counts are lower bounds"), "{}", err(&lost));
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("fewer exits a second"));
}
