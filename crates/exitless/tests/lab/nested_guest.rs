//! A whole Linux guest under QEMU on Bochs, with APICv off and on. It stood still with APICv on until Bochs's copy was
//! corrected: `bochs_correction.rs` of the crate lab, docs/nested-guests.md.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::command::{Said, run};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/lab/nested_guest.sh");

/// The rest of each line that begins with `word` and `arm`.
fn lines<'a>(said: &'a Said, word: &str, arm: &str) -> Vec<&'a str> {
    let start = format!("{word} {arm} ");
    said.out.lines().filter_map(|line| line.strip_prefix(&start)).collect()
}

/// Exits by reason while sysbench ran.
fn exits(said: &Said, arm: &str) -> BTreeMap<String, u64> {
    let text = lines(said, "exits", arm).concat();
    let table: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {}", said.out));
    let rows = table["rows"].as_array().expect("rows").iter();
    rows.map(|row| (row["reason"].as_str().unwrap().to_owned(), row["exits"].as_u64().unwrap())).collect()
}

#[test]
fn a_linux_guest_runs_sysbench_with_apicv_off_and_on() {
    let put = format!("{SCRIPT}:/root/nested_guest.sh");
    let lab = ["lab", "run", "intel-apicv", "--timings", "--timeout", "3000", "--put", &put];
    let said = run(&[&lab[..], &["--", "sh", "/root/nested_guest.sh", "N", "Y"]].concat());
    assert_eq!(said.status, 0, "{}{}", said.out, said.err);

    for arm in ["N", "Y"] {
        let console = lines(&said, "console", arm).join("\n");
        assert!(console.contains("total number of events:              320"), "{arm}: {console}");
        assert!(!console.contains("Spurious APIC interrupt"), "{arm}: {console}");
        assert_eq!(lines(&said, "ended", arm), ["0"], "{arm}");
        let seconds: u64 = lines(&said, "ready", arm)[0].parse().unwrap();
        // By the emulated clock.
        assert!(seconds < 90, "{arm}: {seconds} s");
    }

    let (off, on) = (exits(&said, "N"), exits(&said, "Y"));
    eprintln!("off {off:?}\non {on:?}\n{}", said.err);
    let of = |arm: &BTreeMap<String, u64>, reason: &str| arm.get(reason).copied().unwrap_or(0);
    // Linux ends every interrupt with an EOI, an MSR write that exits unless it is virtualized; what is left are IPIs
    // and timers. No window is ever waited for.
    assert!(of(&off, "INTERRUPT_WINDOW") > 0 && of(&on, "INTERRUPT_WINDOW") == 0, "{off:?} {on:?}");
    assert_eq!(of(&on, "EOI_INDUCED"), 0, "edge-triggered interrupts only: {on:?}");
    assert!(of(&on, "MSR_WRITE") < of(&off, "MSR_WRITE"), "{off:?} {on:?}");
}
