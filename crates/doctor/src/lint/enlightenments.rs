//! Hyper-V enlightenments, which are meant for Windows guests.

use domain::DefinitionChange;
use exits::InhibitReason;

use super::rule::{Rule, Verdict};
use super::subject::Subject;

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "hyperv-auto-eoi",
        title: "AutoEOI of the SynIC",
        why: "KVM has to end interrupts with AutoEOI itself, and inhibits APICv and AVIC; hv-avic advises against it",
        source: "QEMU docs/system/i386/hyperv.rst, hv-avic; Linux arch/x86/kvm/hyperv.c, synic_update_vector",
        guest_follows: false,
        needs_kvm: true,
        check: auto_eoi,
    },
    Rule {
        name: "hyperv-vapic",
        title: "APIC accesses by Hyper-V's MSRs",
        why: "hv-vapic without hv-avic recommends MSRs for EOI, ICR and TPR that no hardware takes: each exits",
        source: "QEMU target/i386/kvm/kvm.c, hyperv_fill_cpuids (HV_APIC_ACCESS_RECOMMENDED)",
        guest_follows: false,
        needs_kvm: true,
        check: vapic,
    },
    Rule {
        name: "hyperv-avic-host",
        title: "hv-avic and the host",
        why: "without APICv or AVIC, AutoEOI saves the exits that hv-avic makes the guest take; Linux before 5.15 has no hv-avic",
        source: "QEMU docs/system/i386/hyperv.rst, Recommendations; target/i386/kvm/kvm.c, hyperv_expand_features; Linux \
                 arch/x86/kvm/hyperv.c, 0f250a646382 (5.15)",
        guest_follows: false,
        needs_kvm: true,
        check: avic_of_the_host,
    },
    Rule {
        name: "hyperv-stimer",
        title: "Synthetic timers",
        why: "Windows without them falls back to HPET or RTC, which cost CPU time even when it is idle",
        source: "QEMU docs/system/i386/hyperv.rst, hv-stimer",
        guest_follows: false,
        needs_kvm: true,
        check: stimer,
    },
    Rule {
        name: "hyperv-stimer-direct",
        title: "Direct synthetic timers",
        why: "in direct mode a timer only raises an interrupt of the local APIC; otherwise it also sends a SynIC message",
        source: "QEMU docs/system/i386/hyperv.rst, hv-stimer-direct",
        guest_follows: false,
        needs_kvm: true,
        check: stimer_direct,
    },
    Rule {
        name: "hyperv-time",
        title: "Hyper-V's reference time",
        why: "the reference TSC page lets Windows read the time without an exit",
        source: "QEMU docs/system/i386/hyperv.rst, hv-time",
        guest_follows: false,
        needs_kvm: true,
        check: time,
    },
];

const NOT_ENLIGHTENED: &str = "no enlightenments are offered";

fn on(names: &[&str]) -> Vec<DefinitionChange> {
    names.iter().map(|name| DefinitionChange::HyperV((*name).to_owned(), true)).collect()
}

/// Tests whether the SynIC inhibits interrupt virtualization by itself on this host, and KVM has no hv-avic to offer.
fn inhibits_by_itself(subject: &Subject<'_>) -> bool {
    subject.host.auto_eoi_counted == Some(false) && subject.host.enabled != Some(false)
}

fn auto_eoi(subject: &Subject<'_>) -> Verdict {
    let form = subject.form();
    if inhibits_by_itself(subject) {
        let Some(place) = subject.every_enlightenment().or_else(|| subject.enlightenment("synic")) else {
            return Verdict::pass("no SynIC is offered");
        };
        let (name, reason) = (subject.host.name(), InhibitReason::HyperV);
        let found =
            format!("the SynIC inhibits {name} with this kernel, with and without AutoEOI ({reason})");
        return Verdict::fail(found)
            .said(form, place)
            .advice("Linux 5.15 or newer on the host, and hv-avic")
            .advice(
                "leave hv-synic, hv-stimer and hv-stimer-direct out: Windows then keeps its time by HPET or RTC",
            );
    }
    if let Some(place) = subject.every_enlightenment() {
        return Verdict::pass("all of the host's enlightenments, including the advice against AutoEOI")
            .said(form, place);
    }
    let Some(synic) = subject.enlightenment("synic") else {
        return Verdict::pass("no SynIC is offered");
    };
    if let Some(place) = subject.enlightenment("avic") {
        return Verdict::pass("the guest is advised against it").said(form, place);
    }
    if subject.host.enabled == Some(false) {
        return Verdict::pass(format!("there is no {} to inhibit", subject.host.name())).said(form, synic);
    }
    let reason = InhibitReason::HyperV;
    let where_it_is = if subject.host.enabled.is_none() { "; harmless where neither is on" } else { "" };
    let found = format!("hv-synic without hv-avic: Windows uses AutoEOI ({reason}){where_it_is}");
    Verdict::fail(found).said(form, synic).fix(on(&["avic"]))
}

fn vapic(subject: &Subject<'_>) -> Verdict {
    let form = subject.form();
    let everything = subject.every_enlightenment();
    let Some(vapic) = everything.or_else(|| subject.enlightenment("vapic")) else {
        return Verdict::pass("hv-vapic is not offered");
    };
    // With passthrough it depends on the host's KVM; do not judge it.
    if everything.is_some() || subject.enlightenment("avic").is_some() {
        return Verdict::pass("hv-avic removes the recommendation").said(form, vapic);
    }
    if subject.host.enabled == Some(false) {
        return Verdict::pass(format!("right without {}", subject.host.name())).said(form, vapic);
    }
    if inhibits_by_itself(subject) && subject.enlightenment("synic").is_some() {
        let name = subject.host.name();
        return Verdict::pass(format!("right while the SynIC inhibits {name}")).said(form, vapic);
    }
    // KVM that does not count AutoEOI has no hv-avic.
    let avic = if inhibits_by_itself(subject) { Vec::new() } else { on(&["avic"]) };
    Verdict::warn("hv-vapic without hv-avic: the guest does not use its APIC")
        .said(form, vapic)
        .fix(avic)
        .fix(vec![DefinitionChange::HyperV("vapic".to_owned(), false)])
}

fn avic_of_the_host(subject: &Subject<'_>) -> Verdict {
    let Some(place) = subject.enlightenment("avic") else {
        return Verdict::pass("hv-avic is not offered");
    };
    if subject.host.auto_eoi_counted == Some(false) {
        return Verdict::fail(
            "hv-avic is offered, and KVM of this host does not know it: QEMU refuses to start",
        )
        .said(subject.form(), place)
        .fix(vec![DefinitionChange::HyperV("avic".to_owned(), false)])
        .advice("Linux 5.15 or newer on the host");
    }
    if subject.host.enabled != Some(false) {
        return Verdict::pass("hv-avic is offered").said(subject.form(), place);
    }
    Verdict::warn(format!("hv-avic is offered, and {} is off on this host", subject.host.name()))
        .said(subject.form(), place)
        .advice("enable it on the host (`exitless enable`)")
        .fix(vec![DefinitionChange::HyperV("avic".to_owned(), false)])
}

fn stimer(subject: &Subject<'_>) -> Verdict {
    if !subject.vm.is_enlightened() {
        return Verdict::pass(NOT_ENLIGHTENED);
    }
    if subject.every_enlightenment().is_some() || subject.enlightenment("stimer").is_some() {
        return Verdict::pass("offered");
    }
    if inhibits_by_itself(subject) {
        let name = subject.host.name();
        return Verdict::pass(format!("none: with this kernel their SynIC inhibits {name}"));
    }
    // stimer requires the others. Without hv-avic these enlightenments inhibit interrupt virtualization.
    let changes = on(&["vpindex", "synic", "time", "stimer", "stimer-direct"]);
    let changes =
        if subject.host.enabled == Some(false) { changes } else { [changes, on(&["avic"])].concat() };
    Verdict::warn("the guest is enlightened, and has no hv-stimer").fix(changes)
}

fn stimer_direct(subject: &Subject<'_>) -> Verdict {
    let Some(place) = subject.enlightenment("stimer") else {
        return Verdict::pass("no synthetic timers are offered one by one");
    };
    if subject.every_enlightenment().is_some() || subject.enlightenment("stimer-direct").is_some() {
        return Verdict::pass("offered").said(subject.form(), place);
    }
    Verdict::warn("hv-stimer without hv-stimer-direct")
        .said(subject.form(), place)
        .fix(on(&["stimer-direct"]))
}

fn time(subject: &Subject<'_>) -> Verdict {
    if !subject.vm.is_enlightened() {
        return Verdict::pass(NOT_ENLIGHTENED);
    }
    let clock = subject.vm.timers.hyperv_clock.as_ref().is_some_and(|set| set.value);
    if clock || subject.every_enlightenment().is_some() || subject.enlightenment("time").is_some() {
        return Verdict::pass("offered");
    }
    Verdict::warn("the guest is enlightened, and has no hv-time").fix(on(&["time"]))
}
