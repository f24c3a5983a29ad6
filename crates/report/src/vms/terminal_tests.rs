use super::*;
use host::vms::{HeldProcess, LikelyVm, NamedThread, Vcpu, Vms};
use live::statistics::{Failure, Origin};
use std::collections::BTreeMap;
use std::time::Instant;

fn vm(pid: i32, name: &str, vmm: Vmm) -> Vm {
    let vcpu = |number: u32| {
        let thread = Some(pid + 5 + i32::try_from(number).unwrap());
        Vcpu { number, fd: Some(9), thread, statistics_fd: None }
    };
    Vm {
        pid,
        vmm,
        command: "sandbox\u{1b}".to_owned(),
        name: name.to_owned(),
        start_ticks: 1,
        started: Some(1_700_000_000),
        vm_fds: vec![8],
        vcpus: (0..4).map(vcpu).collect(),
        threads: vec![pid],
        vhost: vec![NamedThread { tid: 3, name: "vhost-40".to_owned(), kernel: false }],
        devices: vec![AssignedDevice::Pci("0000:65:00.0".to_owned())],
        ..Vm::default()
    }
}

fn statistics(origin: Option<Origin>, values: &[(&str, u64)]) -> VmStatistics {
    let total: BTreeMap<String, u64> =
        values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
    VmStatistics {
        pid: 40,
        start_ticks: 1,
        name: "web".to_owned(),
        origin,
        failures: vec![Failure { origin: Origin::Debugfs, cause: "run as root".to_owned() }],
        vcpus: BTreeMap::from([(0, total.clone())]),
        total,
        units: BTreeMap::from([("halt_wait_ns".to_owned(), "ns".to_owned())]),
        missing: vec![Missing::Reasons, Missing::HandlingTimes],
        read_at: Instant::now(),
    }
}

#[test]
fn a_list_that_fits_into_80_columns() {
    let vms = [
        vm(4_194_300, "a-machine-with-a-name-that-is-longer-than-most", Vmm::CloudHypervisor),
        vm(40, "web\u{1b}[2J", Vmm::Other),
    ];
    let likely = vec![LikelyVm { pid: 7, command: "qemu-system-x86".to_owned(), vcpu_threads: 2 }];
    let held = vec![HeldProcess { pid: 78, command: "monitor".to_owned() }];
    let found = Vms { vms: vms.to_vec(), unreadable: 3, likely, held };
    let chosen: Vec<&Vm> = found.vms.iter().collect();
    let running = Running { found: &found, vms: &chosen, counted: None };
    let text = terminal(&running, 80, false);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(!text.contains('\u{1b}') && text.contains("4194305-4194308"), "{text}");
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.contains(&format!("3 processes cannot be inspected, and may be VMs; {AS_ROOT}.")), "{text}");
    assert!(
        text.contains("Process 7 (qemu-system-x86) looks like a VM: 2 threads named as vCPUs."),
        "{text}"
    );
    assert!(terminal(&running, 140, false).contains("2023-11-14T22:13:20Z"));
    let one = Vms { unreadable: 1, ..found.clone() };
    let text = terminal(&Running { found: &one, vms: &chosen, counted: None }, 200, false);
    assert!(text.contains("1 process cannot be inspected, and may be a VM; run as root"), "{text}");
    let none = Running { found: &Vms::default(), vms: &[], counted: None };
    assert_eq!(terminal(&none, 80, false), "No VM was found.\n");
}

#[test]
fn counters_with_rates_units_and_what_is_missing() {
    let mut before = statistics(Some(Origin::Qmp), &[("exits", 1000), ("halt_wait_ns", 0), ("io_exits", 9)]);
    let after = statistics(
        Some(Origin::Qmp),
        &[("exits", 3000), ("halt_wait_ns", 2_000_000), ("io_exits", 5), ("zero", 0)],
    );
    before.read_at = after.read_at - Duration::from_secs(2);
    let counted = [Counted { change: after.since(&before), statistics: after }];
    let found = Vms::default();
    let text = terminal(&Running { found: &found, vms: &[], counted: Some(&counted) }, 80, false);
    let row = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().skip(1).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(row("exits "), "3,000 1,000/s");
    assert_eq!(row("halt_wait_ns"), "2.00 ms 1.00 ms/s");
    assert_eq!(row("io_exits"), format!("5 {NONE}"));
    assert!(text.find("io_exits") < text.find("halt_wait_ns"), "exits come first");
    assert!(text.contains("1 other counter is 0. Exits by vCPU: 0: 3,000."), "{text}");
    assert!(text.contains("io_exits went back"), "{text}");
    assert!(text.contains("web (40), debugfs: run as root."), "{text}");
    let (web, other) = (vm(40, "web", Vmm::Other), vm(41, "other", Vmm::Other));
    let held = vec![HeldProcess { pid: 78, command: "monitor".to_owned() }];
    let likely = vec![LikelyVm { pid: 7, command: "qemu-system-x86".to_owned(), vcpu_threads: 2 }];
    let found = Vms { vms: Vec::new(), unreadable: 3, likely, held };
    let running = Running { found: &found, vms: &[&web, &other], counted: Some(&counted) };
    let document = crate::vms::json(&running);
    insta::assert_snapshot!("programs", serde_json::to_string_pretty(&document).unwrap());
}

#[test]
fn a_vm_without_counters_says_why() {
    let counted = [Counted { statistics: statistics(None, &[]), change: None }];
    let text = terminal(&Running { found: &Vms::default(), vms: &[], counted: Some(&counted) }, 80, false);
    assert!(text.contains("web (40): no counters") && text.contains("run as root."), "{text}");
}
