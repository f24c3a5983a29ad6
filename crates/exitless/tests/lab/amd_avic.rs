//! QEMU with AVIC and x2AVIC, used by an unmodified KVM.

use crate::arms::{exits, median, near};
use crate::command::run;

#[test]
fn avic_takes_away_the_exits_of_interrupts_and_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().to_str().unwrap();
    let measures = ["ipi-running", "eoi", "timer-fire", "hlt", "msr-read"];
    let mut arguments = vec!["prove", "--lab", "amd-avic", "--json", "--output", output];
    measures.iter().for_each(|name| arguments.extend(["--measure", name]));
    let said = run(&arguments);
    assert_eq!(said.status, 0, "{}", said.err);
    let result = said.json();

    // One VM measured both arms; an inhibit reason that the kernel reported separates them.
    assert_eq!(result["judgement"], "worth-it");
    assert_eq!(result["evidence"]["reason"], "BLOCKIRQ");
    assert_eq!(result["evidence"]["checked"], serde_json::json!({"off": "confirmed", "on": "confirmed"}));

    // With AVIC neither the ICR write nor the EOI exits, and no kicks are needed.
    let (off, on) = exits(&result, "ipi-running", "msr");
    assert!(near(off, 2.0) && on < 0.05, "msr an IPI: {off} off, {on} on");
    // The host's own interrupts, its timer's mostly, exit in both arms: a few in a run, however long it is.
    let (off, on) = exits(&result, "ipi-running", "interrupt");
    assert!(near(off, 1.0) && near(off - on, 1.0), "interrupt an IPI: {off} off, {on} on");
    assert!(median(&result, "ipi-running", "on") * 10.0 < median(&result, "ipi-running", "off"));
    let (off, on) = exits(&result, "eoi", "msr");
    assert!(near(off, 2.0) && on < 0.05, "msr an EOI: {off} off, {on} on");
    for name in ["timer-fire", "hlt"] {
        let (off, on) = exits(&result, name, "vintr");
        assert!(near(off, 1.0) && on == 0.0, "vintr of {name}: {off} off, {on} on");
    }
    let (off, on) = exits(&result, "msr-read", "msr");
    assert!(near(off, 1.0) && near(on, 1.0), "msr: {off} off, {on} on");
    assert_eq!(result["exits"]["lost"], serde_json::json!({"off": 0, "on": 0}));
}
