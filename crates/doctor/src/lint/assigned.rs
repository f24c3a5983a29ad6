//! Assigned devices, and the guest's IOMMU.

use domain::{DefinitionChange, Device, DeviceKind, GuestIommu, Irqchip};

use super::rule::{Rule, Verdict};
use super::subject::{Subject, called, listed};

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "assigned-interrupts",
        title: "Interrupts of assigned devices",
        why: "only interrupts that KVM delivers can be posted to a vCPU; through the VMM each takes several exits",
        source: "QEMU hw/vfio/pci.c, x-no-kvm-intx, x-no-kvm-msi and x-no-kvm-msix",
        guest_follows: false,
        needs_kvm: true,
        check: assigned_interrupts,
    },
    Rule {
        name: "assigned-caching-mode",
        title: "Assigned devices behind an IOMMU",
        why: "without caching mode (amd-iommu: DMA remapping) the VMM does not see what the guest maps, and QEMU \
              refuses assigned devices",
        source: "QEMU hw/i386/intel_iommu.c, caching-mode; hw/i386/amd_iommu.c, dma-remap",
        guest_follows: false,
        needs_kvm: true,
        check: caching_mode,
    },
    Rule {
        name: "iommu-irqchip",
        title: "Interrupt remapping",
        why: "QEMU remaps interrupts only where it emulates the I/O APIC, and refuses to start otherwise",
        source: "QEMU hw/i386/x86-iommu.c, x86_iommu_realize",
        guest_follows: false,
        needs_kvm: true,
        check: remapping,
    },
];

/// Debugging properties that stop KVM from delivering the device's interrupts.
const KEEP_KVM_OUT: &[&str] = &["x-no-kvm-intx", "x-no-kvm-msi", "x-no-kvm-msix"];

fn assigned<'a>(subject: &Subject<'a>) -> Vec<&'a Device> {
    subject.devices(DeviceKind::Assigned).map(|(_, device)| device).collect()
}

fn assigned_interrupts(subject: &Subject<'_>) -> Verdict {
    let devices = assigned(subject);
    if devices.is_empty() {
        return Verdict::pass("no device is assigned");
    }
    let form = subject.form();
    let irqchip = subject.irqchip();
    if irqchip.value == Irqchip::UserSpace {
        let verdict = Verdict::fail("the interrupt controllers are in the VMM, so KVM delivers none");
        let verdict = match irqchip.place {
            Some(place) => verdict.said(form, place),
            None => verdict,
        };
        return verdict.fix(vec![DefinitionChange::Irqchip(Irqchip::Split)]);
    }
    let on = |value: &str| matches!(value, "on" | "true" | "yes");
    let kept_out = |device: &&&Device| {
        device.properties.iter().any(|(name, value)| KEEP_KVM_OUT.contains(&name.as_str()) && on(value))
    };
    let bad: Vec<_> = devices.iter().filter(kept_out).collect();
    if bad.is_empty() {
        return Verdict::pass("KVM delivers them");
    }
    let names: Vec<_> = bad.iter().map(|device| called(device)).collect();
    let verdict = Verdict::fail(format!("{}: through the VMM, for debugging", listed(&names)));
    bad.iter()
        .fold(verdict, |verdict, device| verdict.said(form, &device.place))
        .advice("remove the properties x-no-kvm-intx, x-no-kvm-msi and x-no-kvm-msix")
}

/// QEMU's model for the processors of a vendor; virtio-iommu, which neither has properties nor refuses devices, is none.
fn is_of_a_processor(iommu: &GuestIommu) -> bool {
    matches!(iommu.model.as_str(), "intel-iommu" | "amd-iommu")
}

fn caching_mode(subject: &Subject<'_>) -> Verdict {
    let devices = assigned(subject);
    let iommu = subject.vm.iommus.iter().find(|iommu| is_of_a_processor(iommu));
    let (Some(device), Some(iommu)) = (devices.first(), iommu) else {
        return Verdict::pass("no device is assigned behind an IOMMU");
    };
    let form = subject.form();
    if iommu.model == "amd-iommu" {
        if iommu.dma_remapping.as_ref().is_some_and(|set| set.value) {
            return Verdict::pass("DMA remapping is on").said(form, &iommu.place);
        }
        let found = format!("{} is assigned, and the IOMMU's DMA remapping is off", called(device));
        return Verdict::fail(found)
            .said(form, &iommu.place)
            .said(form, &device.place)
            .advice("QEMU: -device amd-iommu,dma-remap=on, which older ones lack; or leave the IOMMU out");
    }
    if iommu.caching_mode.as_ref().is_some_and(|set| set.value) {
        return Verdict::pass("caching mode is on").said(form, &iommu.place);
    }
    Verdict::fail(format!("{} is assigned, and the IOMMU's caching mode is off", called(device)))
        .said(form, &iommu.place)
        .said(form, &device.place)
        .fix(vec![DefinitionChange::InterruptRemapping])
}

fn remapping(subject: &Subject<'_>) -> Verdict {
    let remaps = |iommu: &&GuestIommu| {
        is_of_a_processor(iommu) && iommu.interrupt_remapping.as_ref().is_some_and(|set| set.value)
    };
    let Some(iommu) = subject.vm.iommus.iter().find(remaps) else {
        return Verdict::pass("not asked for");
    };
    let form = subject.form();
    let irqchip = subject.irqchip();
    if irqchip.value != Irqchip::Kernel {
        return Verdict::pass("the I/O APIC is in the VMM").said(form, &iommu.place);
    }
    let verdict = Verdict::fail("asked for, and the I/O APIC is in the kernel").said(form, &iommu.place);
    let verdict = match irqchip.place {
        Some(place) => verdict.said(form, place),
        None => {
            verdict.unsaid("kernel-irqchip", format!("machine type {} decides", subject.vm.machine_kind()))
        }
    };
    verdict.fix(vec![DefinitionChange::Irqchip(Irqchip::Split)])
}
