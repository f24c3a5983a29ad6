//! One running VM.

use super::rule::{Category, Rule, Verdict};
use super::subject::{Of, Subject};
use super::vm_side::VmSide;
use crate::{Fix, managed};
use conclusions::activation::{
    DeviceDelivery, DeviceVerdict, Doubt, IpiVirtualization, Mode, NoIpiVirtualization, PostingObstacle,
    Status,
};
use exits::{CurePlace, InhibitReason, counted};
use host::inspection::{Role, RunningVm};
use host::vms::Vmm;

/// The rule about a VM's definition as a whole.
pub(super) const DEFINITION: Rule = Rule {
    name: "vm-definition",
    title: "Definition",
    category: Category::Vm,
    why: "most settings that inhibit interrupt virtualization are in the definition",
    source: "the rules of `exitless vm lint`",
    parent: "",
    check: |_| None,
};

pub(super) const RULES: &[Rule] = &[
    DEFINITION,
    Rule {
        name: "vm-interrupt-virtualization",
        title: "Interrupt virtualization now",
        category: Category::Vm,
        why: "even if it is on in the module, KVM can inhibit it for a single VM, for reasons that come and go",
        source: "Linux arch/x86/include/asm/kvm_host.h, enum kvm_apicv_inhibit",
        parent: "",
        check: interrupt_virtualization,
    },
    Rule {
        name: "vm-ipis",
        title: "IPIs between vCPUs",
        category: Category::Vm,
        why: "an IPI that is not virtualized exits on the sender, and often on the receiver",
        source: "Linux arch/x86/kvm/x86.c, enable_ipiv; Intel SDM volume 3, 30.1.6; AMD64 APM volume 2, 15.29.2",
        parent: "vm-interrupt-virtualization",
        check: ipis,
    },
    Rule {
        name: "vm-device-interrupts",
        title: "Interrupts of assigned devices",
        category: Category::Vm,
        why: "an interrupt that the host takes costs an exit on the vCPU's CPU, and an injection",
        source: "Linux arch/x86/kvm/irq.c, kvm_arch_irq_bypass_add_producer; /proc/interrupts, vfio-msi",
        parent: "vm-interrupt-virtualization",
        check: devices,
    },
    Rule {
        name: "vm-vhost-places",
        title: "Placement of vhost workers",
        category: Category::Vm,
        why: "a worker that is not pinned displaces pinned vCPUs",
        source: "sched(7); libvirt formatdomain, emulatorpin (since Linux 6.4 it holds for vhost's workers too)",
        parent: "",
        check: vhost_places,
    },
];

fn interrupt_virtualization(subject: &Subject<'_>) -> Option<Verdict> {
    let Of { running, side } = subject.vm?;
    let Some(side) = side else {
        let why = if subject.host.live {
            "KVM's own state was not read"
        } else {
            "KVM's own state can be read only on the host itself"
        };
        return Some(Verdict::skip(why));
    };
    let activation = &side.activation;
    let verdict = match activation.status {
        Status::Active => Verdict::pass(format!("{} is active for all vCPUs", mode(activation.mode))),
        Status::Partly => Verdict::warn(format!(
            "it is active for {} of {} vCPUs",
            activation.active_vcpus, activation.vcpus
        ))
        .advice("idle vCPUs follow when they next run; check again with `exitless verify`"),
        Status::Inhibited => {
            let reasons: Vec<&str> = side.reasons().map(exits::InhibitReason::name).collect();
            let by = if reasons.is_empty() { "an unnamed reason".to_owned() } else { reasons.join(", ") };
            let set_by: Vec<&str> = side.reasons().map(exits::InhibitReason::set_by).collect();
            let verdict = Verdict::fail(format!("inhibited by {by}: {}", set_by.join("; ")));
            cures(verdict, subject, side, running)
        }
        Status::Unknown => Verdict::skip(unknown(side)),
    };
    let verdict = match side.inhibits {
        Some(mask) => verdict.seen(
            format!("KVM's state of process {}", side.pid),
            format!(
                "inhibit mask {:#x}, active for {} of {} vCPUs",
                mask.0, activation.active_vcpus, activation.vcpus
            ),
        ),
        None => verdict,
    };
    Some(side.missing.iter().fold(verdict, |verdict, why| verdict.seen("missing", why.clone())))
}

fn unknown(side: &VmSide) -> String {
    if side.activation.doubts.contains(&Doubt::CpuDenies) {
        return "KVM uses it, but the CPU does not report it: only exits can tell".to_owned();
    }
    side.missing.first().cloned().unwrap_or_else(|| "evidence is missing; run `exitless verify`".to_owned())
}

fn mode(mode: Option<Mode>) -> &'static str {
    match mode {
        Some(Mode::Apicv) => "APICv",
        Some(Mode::Avic) => "AVIC",
        Some(Mode::X2avic) => "x2AVIC",
        Some(Mode::HybridAvic) => "AVIC (only for delivery: the guest uses x2APIC)",
        Some(Mode::None) | None => "interrupt virtualization",
    }
}

fn cures(verdict: Verdict, subject: &Subject<'_>, side: &VmSide, running: &RunningVm) -> Verdict {
    let lack = subject.isa.and_then(|isa| subject.host.processor.lack(isa));
    side.reasons().fold(verdict, |verdict, reason| match (&lack, reason) {
        // No parameter adds a feature that the CPU lacks.
        (Some(lack), InhibitReason::Disabled) => verdict.advice(lack.next.clone()),
        _ => cured(verdict, subject, running, reason, |_| true),
    })
}

/// Adds the cures of a reason in the places that are `wanted` and that the VM has.
fn cured(
    mut verdict: Verdict,
    subject: &Subject<'_>,
    running: &RunningVm,
    reason: InhibitReason,
    wanted: fn(CurePlace) -> bool,
) -> Verdict {
    // The settings of the VM's manager come first. Omit fixes in places that the VM's owner cannot edit, those for
    // the other form of the definition, and on other VMMs those of QEMU.
    let manager = running.vm.management.manager;
    let other = if running.libvirt.is_some() { CurePlace::Qemu } else { CurePlace::Libvirt };
    let of_qemu = running.vm.vmm == Vmm::Qemu;
    let foreign = |place: CurePlace| match managed::has_words(manager) {
        true => managed::hides(place),
        false => place == other || (!of_qemu && place.is_of_qemu()),
    };
    let managed = managed::of_reason(reason, &running.vm.name, &running.vm.management);
    verdict.fixes.extend(managed.into_iter().map(Fix::Managed));
    let cures = reason.cures().iter().filter(|cure| wanted(cure.place));
    let ours = cures.filter(|cure| !foreign(cure.place) && cure.place.is_of(subject.isa));
    ours.fold(verdict, |verdict, cure| verdict.advice(format!("{}: {}", cure.place.name(), cure.change)))
}

fn ipis(subject: &Subject<'_>) -> Option<Verdict> {
    let Of { running, side } = subject.vm?;
    let side = side?;
    Some(match side.ipi_virtualization {
        IpiVirtualization::On => Verdict::pass("they take no exit"),
        IpiVirtualization::Off(why) => {
            let verdict = Verdict::warn(format!("they exit: {}", no_ipis(why)));
            if why == NoIpiVirtualization::HybridAvic {
                let verdict =
                    verdict.seen(format!("KVM's state of process {}", side.pid), mode(side.activation.mode));
                // This kernel already delivers beside x2APIC, so no other one helps.
                let in_vm = |place: CurePlace| place != CurePlace::Host;
                return Some(cured(verdict, subject, running, InhibitReason::X2Apic, in_vm));
            }
            let path = host::parameter_path(subject.module(), "enable_ipiv");
            let value = subject.parameter(subject.module(), "enable_ipiv").unwrap_or("not there");
            let verdict = verdict.seen(path, value);
            match why {
                NoIpiVirtualization::Parameter => {
                    verdict.advice(subject.loading(subject.module(), "enable_ipiv=1"))
                }
                _ => verdict.advice("see what inhibits interrupt virtualization"),
            }
        }
        IpiVirtualization::NotAvailable(why) => Verdict::skip(no_ipis(why)),
        IpiVirtualization::Unknown => Verdict::skip("evidence is missing"),
    })
}

fn no_ipis(why: NoIpiVirtualization) -> &'static str {
    match why {
        NoIpiVirtualization::Inhibited => "interrupt virtualization is not active",
        NoIpiVirtualization::Parameter => "enable_ipiv is off",
        NoIpiVirtualization::Erratum1235 => "KVM leaves it off for erratum 1235",
        NoIpiVirtualization::HybridAvic => {
            "the guest uses x2APIC, and the CPU has no x2AVIC; guests of up to 255 vCPUs need no x2APIC"
        }
        NoIpiVirtualization::Controls => "the CPU's controls of this VM leave it out",
        NoIpiVirtualization::Cpu => "the CPU has none",
        NoIpiVirtualization::Kernel => "this kernel has none",
    }
}

fn devices(subject: &Subject<'_>) -> Option<Verdict> {
    let side = subject.vm?.side?;
    if side.devices.is_empty() {
        return None;
    }
    // The driver of a mediated device has its interrupts, whatever the host's configuration is.
    let is_mediated = |one: &DeviceVerdict| one.evidence.obstacle == Some(PostingObstacle::Mediated);
    let is_set_up = |one: &&DeviceVerdict| one.delivery != DeviceDelivery::None && !is_mediated(one);
    let set_up: Vec<&DeviceVerdict> = side.devices.iter().filter(is_set_up).collect();
    let of = |delivery: DeviceDelivery| set_up.iter().filter(|one| one.delivery == delivery).count();
    let by_host = of(DeviceDelivery::ByHost);
    let has_mediated = side.devices.iter().any(is_mediated);
    let verdict = if by_host > 0 {
        Verdict::warn(format!(
            "the host takes those of {by_host} of {}",
            counted(side.devices.len() as u64, "device")
        ))
        .advice("see what keeps the IOMMU from posting; INTx is never posted")
    } else if set_up.is_empty() && has_mediated {
        Verdict::skip("a driver of the host raises those of mediated devices, which are never posted")
    } else if set_up.is_empty() {
        Verdict::skip("none are set up: run `exitless verify` while the devices work")
    } else if of(DeviceDelivery::Posted) == set_up.len() {
        Verdict::pass(if has_mediated {
            "all but those of mediated devices are posted"
        } else {
            "all are posted"
        })
    } else {
        Verdict::skip("none came during the check: run `exitless verify` while the devices work")
    };
    Some(side.devices.iter().fold(verdict, |verdict, device| {
        let how = match device.delivery {
            DeviceDelivery::Posted => "posted",
            DeviceDelivery::ByHost => "taken by the host",
            DeviceDelivery::None => "none set up",
            DeviceDelivery::Unknown => "unknown",
        };
        verdict.seen(device.device.clone(), how)
    }))
}

fn vhost_places(subject: &Subject<'_>) -> Option<Verdict> {
    let running = subject.vm?.running;
    let workers: Vec<_> = running.threads.iter().filter(|thread| thread.role == Role::Vhost).collect();
    if workers.is_empty() {
        return None;
    }
    let pinned: Vec<u32> = running
        .threads
        .iter()
        .filter(|thread| matches!(thread.role, Role::Vcpu(_)))
        .filter_map(|thread| thread.allowed.as_ref()?.only())
        .collect();
    let told = |thread: &host::inspection::ThreadPlace| {
        let allowed = thread.allowed.as_ref().map_or("unknown".to_owned(), ToString::to_string);
        let last = thread.last.map_or(String::new(), |cpu| format!(", last on {cpu}"));
        format!("may run on {allowed}{last}")
    };
    let roams = |thread: &&host::inspection::ThreadPlace| {
        thread.allowed.as_ref().is_some_and(|allowed| {
            allowed.only().is_none() && pinned.iter().any(|&cpu| allowed.contains(cpu))
        })
    };
    let roaming = workers.iter().copied().filter(|thread| roams(thread)).count();
    let verdict = if roaming > 0 {
        Verdict::warn(format!(
            "{roaming} of {} may run where pinned vCPUs run",
            counted(workers.len() as u64, "worker")
        ))
        .advice("libvirt: <emulatorpin>; else taskset -p of each worker")
    } else {
        Verdict::pass(match workers.len() {
            1 => "its worker keeps away from pinned vCPUs".to_owned(),
            some => format!("its {some} workers keep away from pinned vCPUs"),
        })
    };
    Some(workers.iter().take(4).fold(verdict, |verdict, thread| {
        verdict.seen(format!("{} (thread {})", thread.name, thread.tid), told(thread))
    }))
}
