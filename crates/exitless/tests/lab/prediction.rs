//! `predict` compared with reality: the micro VM's exits with APICv inhibited must predict those with APICv.

use std::collections::BTreeMap;
use std::fs;

use serde_json::Value;

use crate::command::run;

/// Records the micro VM in both arms with tracefs. Bochs has no IPI virtualization, so the prediction assumes
/// none.
const RECORD: &str = "
    set -e
    tracing=/sys/kernel/tracing
    mount -t tracefs nodev $tracing 2> /dev/null || true
    echo 65536 > $tracing/buffer_size_kb
    for event in kvm_exit kvm_entry kvm_msr kvm_mmio kvm_apicv_inhibit_changed; do
        echo 1 > $tracing/events/kvm/$event/enable
    done
    exitless probe --measure ipi-running --measure ipi-halted --measure hlt --measure cpuid \
        --samples 200 --warm-up 5 --blocks 1 > /dev/null
    cat $tracing/trace > /tmp/both.txt
";

/// The lines of a trace with APICv inhibited and with APICv active, each with the header.
fn arms(trace: &str) -> [String; 2] {
    let mut arms = [String::new(), String::new()];
    let mut on = 0;
    for line in trace.lines() {
        if line.starts_with('#') {
            arms.iter_mut().for_each(|arm| *arm += &format!("{line}\n"));
        } else if let Some((_, inhibits)) = line.split_once("inhibits=") {
            on = usize::from(inhibits.split_whitespace().next() == Some("0x0"));
        } else {
            arms[on] += &format!("{line}\n");
        }
    }
    arms
}

fn rows(document: &Value) -> &[Value] {
    document["rows"].as_array().unwrap()
}

fn json(command: &str, file: &str) -> Value {
    let said = run(&[command, "--json", file]);
    assert_eq!(said.status, 0, "{}", said.err);
    said.json()
}

#[test]
fn exits_without_apicv_foretell_those_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let output = path("");
    let lab = ["lab", "run", "intel-apicv", "--bare", "--get", "/tmp/both.txt", "--output", &output];
    let said = run(&[&lab[..], &["--", "sh", "-c", RECORD]].concat());
    assert_eq!(said.status, 0, "{}", said.err);
    let [off, on] = arms(&fs::read_to_string(path("both.txt")).unwrap());
    fs::write(path("off.txt"), off).unwrap();
    fs::write(path("on.txt"), on).unwrap();

    let prediction = json("predict", &path("off.txt"));
    let mut predicted = BTreeMap::<&str, [f64; 4]>::new();
    for row in rows(&prediction) {
        let sums = predicted.entry(row["reason"].as_str().unwrap()).or_default();
        let stays = &row["stay_exits"];
        let figures = [&stays["low"], &stays["expected"], &stays["high"], &row["exits"]];
        sums.iter_mut().zip(figures).for_each(|(sum, figure)| *sum += figure.as_f64().unwrap());
    }
    let measured = json("report", &path("on.txt"));
    let measured: BTreeMap<&str, f64> = rows(&measured)
        .iter()
        .map(|row| (row["reason"].as_str().unwrap(), row["exits"].as_f64().unwrap()))
        .collect();
    for (reason, [low, expected, high, off]) in &predicted {
        let seen = measured.get(reason).copied().unwrap_or(0.0);
        eprintln!("{reason}: {off} off; on predicted {expected:.0} ({low:.0} to {high:.0}), measured {seen}");
    }

    // The bounds are shares of the exits without APICv. 0.05 is far below the error of any wrong rule: EOIs
    // are half of MSR_WRITE, and all windows and nearly all kicks are avoided. Interrupts by the host's ticks
    // are derived from the observed time of vCPUs, which is longer in an emulator on a busy machine.
    for (reason, bound) in [
        ("MSR_WRITE", 0.05),
        ("INTERRUPT_WINDOW", 0.02),
        ("CPUID", 0.02),
        ("HLT", 0.05),
        ("EXTERNAL_INTERRUPT", 0.4),
    ] {
        let [low, expected, high, off] = predicted[reason];
        let seen = measured.get(reason).copied().unwrap_or(0.0);
        assert!(off > 500.0, "{reason}: {off} exits are too few to tell");
        let error = (expected - seen) / off;
        assert!(error.abs() < bound, "{reason}: {expected} predicted, {seen} measured of {off}");
        let slack = 0.02 * off;
        assert!(low - slack <= seen && seen <= high + slack, "{reason}: {seen} is not in {low} to {high}");
    }
    assert_eq!(prediction["already"], serde_json::json!([]));
    let again = json("predict", &path("on.txt"));
    assert!(again["totals"]["gone_exits_percent"]["high"].as_f64().unwrap() < 5.0, "{}", again["totals"]);
}
