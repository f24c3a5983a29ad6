//! The accelerator of the vCPUs, and the place of the interrupt controllers.

use domain::{Accelerator, DefinitionChange, Irqchip, TickPolicy};
use exits::{InhibitReason, Isa};

use super::host_side::HostSide;
use super::rule::{Rule, Verdict};
use super::subject::Subject;

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "accelerator",
        title: "Accelerator",
        why: "without KVM the VMM emulates every instruction in software",
        source: "QEMU docs, System Emulation: Virtualisation Accelerators",
        guest_follows: false,
        needs_kvm: false,
        check: accelerator,
    },
    Rule {
        name: "irqchip",
        title: "Irqchip",
        why: "KVM needs the local APICs; in the kernel a PIT that reinjects ticks inhibits AVIC, and I/O APICs keep \
              guests below 256 vCPUs",
        source: "How to enable AMD AVIC and speed up your VMs (Oracle, 2024), kernel-irqchip=split",
        guest_follows: false,
        needs_kvm: true,
        check: irqchip,
    },
    Rule {
        name: "pit-lost-ticks",
        title: "Lost ticks of the PIT",
        why: "to reinject a lost tick KVM has to see each EOI, so it inhibits AVIC for the whole VM",
        source: "Linux arch/x86/kvm/i8254.c, kvm_pit_set_reinject",
        guest_follows: false,
        needs_kvm: true,
        check: pit_lost_ticks,
    },
    Rule {
        name: "encrypted-memory",
        title: "Encrypted memory",
        why: "AVIC's tables would have to be shared with the guest, so KVM inhibits AVIC while SEV is on",
        source: "Linux arch/x86/kvm/svm/sev.c, sev_guest_init",
        guest_follows: false,
        needs_kvm: true,
        check: encrypted_memory,
    },
];

fn accelerator(subject: &Subject<'_>) -> Verdict {
    let form = subject.form();
    match &subject.vm.machine.accelerator {
        Some(set) => match set.value {
            Accelerator::Kvm => Verdict::pass("KVM").said(form, &set.place),
            Accelerator::Tcg => Verdict::fail("QEMU emulates in software, without KVM")
                .said(form, &set.place)
                .advice("set KVM: -accel kvm, or libvirt's <domain type='kvm'>"),
            // Not reached: `not_judged` excludes these definitions.
            Accelerator::Xen | Accelerator::Other | _ => Verdict::skip("another hypervisor"),
        },
        None if subject.is_kvm() => Verdict::pass("KVM, by the program's name"),
        None => Verdict::fail("none is set, so QEMU uses TCG")
            .unsaid("-accel", "tcg is QEMU's default")
            .advice("set KVM: -accel kvm, or libvirt's <domain type='kvm'>"),
    }
}

fn irqchip(subject: &Subject<'_>) -> Verdict {
    let held = subject.irqchip();
    let with = |verdict: Verdict| match held.place {
        Some(place) => verdict.said(subject.form(), place),
        None if subject.vm.is_tdx() => verdict.unsaid("kernel-irqchip", "TDX decides"),
        None => {
            verdict.unsaid("kernel-irqchip", format!("machine type {} decides", subject.vm.machine_kind()))
        }
    };
    let split = || vec![DefinitionChange::Irqchip(Irqchip::Split)];
    match held.value {
        Irqchip::Split => with(Verdict::pass("split: local APICs in the kernel, the rest in the VMM")),
        Irqchip::UserSpace => with(Verdict::fail(format!(
            "all are in the VMM: {} ({})",
            InhibitReason::Absent.set_by(),
            InhibitReason::Absent
        )))
        .fix(split()),
        Irqchip::Kernel if !subject.may_be(Isa::Svm) => {
            with(Verdict::pass("all in the kernel, which does not inhibit APICv"))
        }
        Irqchip::Kernel if subject.kernel_is_older(HostSide::INHIBITS) == Some(true) => with(Verdict::warn(
            "all are in the kernel, and Linux before 5.6 uses AVIC only with a split irqchip",
        ))
        .fix(split()),
        Irqchip::Kernel
            if subject.vm.kernel_pit_in_force().is_none_or(|policy| policy == TickPolicy::Discard) =>
        {
            with(Verdict::pass("all in the kernel, and no PIT reinjects ticks there"))
        }
        Irqchip::Kernel => with(Verdict::warn("all are in the kernel, not only the local APICs"))
            .fix(vec![DefinitionChange::PitTickPolicy(TickPolicy::Discard)])
            .fix(split()),
    }
}

fn pit_lost_ticks(subject: &Subject<'_>) -> Verdict {
    let form = subject.form();
    let irqchip = subject.irqchip();
    if irqchip.value != Irqchip::Kernel {
        return Verdict::pass("the PIT is not in the kernel");
    }
    if let Some(pit) = subject.vm.machine.pit.as_ref().filter(|pit| !pit.value) {
        return Verdict::pass("there is no PIT").said(form, &pit.place);
    }
    let policy = subject.vm.timers.pit.as_ref();
    match policy {
        Some(set) if set.value == TickPolicy::Discard => {
            return Verdict::pass("it drops them").said(form, &set.place);
        }
        // For `catchup` libvirt passes nothing, so KVM's default applies.
        Some(set) if set.value == TickPolicy::Merge => return Verdict::skip("KVM's PIT has no such policy"),
        _ => {}
    }
    if !subject.may_be(Isa::Svm) {
        return Verdict::pass("it reinjects them, which does not inhibit APICv");
    }
    if subject.kernel_is_older(HostSide::INHIBITS) == Some(true) {
        return Verdict::pass("it reinjects them; AVIC of this kernel needs a split irqchip in any case");
    }
    let reason = InhibitReason::PitReinject;
    let whose = if subject.host.isa.is_none() { "; this inhibits AMD's AVIC, not APICv" } else { "" };
    let verdict = Verdict::fail(format!("the PIT is in the kernel and reinjects them ({reason}){whose}"));
    let verdict = match irqchip.place {
        Some(place) => verdict.said(form, place),
        None => verdict.unsaid("kernel-irqchip", "all controllers in the kernel, the PIT too"),
    };
    let verdict = match policy {
        Some(set) => verdict.said(form, &set.place),
        None => verdict.unsaid("the PIT's policy for lost ticks", "delay: they are reinjected"),
    };
    // The split irqchip comes second: a running VM cannot be migrated to it.
    verdict
        .fix(vec![DefinitionChange::PitTickPolicy(TickPolicy::Discard)])
        .fix(vec![DefinitionChange::Irqchip(Irqchip::Split)])
}

fn encrypted_memory(subject: &Subject<'_>) -> Verdict {
    // For TDX, which is Intel's, KVM has no such inhibit.
    match subject.vm.machine.encryption.as_ref().filter(|_| !subject.vm.is_tdx()) {
        None => Verdict::pass("none"),
        Some(set) if !subject.may_be(Isa::Svm) => {
            Verdict::pass("it is not AMD's").said(subject.form(), &set.place)
        }
        Some(set) => Verdict::fail(format!("{} ({})", InhibitReason::Sev.set_by(), InhibitReason::Sev))
            .said(subject.form(), &set.place)
            .advice("none while the memory is encrypted: decide which matters more"),
    }
}
