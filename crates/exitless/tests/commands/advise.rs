//! `advise` on real recordings: known ports are attributed to their devices, and sums equal those of
//! `report`.

use crate::command::{command, err, json, out, recording, run};
use crate::vm_fix::{TWO_DEFINITIONS, with_virsh};
use serde_json::Value;

fn rows(document: &Value) -> &[Value] {
    document["vms"][0]["rows"].as_array().unwrap()
}

fn row<'a>(document: &'a Value, device: &str) -> &'a Value {
    rows(document)
        .iter()
        .find(|row| row["device"] == device)
        .unwrap_or_else(|| panic!("no {device}: {document:#}"))
}

/// The exits by accesses in either direction, as `report` counts them.
fn reported(file: &str, by: &str, of: impl Fn(&str) -> bool) -> u64 {
    let report = json(&["report", file, "--by", by]);
    let rows = report["rows"].as_array().unwrap().iter();
    rows.filter(|row| of(row["access"].as_str().unwrap())).map(|row| row["exits"].as_u64().unwrap()).sum()
}

#[test]
fn a_guest_of_qemu_that_boots_writes_to_its_serial_port_and_its_screen() {
    let file = recording("qemu");
    let document = json(&["advise", &file]);
    let serial = row(&document, "serial");
    let ports = reported(&file, "port", |access| access.starts_with("0x3f"));
    assert_eq!(serial["exits"].as_u64().unwrap(), ports);
    // The costliest device comes first, and its fix names QEMU's arguments.
    assert_eq!(rows(&document)[0]["device"], "serial");
    assert!(serial["cures"][0]["qemu"].as_str().unwrap().contains("virtconsole"));
    let vga = row(&document, "vga");
    let window = reported(&file, "mmio", |access| access.starts_with("0xb"));
    let registers =
        reported(&file, "port", |access| access.starts_with("0x3c") || access.starts_with("0x3d"));
    // One exit accesses the window twice; `report` counts it at both addresses.
    assert_eq!(vga["exits"].as_u64().unwrap() + 1, window + registers);
}

#[test]
fn intels_and_amds_exits_lead_to_the_same_devices() {
    for name in ["vmx", "one-vcpu"] {
        let document = json(&["advise", &recording(name)]);
        for device in ["io-delay", "rtc", "eoi", "ipi", "guest-timer", "halt", "cpuid", "pci-memory"] {
            let row = row(&document, device);
            assert!(
                row["exits"].as_u64().unwrap() > 0 && !row["cures"].as_array().unwrap().is_empty(),
                "{name}"
            );
        }
        let halt = row(&document, "halt");
        assert_eq!((&halt["sleeps"], &halt["at_most_saved_ns"]), (&true.into(), &0.into()));
        assert!(halt["host_cpu_percent"].is_null());
    }
    let file = recording("vmx");
    let document = json(&["advise", &file]);
    let ends = reported(&file, "msr", |access| access == "EOI:W");
    assert_eq!(row(&document, "eoi")["exits"].as_u64().unwrap(), ends);
}

#[test]
fn rows_sum_up_to_what_report_says() {
    for name in ["vmx", "small", "several-vms", "losses", "qemu", "exit-only"] {
        let file = recording(name);
        let document = json(&["advise", &file]);
        let report = &json(&["report", &file])["totals"];
        let vms = document["vms"].as_array().unwrap();
        let sum = |field: &str| -> u64 { vms.iter().map(|vm| vm[field].as_u64().unwrap()).sum() };
        assert_eq!(sum("exits"), report["exits"].as_u64().unwrap(), "{name}");
        assert_eq!(sum("time_ns") + sum("sleep_ns"), report["time_ns"].as_u64().unwrap(), "{name}");
        assert_eq!(vms.len() as u64, report["vms"].as_u64().unwrap(), "{name}");
        assert!(sum("at_most_saved_ns") <= sum("time_ns"), "{name}");
    }
}

#[test]
fn exits_without_ports_ask_for_the_events() {
    let document = json(&["advise", &recording("exit-only")]);
    let row = row(&document, "ports-not-recorded");
    assert!(row["cures"][0]["host"].as_str().unwrap().contains("kvm:kvm_pio"));
}

#[test]
fn a_recording_without_times_tells_no_cost() {
    let file = recording("exit-only");
    for idle in [&[][..], &["--idle"][..]] {
        let text = out(&run(&[&["advise", &file][..], idle].concat()));
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(!words.contains(" 0.0 %"), "{text}");
        assert!(words.contains("is not in the recording"), "{text}");
    }
    let vm = &json(&["advise", &file])["vms"][0];
    for cost in
        [&vm["host_cpu_percent"], &vm["at_most_saved_percent"], &vm["rows"][0]["at_most_saved_percent"]]
    {
        assert!(cost.is_null(), "{vm:#}");
    }
}

#[test]
fn a_definition_strikes_what_the_vm_has_and_tells_devices_apart() {
    let folder = tempfile::tempdir().unwrap();
    let definition = folder.path().join("vm.args");
    let arguments =
        "qemu-system-x86_64 -accel kvm -M q35 -device e1000 -overcommit cpu-pm=on -usb -device usb-tablet\n";
    std::fs::write(&definition, arguments).unwrap();
    let definition = definition.to_str().unwrap();
    let file = recording("vmx");
    let document = json(&["advise", &file, "--definition", definition]);
    assert_eq!(document["vms"][0]["has_definition"], true);
    assert_eq!(row(&document, "nic-e1000")["by_definition"], true);
    let halt = &row(&document, "halt")["cures"];
    let cpu_pm = halt.as_array().unwrap().iter().find(|cure| cure["id"] == "cpu-pm").unwrap();
    assert_eq!(cpu_pm["there"], true);
    assert_eq!(document["vms"][0]["suspects"][0]["id"], "usb-tablet");
    let text = out(&run(&["advise", &file, "--definition", definition, "--top", "20"]));
    assert!(!text.contains("-overcommit cpu-pm=on"), "{text}");
    assert!(text.contains("without exits: USB tablet"), "{text}");
    let several = run(&["advise", &recording("several-vms"), "--definition", definition]);
    assert_eq!(several.status.code(), Some(2), "{}", err(&several));
}

#[test]
fn a_recorded_domain_is_judged_by_the_definition_with_which_it_runs() {
    let folder = tempfile::tempdir().unwrap();
    let path = with_virsh(folder.path(), TWO_DEFINITIONS);
    for (name, model) in [("live", "e1000"), ("next", "virtio")] {
        let interface = format!("<interface type='network'><model type='{model}'/></interface>");
        let os = "<os><type arch='x86_64' machine='pc-q35-9.2'>hvm</type></os>";
        let xml = format!("<domain type='kvm'><name>web</name>{os}<devices>{interface}</devices></domain>\n");
        std::fs::write(folder.path().join(name), xml).unwrap();
    }
    let mut advise = command(&["advise", &recording("vmx"), "--definition", "libvirt:web", "--json"]);
    let output = advise.env("PATH", path).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(row(&document, "nic-e1000")["by_definition"], true);
}

#[test]
fn a_vm_at_rest_has_a_budget() {
    let file = recording("small");
    let above = run(&["advise", &file, "--idle"]);
    assert_eq!(above.status.code(), Some(1));
    let text = out(&above);
    assert!(text.contains("above the budget of 100/s") && text.contains("woken by"), "{text}");
    let within = run(&["advise", &file, "--idle", "--budget", "10000", "--json"]);
    assert_eq!(within.status.code(), Some(0));
    let document: Value = serde_json::from_slice(&within.stdout).unwrap();
    let idle = &document["vms"][0]["idle"];
    assert_eq!((&idle["within"], &idle["budget_exits_per_second"]), (&true.into(), &10000.0.into()));
    assert!(idle["sleeps_per_second"].as_f64().unwrap() > 100.0);
    assert!(json(&["advise", &file])["vms"][0]["idle"].is_null());
}

#[test]
fn the_text_fits_80_columns_and_says_what_was_lost() {
    for name in ["vmx", "small", "qemu", "several-vms", "exit-only", "losses"] {
        for idle in [&[][..], &["--idle"][..]] {
            let text = out(&run(&[&["advise", &recording(name), "--top", "40"][..], idle].concat()));
            for line in text.lines() {
                assert!(line.chars().count() <= 80, "{name}: {line}");
            }
            assert!(!text.contains('\u{1b}'));
        }
    }
    let told = out(&run(&["advise", &recording("losses")]));
    let told: Vec<&str> = told.split_whitespace().collect();
    assert!(told.join(" ").contains("894 of them exits: counts are lower bounds"));
    let wide = command(&["advise", &recording("vmx")]).env("COLUMNS", "160").output().unwrap();
    assert!(out(&wide).lines().any(|line| line.chars().count() > 80));
}

#[test]
fn options_about_recordings_are_refused_without_one() {
    for option in [["--from", "1s"], ["--to", "1s"], ["--tsc-hz", "2G"], ["--isa", "vmx"]] {
        let said = run(&[&["advise"][..], &option].concat());
        assert_eq!(said.status.code(), Some(2), "{}", err(&said));
        assert!(err(&said).contains(&format!("{} is for recordings", option[0])), "{}", err(&said));
        for command in ["advise", "predict"] {
            let said = run(&[&[command, "--duration", "10ms"][..], &option].concat());
            assert_eq!(said.status.code(), Some(2), "{}", err(&said));
            assert!(err(&said).contains("cannot be used with"), "{}", err(&said));
        }
    }
}

#[test]
fn statuses_are_those_of_report() {
    for name in ["killed", "killed-zstd", "sched-only", "vmx"] {
        let [advise, report] =
            ["advise", "report"].map(|command| run(&[command, &recording(name)]).status.code());
        assert_eq!(advise, report, "{name}");
    }
    assert_eq!(run(&["advise", "no-such-file"]).status.code(), Some(2));
    assert_eq!(run(&["advise", "--budget", "5", &recording("vmx")]).status.code(), Some(2));
    assert_eq!(run(&["advise", &recording("vmx"), "--vm", "nobody"]).status.code(), Some(2));
}
