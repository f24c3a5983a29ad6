//! The host CPUs on which a VM's threads run.

use std::collections::{BTreeMap, BTreeSet};

use domain::Set;

use super::cpu_list::{cpus, list};
use super::rule::{Rule, Verdict};
use super::subject::{Subject, listed};

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "vcpu-pins",
        title: "CPUs of the vCPUs",
        why: "vCPUs that share a CPU wait for each other, and IPIs between them need an exit",
        source: "libvirt formatdomain, CPU Tuning: vcpupin; AMD APM volume 2, 15.29.9.1",
        guest_follows: false,
        needs_kvm: true,
        check: vcpu_pins,
    },
    Rule {
        name: "emulator-pins",
        title: "CPUs of the VMM",
        why: "the main loop and vhost threads preempt a vCPU that shares their CPU, with an exit each time",
        source: "libvirt formatdomain, CPU Tuning: emulatorpin",
        guest_follows: false,
        needs_kvm: true,
        check: emulator_pins,
    },
    Rule {
        name: "iothread-pins",
        title: "CPUs of the I/O threads",
        why: "an I/O thread preempts a vCPU that shares its CPU just when that vCPU has asked for I/O",
        source: "libvirt formatdomain, CPU Tuning: iothreadpin",
        guest_follows: false,
        needs_kvm: true,
        check: iothread_pins,
    },
];

const NOT_PINNED: &str = "no vCPU is pinned to CPUs without one to spare";

/// A vCPU, and the list of its CPUs.
type Pin = Set<(u32, String)>;

/// The pins of vCPUs, grouped by their CPUs.
fn groups<'a>(subject: &Subject<'a>) -> BTreeMap<BTreeSet<u32>, Vec<&'a Pin>> {
    let mut groups: BTreeMap<BTreeSet<u32>, Vec<_>> = BTreeMap::new();
    for pin in &subject.vm.vcpu_pins {
        if let Some(set) = cpus(&pin.value.1).filter(|set| !set.is_empty()) {
            groups.entry(set).or_default().push(pin);
        }
    }
    groups
}

/// The CPUs of groups that have no more CPUs than vCPUs. In a larger group a vCPU can move to another CPU.
fn of_vcpus(subject: &Subject<'_>) -> BTreeSet<u32> {
    groups(subject)
        .into_iter()
        .filter(|(set, pins)| pins.len() >= set.len())
        .flat_map(|(set, _)| set)
        .collect()
}

/// Tests whether a pin comes from `<vcpu cpuset=>`, which applies to all threads of the VM.
fn is_everyones(subject: &Subject<'_>, pin: &Set<String>) -> bool {
    subject.vm.vcpu_pins.iter().any(|vcpu| vcpu.place == pin.place)
}

pub(super) fn vcpu_pins(subject: &Subject<'_>) -> Verdict {
    let groups = groups(subject);
    if groups.is_empty() {
        return Verdict::pass("no vCPU is pinned");
    }
    let Some((set, pins)) = groups.iter().find(|(set, pins)| pins.len() > set.len()) else {
        return Verdict::pass("there are enough of them");
    };
    let vcpus: Vec<_> = pins.iter().map(|pin| pin.value.0.to_string()).collect();
    let plural = if set.len() == 1 { "" } else { "s" };
    let verdict = Verdict::warn(format!("vCPUs {} share CPU{plural} {}", listed(&vcpus), list(set)));
    pins.iter().fold(verdict, |verdict, pin| verdict.said(subject.form(), &pin.place)).advice(
        "pin each vCPU to a CPU of its own, vCPUs that are threads of one core to threads of one core",
    )
}

fn emulator_pins(subject: &Subject<'_>) -> Verdict {
    let vcpus = of_vcpus(subject);
    let Some(pin) = subject.vm.emulator_cpus.as_ref().filter(|pin| !is_everyones(subject, pin)) else {
        return Verdict::pass("the VMM's other threads are not pinned");
    };
    let shared: BTreeSet<u32> = cpus(&pin.value).unwrap_or_default().intersection(&vcpus).copied().collect();
    if vcpus.is_empty() {
        return Verdict::pass(NOT_PINNED);
    }
    if shared.is_empty() {
        return Verdict::pass("they are apart from the vCPUs'").said(subject.form(), &pin.place);
    }
    Verdict::warn(format!("shared with vCPUs: {}", list(&shared)))
        .said(subject.form(), &pin.place)
        .advice("pin the VMM's other threads to CPUs that no vCPU of this VM uses")
}

fn iothread_pins(subject: &Subject<'_>) -> Verdict {
    let vcpus = of_vcpus(subject);
    if vcpus.is_empty() {
        return Verdict::pass(NOT_PINNED);
    }
    let mut bad = Vec::new();
    for thread in &subject.vm.iothreads {
        let Some(pin) = thread.cpus.as_ref().filter(|pin| !is_everyones(subject, pin)) else { continue };
        let shared: BTreeSet<u32> =
            cpus(&pin.value).unwrap_or_default().intersection(&vcpus).copied().collect();
        if !shared.is_empty() {
            bad.push((format!("{} on {}", thread.id, list(&shared)), &pin.place));
        }
    }
    if bad.is_empty() {
        return Verdict::pass("none shares a CPU with a vCPU");
    }
    let names: Vec<_> = bad.iter().map(|(name, _)| name.clone()).collect();
    let verdict = Verdict::warn(format!("shared with vCPUs: {}", listed(&names)));
    bad.iter()
        .fold(verdict, |verdict, (_, place)| verdict.said(subject.form(), place))
        .advice("pin I/O threads to CPUs that no vCPU of this VM uses")
}
