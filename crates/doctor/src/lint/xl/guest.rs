//! The type of a guest, and its virtual processor.

use super::row;
use crate::lint::placement::vcpu_pins;
use crate::lint::rule::{Rule, Verdict};
use crate::lint::subject::Subject;
use domain::Form;
use exits::XenGuestType;

pub(in crate::lint) const RULES: &[Rule] = &[
    row(
        "xl-type",
        "Type of the guest",
        "PV guests run without VMX and SVM, so no hardware can deliver interrupts to them",
        "xl.cfg(5), type; Xen docs/misc/pvh.pandoc",
        guest_type,
    ),
    row(
        "xl-paging",
        "Nested paging",
        "with shadow page tables every change to a guest's page tables exits",
        "xl.cfg(5), hap",
        paging,
    ),
    row(
        "xl-nested",
        "Nested guests",
        "each exit of a nested guest becomes several of this one",
        "xl.cfg(5), nestedhvm; Xen SUPPORT.md, Nested HVM",
        nested,
    ),
    row(
        "xl-altp2m",
        "Alternate views of memory",
        "they are for introspection: each switch between views and each access that a view forbids exits",
        "xl.cfg(5), altp2m and altp2mhvm",
        alternate_views,
    ),
    row(
        "xl-apic",
        "APIC in the firmware's tables",
        "a guest of one vCPU that finds no APIC there uses the PIC, which no hardware virtualizes",
        "xl.cfg(5), apic; Xen xen/arch/x86/hvm/vlapic.c, vlapic_accept_pic_intr",
        apic,
    ),
    row(
        "xl-acpi",
        "ACPI",
        "without its tables guests do not find their CPUs and interrupts, or find them by older methods",
        "xl.cfg(5), acpi",
        acpi,
    ),
    row(
        "xl-vcpu-places",
        "Pinning of vCPUs",
        "vCPUs pinned to one CPU wait for each other, and so do their interrupts",
        "xl.cfg(5), cpus",
        places,
    ),
];

fn guest_type(subject: &Subject<'_>) -> Verdict {
    let guest = subject.vm.xen_type();
    let Some(name) = crate::xen::technology(subject.host.isa) else {
        return Verdict::pass(match guest {
            XenGuestType::Pv => {
                "PV: Xen delivers its interrupts as events; on AMD Xen has no AVIC for other types either"
                    .to_owned()
            }
            other => format!("{}; Xen uses no AVIC", other.name()),
        });
    };
    match (&subject.vm.machine.kind, guest) {
        (Some(kind), XenGuestType::Pv) => {
            Verdict::fail(format!("PV, without {name} whatever the host supports"))
                .said(Form::Xl, &kind.place)
                .advice("write type = \"pvh\"; a Linux guest needs CONFIG_PVH, and kernel= or pvgrub")
        }
        (None, XenGuestType::Pv) => Verdict::fail(format!("PV, without {name} whatever the host supports"))
            .unsaid("type", "the guest is PV")
            .advice("write type = \"pvh\"; a Linux guest needs CONFIG_PVH, and kernel= or pvgrub"),
        (_, other) => Verdict::pass(format!("{}, which can have {name}", other.name())),
    }
}

/// The verdict on a setting that has no meaning for PV guests; `None` for other guests.
fn without_hardware(subject: &Subject<'_>) -> Option<Verdict> {
    (subject.vm.xen_type() == XenGuestType::Pv).then(|| Verdict::skip("PV guests have none"))
}

fn paging(subject: &Subject<'_>) -> Verdict {
    if let Some(none) = without_hardware(subject) {
        return none;
    }
    match subject.switched("hap") {
        Some((false, place)) => Verdict::warn("switched off").said(Form::Xl, place).advice("remove hap = 0"),
        _ => Verdict::pass("used where the host has it"),
    }
}

fn nested(subject: &Subject<'_>) -> Verdict {
    if let Some(none) = without_hardware(subject) {
        return none;
    }
    match subject.switched("nestedhvm") {
        Some((true, place)) => Verdict::warn("VMX or SVM is offered")
            .said(Form::Xl, place)
            .advice("remove nestedhvm = 1, unless guests run within this one"),
        _ => Verdict::pass("neither VMX nor SVM is offered"),
    }
}

fn alternate_views(subject: &Subject<'_>) -> Verdict {
    if let Some(none) = without_hardware(subject) {
        return none;
    }
    let on = subject.setting("altp2m").filter(|(mode, _)| !matches!(*mode, "disabled" | "0"));
    let old = subject.switched("altp2mhvm").filter(|(on, _)| *on).map(|(_, place)| ("on", place));
    match on.or(old) {
        Some((mode, place)) => Verdict::warn(format!("altp2m is {mode}"))
            .said(Form::Xl, place)
            .advice("remove altp2m, unless something inspects the guest's memory through it"),
        None => Verdict::pass("one view of its memory"),
    }
}

fn apic(subject: &Subject<'_>) -> Verdict {
    if subject.vm.xen_type() != XenGuestType::Hvm {
        return Verdict::skip("the setting is one of HVM guests");
    }
    match subject.switched("apic") {
        Some((false, place)) if subject.vcpus() < 2 => {
            Verdict::warn("disabled, with one vCPU").said(Form::Xl, place).advice("remove apic = 0")
        }
        Some((false, _)) => Verdict::pass("present anyway, because there are several vCPUs"),
        _ => Verdict::pass("there"),
    }
}

fn acpi(subject: &Subject<'_>) -> Verdict {
    if let Some(none) = without_hardware(subject) {
        return none;
    }
    match subject.switched("acpi") {
        Some((false, place)) => Verdict::warn("switched off").said(Form::Xl, place).advice("remove acpi = 0"),
        _ => Verdict::pass("there"),
    }
}

fn places(subject: &Subject<'_>) -> Verdict {
    let mut verdict = vcpu_pins(subject);
    // One setting may apply to many vCPUs.
    verdict.evidence.dedup();
    verdict
}
