//! `profile` on files: the guest's code at exits, and stored hot spots, complete or damaged.

use std::fs;
use std::process::{Command, Output, Stdio};

use crate::command::{command, err, json, out, recording, run};
use serde_json::Value;

fn xen(name: &str) -> String {
    format!("{}/../traces/tests/fixtures/xentrace/{name}.trace.zst", env!("CARGO_MANIFEST_DIR"))
}

fn exits(rows: &Value) -> u64 {
    rows.as_array().unwrap().iter().map(|row| row["exits"].as_u64().unwrap()).sum()
}

#[test]
fn every_exit_of_a_recording_is_at_a_place_of_the_guests_code() {
    for file in [recording("qemu"), recording("vmx"), xen("h-boot")] {
        let (profile, report) = (json(&["profile", &file]), json(&["report", &file]));
        assert_eq!(exits(&profile["reasons"]), report["totals"]["exits"].as_u64().unwrap(), "{file}");
        assert_eq!(profile["event"], "exits");
        let places: u64 =
            profile["guests"].as_array().unwrap().iter().map(|row| row["own"].as_u64().unwrap()).sum();
        let all = exits(&profile["reasons"]);
        assert!(places > 0 && places <= all, "{file}: {places} of {all}");
    }
}

#[test]
fn symbols_of_the_guest_give_places_their_names() {
    let folder = tempfile::tempdir().unwrap();
    let symbols = folder.path().join("System.map");
    fs::write(&symbols, "0000000000000000 T everything\n0000000000000001 T above_zero\n").unwrap();
    let document = json(&["profile", &xen("h-boot"), "--guest-symbols", symbols.to_str().unwrap()]);
    let guests = document["guests"].as_array().unwrap();
    assert_eq!(guests.len(), 1, "{guests:?}");
    assert_eq!(guests[0]["symbol"], "above_zero");
}

#[test]
fn one_vm_and_one_reason_can_be_asked_for() {
    let file = xen("h-boot");
    let all = json(&["profile", &file]);
    let first = all["reasons"][0]["reason"].as_str().unwrap();
    let one = json(&["profile", &file, "--reason", first]);
    assert_eq!(one["reasons"].as_array().unwrap().len(), 1);
    assert_eq!(one["reasons"][0], all["reasons"][0]);
    assert_eq!(one["selection"], serde_json::json!({ "vms": [], "reasons": [first] }));
    let text = out(&run(&["profile", &file, "--reason", first]));
    assert!(text.contains(&format!("\nonly       exit reason {first}\n")), "{text}");
    assert!(!out(&run(&["profile", &file])).contains("\nonly "));
    let none = run(&["profile", &file, "--vm", "nobody"]);
    assert_eq!(none.status.code(), Some(2));
    assert!(err(&none).contains("nobody"), "{}", err(&none));
}

#[test]
fn kept_hot_spots_are_shown_drawn_and_survive_damage() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let seed = format!("{}/../../fuzz/seeds/hot_spots/small", env!("CARGO_MANIFEST_DIR"));
    let (graph, lines, again) = (path("graph.svg"), path("lines"), path("again"));
    let said = run(&["profile", &seed, "--flame-graph", &graph, "--folded", &lines, "--output", &again]);
    assert_eq!(said.status.code(), Some(0), "{}", err(&said));
    assert!(out(&said).contains("emulator_pio_in_out"), "{}", out(&said));
    assert!(fs::read_to_string(graph).unwrap().contains("emulator_pio_in_out"));
    let folded = fs::read_to_string(lines).unwrap();
    assert_eq!(folded.lines().next(), Some("device model;qemu-system-x86_64+0x12345 3"));
    assert_eq!(fs::read(&again).unwrap(), fs::read(&seed).unwrap());

    let whole = fs::read(&seed).unwrap();
    let cut = path("cut");
    fs::write(&cut, &whole[..whole.len() - 100]).unwrap();
    let said = run(&["profile", &cut]);
    assert_eq!(said.status.code(), Some(4));
    assert!(out(&said).contains("ends at byte"), "{}", out(&said));
    let advised = run(&["advise", &recording("qemu"), &format!("--profile={seed}")]);
    assert_eq!(advised.status.code(), Some(0), "{}", err(&advised));
    assert!(out(&advised).contains("Where the host spends the time"), "{}", out(&advised));
}

/// Runs a command with a file as its standard input, which is a pipe.
fn piped(arguments: &[&str], file: &str) -> Output {
    let mut cat = Command::new("cat").arg(file).stdout(Stdio::piped()).spawn().unwrap();
    let output = command(arguments).stdin(cat.stdout.take().unwrap()).output().unwrap();
    cat.wait().unwrap();
    output
}

#[test]
fn hot_spots_and_recordings_are_read_from_pipes() {
    let seed = format!("{}/../../fuzz/seeds/hot_spots/small", env!("CARGO_MANIFEST_DIR"));
    for file in [&seed, &recording("qemu")] {
        let from_file = json(&["profile", file]);
        for name in ["-", "/dev/stdin"] {
            let said = piped(&["profile", name, "--json"], file);
            assert_eq!(said.status.code(), Some(0), "{file}: {}", err(&said));
            let read: Value = serde_json::from_str(&out(&said)).unwrap();
            assert_eq!(read["reasons"], from_file["reasons"], "{file} as {name}");
        }
        let shown = out(&piped(&["profile", "-"], file));
        assert!(shown.contains("standard input"), "{shown}");
    }
}

#[test]
fn stacks_go_to_standard_output_alone() {
    let folder = tempfile::tempdir().unwrap();
    let seed = format!("{}/../../fuzz/seeds/hot_spots/small", env!("CARGO_MANIFEST_DIR"));
    let said = command(&["profile", &seed, "--folded", "-"]).current_dir(folder.path()).output().unwrap();
    assert_eq!(said.status.code(), Some(0), "{}", err(&said));
    assert_eq!(out(&said).lines().next(), Some("device model;qemu-system-x86_64+0x12345 3"));
    assert!(out(&said).lines().all(|line| line.rsplit(' ').next().unwrap().parse::<u64>().is_ok()));
    let both = run(&["profile", &seed, "--folded", "-", "--json"]);
    assert_eq!(both.status.code(), Some(2), "{}", err(&both));
    for option in ["--output", "--flame-graph"] {
        let refused = command(&["profile", &seed, option, "-"]).current_dir(folder.path()).output().unwrap();
        assert_eq!(refused.status.code(), Some(2), "{}", err(&refused));
        assert!(err(&refused).contains("name a file"), "{}", err(&refused));
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn what_cannot_be_is_said_before_anything_is_sampled() {
    let seed = format!("{}/../../fuzz/seeds/hot_spots/small", env!("CARGO_MANIFEST_DIR"));
    for (arguments, words) in [
        (vec!["profile", "absent"], "no such recording"),
        (vec!["profile", &seed, "--output", &seed], "another"),
        (vec!["profile", "--reason", "nonsense"], "nonsense"),
        (vec!["profile", "--no-scheduler", "--weigh", "away"], "leave out one of them"),
        (vec!["profile", &recording("qemu"), "--weigh", "away"], "has no time off CPU"),
        (vec!["profile", &recording("qemu"), "--guest-symbols", "absent"], "no such file of symbols"),
        (vec!["profile", &recording("qemu"), "--guest-symbols", "/"], "/ is a directory"),
        (vec!["advise", &recording("qemu"), "--profile"], "--profile=FILE"),
    ] {
        let said = run(&arguments);
        assert_eq!(said.status.code(), Some(2), "{arguments:?}: {}", err(&said));
        assert!(err(&said).contains(words), "{}", err(&said));
    }
    // The existing file was not overwritten.
    assert!(fs::metadata(&seed).unwrap().len() > 0);
}
