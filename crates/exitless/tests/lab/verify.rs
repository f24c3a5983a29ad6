//! `exitless verify` on real KVM hosts: real inhibit masks from the running kernel.

use serde_json::Value;

use crate::command::{bare, forced_avic, lasting_inhibits};

fn of_reasons(vm: &Value) -> Vec<&str> {
    vm["activation"]["reasons"].as_array().unwrap().iter().filter_map(|one| one["reason"].as_str()).collect()
}

#[test]
fn a_pit_that_reinjects_is_found_in_the_mask_of_a_real_vm() {
    let vm = |name: &str, accelerator: &str| {
        format!(
            "qemu-system-x86_64 -name {name} -accel {accelerator} -cpu host -smp 2 -m 64 -display none \
             -nodefaults -no-user-config </dev/null >/dev/null 2>&1 & {name}=$!; "
        )
    };
    let script = format!(
        "{}{}sleep 4; exitless verify --json --duration 500ms; status=$?; kill $pit $split; wait; exit $status",
        vm("pit", "kvm"),
        vm("split", "kvm,kernel-irqchip=split")
    );
    let said = forced_avic(&script);
    assert_eq!(said.status, 1, "{}", said.err);
    let seen = said.json();
    assert_eq!((&seen["status"], &seen["missing"]), (&"inhibited".into(), &Value::Array(Vec::new())));
    let vms = seen["vms"].as_array().unwrap();
    let named = |name: &str| vms.iter().find(|vm| vm["name"] == name).unwrap_or_else(|| panic!("{seen}"));

    let pit = named("pit");
    assert_eq!((of_reasons(pit), &pit["activation"]["status"]), (vec!["PIT_REINJ"], &"inhibited".into()));
    // The reason PIT_REINJ is bit 9 in Linux 6.12.
    assert_eq!(lasting_inhibits(pit), 1 << 9);
    assert_eq!(pit["state"]["last"]["pit_reinjects"], true);
    let cures = pit["cures"][0]["cures"].as_array().unwrap();
    assert!(cures.iter().any(|cure| cure["place"] == "qemu"), "{cures:?}");

    // No inhibit reason is set and KVM uses AVIC, but the emulated CPU does not support it.
    let split = named("split");
    assert_eq!(lasting_inhibits(split), 0);
    assert_eq!(split["state"]["last"]["irqchip"], "split");
    assert_eq!((&split["activation"]["active_vcpus"], &split["activation"]["vcpus"]), (&2.into(), &2.into()));
    assert_eq!(split["activation"]["doubts"].to_string(), r#"["cpu-denies"]"#);
    for vcpu in split["state"]["last"]["vcpus"].as_array().unwrap() {
        assert_ne!(vcpu["controls"]["svm"]["int_ctl"].as_u64().unwrap() & 1 << 31, 0, "{vcpu}");
    }
    // A vCPU applies the change at its next entry; the second one has not been started yet.
    let first = &pit["state"]["last"]["vcpus"][0];
    assert_eq!(first["controls"]["svm"]["int_ctl"].as_u64().unwrap() & 1 << 31, 0, "{first}");
}

#[test]
fn a_module_that_has_it_off_decides_without_a_vm() {
    let said = bare("amd-svm", "exitless verify --duration 100ms; echo status $?; exitless verify --vm none");
    assert!(said.out.ends_with("status 1\n"), "{}{}", said.out, said.err);
    assert!(said.out.contains("No VM was found, and none could have AVIC"), "{}", said.out);
    assert_eq!(said.status, 2);
    assert!(said.err.contains("No VM is called \"none\""), "{}", said.err);
}

#[test]
fn a_micro_vm_with_apicv_is_seen_in_both_arms() {
    // Interrupts of a vCPU's own timer, so that no other vCPU is entered.
    let script = "exitless probe --measure timer-fire --samples 300 --warm-up 10 --blocks 1200 \
                  >/dev/null 2>&1 & vm=$!; sleep 2; \
                  exitless verify --vm $vm --json --duration 3s; kill -9 $vm; exit 0";
    let said = bare("intel-apicv", script);
    assert_eq!(said.status, 0, "{}", said.err);
    let seen = said.json();
    let vm = &seen["vms"][0];
    let samples = vm["state"]["samples"].as_array().unwrap();
    // BLOCKIRQ is bit 3 in Linux 6.12. One vCPU follows the change; the others, one of them parked, are not
    // entered meanwhile.
    let arm = |mask: u64| samples.iter().filter(move |sample| sample["inhibits"] == mask);
    let active = |mask| arm(mask).map(|sample| sample["active_vcpus"].as_u64().unwrap()).collect::<Vec<_>>();
    assert!(active(0).contains(&3) && active(1 << 3).contains(&2), "{samples:?}");
    let changes = vm["changes"].as_array().unwrap();
    assert!(!changes.is_empty() && changes.iter().all(|one| one["reason"] == "BLOCKIRQ"), "{changes:?}");
    match vm["activation"]["status"].as_str().unwrap() {
        "inhibited" => assert_eq!(of_reasons(vm), ["BLOCKIRQ"]),
        // Between two arms, vCPUs apply the change one after the other.
        status => assert!(["active", "partly"].contains(&status), "{vm}"),
    }
    assert_eq!(vm["ipi_virtualization"]["why"], "cpu");
    assert!(vm["exits"]["eoi_writes"].as_u64().unwrap() > 0, "{vm}");
}
