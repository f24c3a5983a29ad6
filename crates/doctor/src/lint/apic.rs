//! Local APICs: their mode and their IDs.

use domain::{DefinitionChange, FeatureState, Form, Irqchip};
use exits::{InhibitReason, Isa, KernelVersion, counted};

use super::host_side::{HostSide, Technology};
use super::rule::{Rule, Verdict};
use super::subject::Subject;

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "x2apic",
        title: "x2APIC",
        why: "it decides whether APIC accesses reach the hardware: AVIC takes xAPIC's, x2AVIC and APICv both",
        source: "Linux arch/x86/kvm/svm/avic.c, avic_activate_vmcb; commit 0e311d33bfbe (6.0)",
        guest_follows: false,
        needs_kvm: true,
        check: x2apic,
    },
    Rule {
        name: "apic-id",
        title: "Highest APIC ID",
        why: "a vCPU whose APIC ID has no room in AVIC's table inhibits AVIC for the whole VM, or cannot start",
        source: "Linux arch/x86/include/asm/svm.h, AVIC_MAX_PHYSICAL_ID and X2AVIC_MAX_PHYSICAL_ID",
        guest_follows: true,
        needs_kvm: true,
        check: apic_id,
    },
    Rule {
        name: "many-vcpus",
        title: "APIC IDs above 254",
        why: "interrupts of devices reach such vCPUs only in x2APIC mode, by extended destinations or remapped",
        source: "Linux Documentation/virt/kvm/x86/cpuid.rst, KVM_FEATURE_MSI_EXT_DEST_ID; QEMU \
                 hw/i386/x86-cpu.c, x86_cpus_init; libvirt src/qemu/qemu_validate.c, QEMU_MAX_VCPUS_WITHOUT_EIM",
        guest_follows: false,
        needs_kvm: true,
        check: many_vcpus,
    },
];

/// The largest APIC ID of AVIC (`AVIC_MAX_PHYSICAL_ID`).
const AVIC_LARGEST: u64 = 254;

/// The largest APIC ID of x2AVIC without its extension (`X2AVIC_MAX_PHYSICAL_ID`).
const X2AVIC_LARGEST: u64 = 511;

/// The first kernel that supports AVIC for guests in x2APIC mode.
const X2APIC_WITH_AVIC: KernelVersion = KernelVersion::new(6, 0);

fn x2apic(subject: &Subject<'_>) -> Verdict {
    let held = subject.x2apic();
    let with = |verdict: Verdict| match held.place {
        Some(place) => verdict.said(subject.form(), place),
        None => verdict.unsaid("x2apic", if held.value { "on by default" } else { "off by default" }),
    };
    let change = |state| vec![DefinitionChange::CpuFeature("x2apic".to_owned(), state)];
    let amd = subject.host.isa == Some(Isa::Svm);
    let technology = subject.host.technology;
    let lacks_x2avic = subject.kernel_is_older(X2APIC_WITH_AVIC) == Some(true);
    if !held.value {
        if amd && (technology == Some(Technology::Avic) || lacks_x2avic) {
            return with(Verdict::pass("off, as AVIC without x2AVIC needs"));
        }
        if subject.irqchip().value == Irqchip::UserSpace {
            return Verdict::skip("the local APICs are not in the kernel");
        }
        let found = match subject.host.isa {
            Some(_) => format!("off, though {} takes it", subject.host.name()),
            None => "off, though APICv and x2AVIC support it; with only AVIC it is right".to_owned(),
        };
        return with(Verdict::warn(found)).fix(change(FeatureState::On));
    }
    // Accesses then exit in both modes, and those of x2APIC cost less: they need no decoding of an instruction.
    if amd && subject.host.enabled == Some(false) {
        return with(Verdict::pass("on; AVIC is off on this host"));
    }
    if amd && subject.kernel_is_older(HostSide::INHIBITS) == Some(true) {
        return with(Verdict::pass("on; this kernel hides it from guests while AVIC is on"));
    }
    // Without x2APIC, vCPUs with IDs above 254 would not start.
    let off = || if subject.highest_apic_id() > 254 { Vec::new() } else { change(FeatureState::Off) };
    if amd && lacks_x2avic {
        let reason = InhibitReason::X2Apic;
        let kernel = subject.host.kernel.map(|kernel| kernel.to_string()).unwrap_or_default();
        return with(Verdict::fail(format!("on: {} ({reason})", reason.set_by())))
            .seen("the host's kernel", kernel)
            .fix(off())
            .cured_elsewhere(reason);
    }
    if amd && technology == Some(Technology::Avic) {
        return with(Verdict::warn(
            "on, and the CPU has no x2AVIC: each APIC access exits, and AVIC only delivers",
        ))
        .fix(off());
    }
    with(Verdict::pass("on"))
}

fn apic_id(subject: &Subject<'_>) -> Verdict {
    if !subject.may_be(Isa::Svm) {
        return Verdict::pass("APICv takes every ID");
    }
    let (highest, largest) = (subject.highest_apic_id(), subject.largest_id_of_avic());
    let vcpus = subject.vcpus();
    let with = |verdict: Verdict| match subject.vcpus_place() {
        Some(place) => verdict.said(subject.form(), place),
        None => verdict,
    };
    if highest <= largest {
        return with(Verdict::pass(format!("{highest}, of {largest} at most")));
    }
    let reason = InhibitReason::PhysicalIdTooBig;
    let topology = subject.topology();
    let shape = format!(
        "{}, {} of {} a socket",
        counted(u64::from(vcpus), "vCPU"),
        counted(u64::from(topology.cores) * u64::from(topology.clusters) * u64::from(topology.dies), "core"),
        counted(u64::from(topology.threads), "thread")
    );
    // A CPU with x2AVIC has only AVIC's table in a kernel that does not use x2AVIC.
    let technology = if largest > AVIC_LARGEST { "x2AVIC" } else { "AVIC" };
    let found = format!("APIC ID {highest} is too large for {technology} (limit {largest})");
    let known = subject.host.isa.is_some() && subject.host.technology.is_some();
    let verdict = if technology == "x2AVIC" {
        Verdict::fail(found)
    } else if highest > X2AVIC_LARGEST {
        Verdict::fail(format!("{found}, and for x2AVIC (limit {X2AVIC_LARGEST})"))
    } else if known {
        Verdict::fail(format!("{found}; x2AVIC allows {X2AVIC_LARGEST}"))
    } else {
        Verdict::warn(format!("{found}; x2AVIC allows {X2AVIC_LARGEST}"))
    };
    with(verdict).seen(format!("APIC IDs ({reason})"), shape).advice(reason.cure())
}

fn many_vcpus(subject: &Subject<'_>) -> Verdict {
    let highest = subject.highest_apic_id();
    if highest <= 254 {
        return Verdict::pass(format!("none: the highest is {highest}"));
    }
    let form = subject.form();
    let (x2apic, irqchip) = (subject.x2apic(), subject.irqchip());
    let mut changes = Vec::new();
    let mut lacking = Vec::new();
    if !x2apic.value {
        lacking.push("x2APIC");
        changes.push(DefinitionChange::CpuFeature("x2apic".to_owned(), FeatureState::On));
    }
    if irqchip.value != Irqchip::Split {
        lacking.push("a split irqchip");
        changes.push(DefinitionChange::Irqchip(Irqchip::Split));
    }
    let remapping = subject.remaps_wide_ids();
    let hidden = subject.hides_kvm();
    let extended = subject.said("kvm-msi-ext-dest-id").and_then(|said| said.place);
    // libvirt refuses such a VM, even if interrupts could reach its vCPUs (`QEMU_MAX_VCPUS_WITHOUT_EIM`,
    // `qemu_validate.c`).
    let refused = form == Form::Libvirt && subject.vm.most_vcpus() > 255 && !subject.says_wide_ids();
    // If only the split irqchip is missing, do not also report the 15-bit destinations that come with it.
    let reached_without = subject.vm.extended_destinations_in_force()
        || (irqchip.value != Irqchip::Split
            && hidden.is_none()
            && extended.is_none()
            && subject.vm.machine_is_since((5, 2)));
    let mut verdict = Verdict::fail("");
    if refused {
        lacking.push("an IOMMU with eim='on', without which libvirt refuses more than 255 vCPUs");
        changes.push(DefinitionChange::InterruptRemapping);
    } else if remapping.is_none() && !reached_without {
        lacking.push("kvm-msi-ext-dest-id or an IOMMU that remaps interrupts with eim");
        changes.push(DefinitionChange::InterruptRemapping);
    }
    if lacking.is_empty() {
        return match remapping {
            Some(iommu) => {
                Verdict::pass(format!("up to {highest}, by the IOMMU's remapping")).said(form, &iommu.place)
            }
            None => Verdict::pass(format!(
                "up to {highest}, by kvm-msi-ext-dest-id; a Linux guest needs 5.11 for it, others an IOMMU"
            )),
        };
    }
    for place in [x2apic.place, irqchip.place, hidden, extended].into_iter().flatten() {
        verdict = verdict.said(form, place);
    }
    if let Some(place) = subject.vcpus_place() {
        verdict = verdict.said(form, place);
    }
    verdict.finds(format!("up to {highest}, without {}", lacking.join(", and without "))).fix(changes)
}
