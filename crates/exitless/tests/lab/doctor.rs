//! `exitless doctor` on real KVM hosts.

use serde_json::Value;

use crate::command::{bare, forced_avic};

/// The finding of a rule, wherever it is in the tree.
fn of_rule<'a>(findings: &'a Value, rule: &str) -> Option<&'a Value> {
    findings.as_array()?.iter().find_map(|finding| {
        if finding["rule"] == rule { Some(finding) } else { of_rule(&finding["children"], rule) }
    })
}

/// The state of a rule in the JSON of `doctor` and `vm lint`, and what was found.
pub(crate) fn found<'a>(document: &'a Value, rule: &str) -> (&'a str, &'a str) {
    let sections = document["sections"].as_array().expect("sections");
    let finding = sections.iter().find_map(|section| of_rule(&section["findings"], rule));
    let finding = finding.unwrap_or_else(|| panic!("no {rule}: {document}"));
    (finding["state"].as_str().expect("a state"), finding["found"].as_str().expect("what was found"))
}

fn find<'a>(document: &'a Value, section: &str, rule: &str) -> &'a Value {
    let sections = document["sections"].as_array().unwrap();
    let section = sections.iter().find(|one| one["name"] == section).unwrap_or_else(|| panic!("{document}"));
    of_rule(&section["findings"], rule).unwrap_or_else(|| panic!("no {rule} in {section}"))
}

#[test]
fn the_pit_that_inhibits_a_running_vm_is_named_with_its_cure() {
    let script = "qemu-system-x86_64 -name pit -accel kvm -cpu host -smp 2 -m 64 -display none -nodefaults \
                  -no-user-config </dev/null >/dev/null 2>&1 & vm=$!; sleep 3; exitless doctor --json; status=$?; \
                  kill $vm; wait; exit $status";
    let said = forced_avic(script);
    assert_eq!(said.status, 1, "{}", said.err);
    let seen = said.json();
    assert_eq!((&seen["format"], &seen["subject"]), (&1.into(), &"/".into()));

    let now = find(&seen, "pit", "vm-interrupt-virtualization");
    assert_eq!(now["state"], "fail");
    assert!(now["found"].as_str().unwrap().starts_with("inhibited by PIT_REINJ: "), "{now}");
    // Reason PIT_REINJ is bit 9 in Linux 6.12, read from the kernel's memory.
    let mask = "inhibit mask 0x200, active for 0 of 2 vCPUs";
    assert!(now["evidence"].as_array().unwrap().iter().any(|one| one["value"] == mask), "{now}");
    let cures = now["fixes"].to_string();
    assert!(cures.contains("-machine kernel-irqchip=split"), "{cures}");
    assert!(cures.contains("kvm-pit.lost_tick_policy=discard"), "{cures}");
    // The process's command line, as the VM's definition, gives the same finding.
    assert_eq!(find(&seen, "pit", "pit-lost-ticks")["state"], "fail");

    // The emulated CPU has no AVIC; the module was forced to use it.
    assert_eq!(find(&seen, "cpu", "cpu-avic")["state"], "fail");
    assert_eq!(find(&seen, "contradictions", "contradiction-forced-avic")["state"], "warn");
    let conclusion = &seen["conclusion"];
    assert_eq!(conclusion["outcome"], "inhibited");
    assert!(conclusion["sentence"].as_str().unwrap().contains("for VM pit by PIT_REINJ"), "{conclusion}");
    assert!(conclusion["next"].as_str().unwrap().starts_with("exitless vm fix "), "{conclusion}");
}

#[test]
fn a_host_with_apicv_passes_and_is_ready() {
    let said = bare("intel-apicv", "exitless doctor --json");
    let seen = said.json();
    for (section, rule) in [
        ("cpu", "cpu-virtualization"),
        ("cpu", "cpu-apicv"),
        ("kvm", "kvm-interrupt-virtualization"),
        ("kvm", "kvm-device"),
    ] {
        assert_eq!(find(&seen, section, rule)["state"], "pass", "{section} {rule}: {seen}");
    }
    assert_eq!(seen["conclusion"]["outcome"], "ready", "{seen}");
    assert_eq!(seen["conclusion"]["next"], "exitless verify --provoke");
    assert_eq!(said.status, i32::from(seen["summary"]["fail"] != 0), "{}", said.err);
}
