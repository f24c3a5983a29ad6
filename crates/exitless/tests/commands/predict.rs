//! `predict` on real recordings: the prediction from one without interrupt virtualization, compared with a
//! recording of the same load with it.

use std::collections::BTreeMap;

use crate::command::{command, err, json, out, recording, run};
use serde_json::Value;

fn rows(document: &Value) -> &[Value] {
    document["rows"].as_array().unwrap()
}

/// The exits that are predicted to remain, with their bounds, by their later reason.
fn staying(document: &Value) -> BTreeMap<String, [f64; 3]> {
    let mut reasons = BTreeMap::new();
    for row in rows(document) {
        let reason = if row["becomes"].is_null() { &row["reason"] } else { &row["becomes"] };
        let sum = reasons.entry(reason.as_str().unwrap().to_owned()).or_insert([0.0; 3]);
        for (sum, field) in sum.iter_mut().zip(["low", "expected", "high"]) {
            *sum += row["stay_exits"][field].as_f64().unwrap();
        }
    }
    reasons
}

#[test]
fn the_recording_without_apicv_predicts_the_one_with_it() {
    let predicted = staying(&json(&["predict", &recording("vmx")]));
    let measured = json(&["report", &recording("vmx-apicv")]);
    let measured: BTreeMap<&str, f64> = rows(&measured)
        .iter()
        .map(|row| (row["reason"].as_str().unwrap(), row["exits"].as_f64().unwrap()))
        .collect();
    for (reason, [low, expected, high]) in &predicted {
        let seen = measured.get(reason.as_str()).copied().unwrap_or(0.0);
        let error = expected - seen;
        eprintln!("{reason}: predicted {expected:.1} ({low:.0} to {high:.0}), measured {seen}");
        match reason.as_str() {
            // A vCPU spins for a lock for a time that depends on the other vCPU.
            "PAUSE_INSTRUCTION" => assert!(error.abs() <= 10.0),
            // 12 of 25 were avoided; a prediction that counts all or none as kicks would be off by 13 or 12.
            "EXTERNAL_INTERRUPT" => assert!(error.abs() <= 5.0 && *low <= seen && seen <= *high),
            // Nothing in the recording bounds the EOIs of level-triggered interrupts.
            "EOI_INDUCED" => assert!(error.abs() < 0.5 && *low <= seen && seen <= *high),
            _ => assert!(error.abs() < 0.5 && low == high, "{reason}"),
        }
    }
    assert_eq!(measured.keys().filter(|&&reason| !predicted.contains_key(reason)).count(), 0);
}

#[test]
fn what_is_active_already_is_said() {
    let file = recording("vmx-apicv");
    let document = json(&["predict", &file]);
    assert_eq!(document["already"].as_array().unwrap().len(), 1);
    assert_eq!(document["totals"]["gone_exits"]["high"], 0.0);
    let text = out(&run(&["predict", &file]));
    assert!(text.contains("active already"), "{text}");
    assert!(json(&["predict", &recording("vmx")])["already"].as_array().unwrap().is_empty());
}

#[test]
fn amd_hosts_are_predicted_by_what_they_would_have() {
    let file = recording("small");
    let of = |arguments: &[&str], access: &str| -> f64 {
        let document = json(&[&["predict", &file][..], arguments].concat());
        let row = rows(&document).iter().find(|row| row["part"] == access).unwrap().clone();
        row["gone_exits"]["expected"].as_f64().unwrap()
    };
    assert_eq!(of(&[], "EOI:W"), 3327.0);
    assert_eq!(of(&["--for", "x2avic"], "EOI:W"), 3327.0);
    assert_eq!(of(&["--for", "avic"], "EOI:W"), 0.0);
    assert!(of(&[], "ICR:W") > 0.0);
    assert_eq!(of(&["--no-ipi-virtualization"], "ICR:W"), 0.0);
}

#[test]
fn every_event_of_kvm_makes_ranges_narrower() {
    // The same load on the same kind of host, once recorded with all events and once with those of `perf kvm
    // stat`.
    let all = json(&["predict", &recording("all-kvm")]);
    assert_eq!(all["record"], serde_json::json!([]));
    let few = json(&["predict", &recording("one-vcpu")]);
    assert_ne!(few["record"], serde_json::json!([]));
}

#[test]
fn exits_without_registers_ask_for_the_event() {
    let document = json(&["predict", &recording("exit-only")]);
    let wanted = document["record"].as_array().unwrap();
    assert!(wanted.contains(&"kvm:kvm_msr".into()), "{wanted:?}");
    let msr = rows(&document).iter().find(|row| row["reason"] == "msr").unwrap();
    assert_eq!((&msr["part"], &msr["gone_exits"]["high"]), (&"whole".into(), &msr["exits"].as_f64().into()));
}

#[test]
fn rows_sum_up_to_the_totals_and_to_those_of_report() {
    for name in ["vmx", "small", "several-vms", "losses", "qemu", "exit-only"] {
        let file = recording(name);
        let document = json(&["predict", &file]);
        let totals = &document["totals"];
        let sum =
            |field: &str| -> u64 { rows(&document).iter().map(|row| row[field].as_u64().unwrap()).sum() };
        let report = &json(&["report", &file])["totals"];
        assert_eq!(totals["exits"], report["exits"], "{name}");
        assert_eq!(sum("exits"), report["exits"].as_u64().unwrap(), "{name}");
        assert_eq!(sum("time_ns"), report["time_ns"].as_u64().unwrap(), "{name}");
        let cost = totals["time_ns"].as_u64().unwrap() + totals["idle_ns"].as_u64().unwrap();
        assert_eq!(cost, report["time_ns"].as_u64().unwrap(), "{name}");
    }
}

#[test]
fn the_vms_are_chosen_as_in_report() {
    let file = recording("several-vms");
    let all = json(&["report", &file, "--by", "vm"]);
    for vm in rows(&all) {
        let number = vm["vm"].to_string();
        let of_one = json(&["predict", &file, "--vm", &number]);
        assert_eq!(of_one["totals"]["exits"], vm["exits"]);
    }
    assert_eq!(run(&["predict", &file, "--vm", "nobody"]).status.code(), Some(2));
}

#[test]
fn vms_of_this_host_are_selected_before_it_is_watched() {
    let said = run(&["predict", "--duration", "10ms", "--vm", "00000000-0000-4000-8000-000000000000"]);
    assert_eq!(said.status.code(), Some(2), "{}", err(&said));
    assert!(err(&said).contains("No VM is called"), "{}", err(&said));
}

#[test]
fn the_table_fits_80_columns_and_keeps_the_range() {
    for name in ["vmx", "small", "qemu", "several-vms", "exit-only"] {
        let text = out(&run(&["predict", &recording(name)]));
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(!text.contains('\u{1b}'));
        let title = text.lines().find(|line| line.starts_with("exit reason")).unwrap();
        assert!(title.contains("range") && title.contains("why"), "{title}");
    }
    let wide = out(&command(&["predict", &recording("vmx")]).env("COLUMNS", "120").output().unwrap());
    assert!(wide.contains("partly"), "{wide}");
}

#[test]
fn statuses_are_those_of_report() {
    let status = |arguments: &[&str]| {
        let output = run(arguments);
        (output.status.code(), err(&output))
    };
    for name in ["killed", "killed-zstd", "sched-only", "vmx"] {
        let [predict, report] = ["predict", "report"].map(|command| status(&[command, &recording(name)]).0);
        assert_eq!(predict, report, "{name}");
    }
    let (code, said) = status(&["predict", "--for", "apicv", &recording("small")]);
    assert!(code == Some(2) && said.contains("--for avic"), "{said}");
    let (code, said) = status(&["predict", "--for", "avic", &recording("vmx")]);
    assert!(code == Some(2) && said.contains("--for apicv"), "{said}");
    for more in [&[][..], &["--for", "avic"]] {
        let (code, said) =
            status(&[&["predict", "--no-posted-interrupts", &recording("small")][..], more].concat());
        assert!(code == Some(2) && said.contains("--no-posted-interrupts is for APICv"), "{said}");
    }
    assert_eq!(status(&["predict", "--no-posted-interrupts", &recording("vmx")]).0, Some(0));
    assert_eq!(status(&["predict", "no-such-file"]).0, Some(2));
    let both = ["predict", "--ipi-virtualization", "--no-ipi-virtualization", &recording("vmx")];
    assert_eq!(status(&both).0, Some(2));
}
