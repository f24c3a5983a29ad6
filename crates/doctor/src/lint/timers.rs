//! Timers and clocks.

use domain::{DefinitionChange, FeatureState};

use super::rule::{Rule, Verdict};
use super::subject::Subject;

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "hpet",
        title: "HPET",
        why: "the VMM emulates it: a guest that uses it for its tick wakes the host up to a thousand times a second when idle",
        source: "QEMU docs/system/i386/hyperv.rst, hv-stimer; systemd/mkosi#3811 (7 to 9 % of a core, idle)",
        guest_follows: false,
        needs_kvm: true,
        check: hpet,
    },
    Rule {
        name: "clock-source",
        title: "Clock of the guest",
        why: "without a clock in memory the guest reads the HPET or ACPI timer, and each read exits to the VMM",
        source: "Linux Documentation/virt/kvm/x86/timekeeping.rst",
        // With invtsc QEMU blocks migration.
        guest_follows: true,
        needs_kvm: true,
        check: clock_source,
    },
];

fn hpet(subject: &Subject<'_>) -> Verdict {
    match &subject.vm.timers.hpet {
        Some(set) if !set.value => Verdict::pass("there is none").said(subject.form(), &set.place),
        None if subject.vm.is_microvm() => Verdict::pass("machine type microvm has none"),
        None if subject.vm.is_of_red_hat() => Verdict::pass("Red Hat's QEMU is built without it"),
        Some(set) => Verdict::warn("there is one")
            .said(subject.form(), &set.place)
            .fix(vec![DefinitionChange::Hpet(false)]),
        None => Verdict::warn("there is one")
            .unsaid("hpet", format!("on by default of machine type {}", subject.vm.machine_kind()))
            .fix(vec![DefinitionChange::Hpet(false)]),
    }
}

fn clock_source(subject: &Subject<'_>) -> Verdict {
    let form = subject.form();
    let timers = &subject.vm.timers;
    let off = timers.kvm_clock.as_ref().filter(|set| !set.value).map(|set| &set.place);
    let feature = subject.given("kvmclock", true);
    let off = off.or(if feature.value { None } else { feature.place });
    let hidden = subject.hides_kvm();
    let Some(place) = off.or(hidden) else {
        return Verdict::pass("kvmclock");
    };
    // Without CPUID's hypervisor bit a guest does not look for a hypervisor.
    let bare = subject.said("hypervisor").is_some_and(|said| said.value == FeatureState::Off);
    let hyperv = timers.hyperv_clock.as_ref().is_some_and(|set| set.value)
        || subject.enlightenment("time").is_some()
        || subject.every_enlightenment().is_some();
    if hyperv && !bare {
        return Verdict::pass("Hyper-V's reference time");
    }
    if subject.given("invtsc", false).value {
        return Verdict::pass("the TSC, which the guest knows to be invariant");
    }
    Verdict::warn("neither kvmclock nor hv-time nor invtsc is offered")
        .said(form, place)
        .fix(vec![DefinitionChange::CpuFeature("invtsc".to_owned(), FeatureState::On)])
}
