//! QEMU with AVIC and x2AVIC, used by an unmodified KVM.

use crate::amd_svm::STILL_GUEST;
use crate::arms::{exits, median, near};
use crate::command::{LIMIT, run};

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
    for (reason, without) in [("msr", 2.0), ("interrupt", 1.0)] {
        let (off, on) = exits(&result, "ipi-running", reason);
        assert!(near(off, without) && on < 0.05, "{reason} an IPI: {off} off, {on} on");
    }
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

#[test]
fn a_linux_guest_boots_with_avic_and_verify_has_it_from_the_kernel() {
    // The guest has already powered off: `verify` takes longer to start here than the guest to boot.
    let script = format!(
        "{STILL_GUEST}; exitless verify --json --duration 100ms; \
         cat /sys/kernel/debug/kvm/$QEMU-*/irq_window_exits >&2; kill $QEMU; \
         echo virtual GIF: $(cat /sys/module/kvm_amd/parameters/vgif) >&2"
    );
    let said = run(&["lab", "run", "amd-avic", "--timeout", LIMIT, "--", "sh", "-c", &script]);
    assert_eq!(said.status, 0, "{}{}", said.out, said.err);
    let seen = said.json();
    assert_eq!(seen["status"], "active", "{seen}");
    let vm = &seen["vms"][0];
    assert_eq!((&vm["activation"]["mode"], &vm["activation"]["active_vcpus"]), (&"x2avic".into(), &2.into()));
    // AVIC is supported and enabled: bits 31 and 30 of int_ctl (AMD64 APM vol. 2, 15.29).
    assert_eq!(vm["activation"]["doubts"], serde_json::json!([]));
    for vcpu in vm["state"]["last"]["vcpus"].as_array().unwrap() {
        assert_eq!(vcpu["controls"]["svm"]["int_ctl"].as_u64().unwrap() >> 30, 3, "{vcpu}");
    }
    // Without virtual GIF, AVIC would interrupt a nested hypervisor that has cleared GIF.
    assert!(said.err.contains("virtual GIF: 1"), "{}", said.err);
    // Without AVIC a boot opens some 500 interrupt windows.
    let windows: Option<u32> = said.err.lines().find_map(|line| line.trim().parse().ok());
    assert!(windows.is_some_and(|windows| windows < 100), "{}", said.err);
}
