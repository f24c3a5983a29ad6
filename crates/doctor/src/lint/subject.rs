//! A definition, with defaults for missing settings.

use domain::{
    Accelerator, CpuModel, Definition, Device, DeviceKind, FeatureState, Form, GuestIommu, Irqchip, Place,
    TickPolicy,
};

use super::host_side::{HostSide, Technology};
use super::topology::{Topology, highest_apic_id};
use exits::{Isa, KernelVersion};

/// A definition, and the host where it is to run.
pub(super) struct Subject<'a> {
    pub(super) vm: &'a Definition,
    pub(super) host: &'a HostSide,
}

/// A value, and the part of the text that sets it; `None` for a default.
pub(super) struct Held<'a, T> {
    pub(super) value: T,
    pub(super) place: Option<&'a Place>,
}

impl<'a> Subject<'a> {
    pub(super) fn form(&self) -> Form {
        self.vm.form
    }

    pub(super) fn is_kvm(&self) -> bool {
        self.vm.accelerator_in_force() == Accelerator::Kvm
    }

    /// Tests whether the host's CPU is of this vendor, or unknown.
    pub(super) fn may_be(&self, isa: Isa) -> bool {
        self.host.isa.is_none_or(|known| known == isa)
    }

    pub(super) fn kernel_is_older(&self, than: KernelVersion) -> Option<bool> {
        self.host.kernel.map(|kernel| kernel < than)
    }

    /// Tests whether the machine type is known to be older than this version of QEMU.
    pub(super) fn machine_is_older(&self, than: (u32, u32)) -> bool {
        self.vm.machine_version().is_some_and(|version| version < than)
    }

    /// The irqchip mode (kernel, split, off).
    pub(super) fn irqchip(&self) -> Held<'a, Irqchip> {
        let place = self.vm.machine.irqchip.as_ref().map(|set| &set.place);
        Held { value: self.vm.irqchip_in_force(), place }
    }

    /// Tests whether QEMU injects ticks of the RTC again that did not arrive, and would go on without end with a split
    /// irqchip. `rtc_policy_slew_deliver_irq` in `hw/rtc/mc146818rtc.c` asks whether a tick arrived. KVM's PIC and I/O
    /// APIC report that (`hw/i386/kvm`), and QEMU's own local APIC. With a split irqchip there are none of these, and
    /// `ioapic_service` in `hw/intc/ioapic.c` reports nothing, so each tick counts as lost. A guest with synthetic timers
    /// does not tick by the RTC.
    pub(super) fn catches_up_ticks(&self) -> bool {
        let policy = self.vm.timers.rtc.as_ref().map(|set| set.value);
        policy == Some(TickPolicy::CatchUp)
            && self.irqchip().value != Irqchip::Split
            && !self.vm.hyperv("stimer")
    }

    pub(super) fn model(&self) -> CpuModel {
        self.vm
            .cpu
            .model
            .as_ref()
            .map_or_else(|| CpuModel::Named("qemu64".to_owned()), |model| model.value.clone())
    }

    /// Tests whether the guest gets the CPU features of the host, apart from single ones. Features that are KVM's own
    /// it does not get by libvirt's host-model.
    pub(super) fn passes_host_through(&self) -> bool {
        !matches!(self.model(), CpuModel::Named(_))
    }

    /// The state of a feature in the text, and its place.
    pub(super) fn said(&self, feature: &str) -> Option<Held<'a, FeatureState>> {
        let set = self.vm.cpu.features.get(feature)?;
        Some(Held { value: set.value, place: Some(&set.place) })
    }

    /// The state of a feature, where `default` holds if the text does not name it.
    pub(super) fn given(&self, feature: &str, default: bool) -> Held<'a, bool> {
        self.said(feature).map_or(Held { value: default, place: None }, |said| Held {
            value: said.value != FeatureState::Off,
            place: said.place,
        })
    }

    /// The offer of x2APIC to the guest.
    pub(super) fn x2apic(&self) -> Held<'a, bool> {
        let place = self.said("x2apic").and_then(|said| said.place);
        Held { value: self.vm.x2apic_in_force(), place }
    }

    /// The first setting that hides KVM from the guest.
    pub(super) fn hides_kvm(&self) -> Option<&'a Place> {
        self.vm.hiding_kvm().next().map(|(_, place)| place)
    }

    /// The place where an enlightenment is switched on.
    pub(super) fn enlightenment(&self, name: &str) -> Option<&'a Place> {
        self.vm.cpu.hyperv.features.get(name).filter(|set| set.value).map(|set| &set.place)
    }

    /// The setting that passes every enlightenment of the host to the guest.
    pub(super) fn every_enlightenment(&self) -> Option<&'a Place> {
        self.vm.cpu.hyperv.passthrough.as_ref().filter(|set| set.value).map(|set| &set.place)
    }

    /// The number of vCPUs, including those that can be hotplugged.
    pub(super) fn vcpus(&self) -> u32 {
        self.vm.most_vcpus()
    }

    pub(super) fn vcpus_place(&self) -> Option<&'a Place> {
        let vcpus = &self.vm.vcpus;
        vcpus.maximum.as_ref().or(vcpus.count.as_ref()).map(|set| &set.place)
    }

    pub(super) fn topology(&self) -> Topology {
        // Without a topology libvirt sets sockets; QEMU prefers cores since machine types of 6.2.
        let prefers_sockets = self.form() == Form::Libvirt || self.machine_is_older((6, 2));
        Topology::of(&self.vm.vcpus, self.vcpus(), prefers_sockets)
    }

    pub(super) fn highest_apic_id(&self) -> u64 {
        highest_apic_id(self.topology(), self.vcpus())
    }

    /// The IOMMU that remaps interrupts and supports APIC IDs above 255. Both are on by default with a split
    /// irqchip (QEMU `hw/i386/intel_iommu.c`, `vtd_decide_config`).
    pub(super) fn remaps_wide_ids(&self) -> Option<&'a GuestIommu> {
        let split = self.irqchip().value == Irqchip::Split;
        self.vm.iommus.iter().find(|iommu| {
            let remaps = iommu.interrupt_remapping.as_ref().map_or(split, |set| set.value);
            let wide = iommu.extended_interrupt_mode.as_ref().map_or(remaps, |set| set.value);
            iommu.model == "intel-iommu" && remaps && wide
        })
    }

    /// Tests whether an IOMMU is explicitly set to support wide APIC IDs.
    pub(super) fn says_wide_ids(&self) -> bool {
        self.vm.iommus.iter().any(|iommu| {
            iommu.model == "intel-iommu"
                && iommu.extended_interrupt_mode.as_ref().is_some_and(|set| set.value)
        })
    }

    /// Devices of a kind with their positions.
    pub(super) fn devices(&self, kind: DeviceKind) -> impl Iterator<Item = (usize, &'a Device)> {
        self.vm.devices.iter().enumerate().filter(move |(_, device)| device.kind == kind)
    }

    /// The largest APIC ID for which AVIC works (Linux `arch/x86/include/asm/svm.h`: `AVIC_MAX_PHYSICAL_ID`,
    /// `X2AVIC_MAX_PHYSICAL_ID`).
    pub(super) fn largest_id_of_avic(&self) -> u64 {
        match (self.host.largest_apic_id, self.host.technology) {
            (Some(known), _) => u64::from(known),
            (None, Some(Technology::X2Avic)) => 511,
            (None, _) => 254,
        }
    }
}

/// The name of a device in a finding.
pub(super) fn called(device: &Device) -> String {
    match &device.id {
        Some(id) if *id != device.model => format!("{} ({id})", device.model),
        _ => device.model.clone(),
    }
}

/// A list of names for people: "A", "A and B", "2 A and B", "A, B and 3 others".
pub(super) fn listed(names: &[String]) -> String {
    let mut counted: Vec<(&String, usize)> = Vec::new();
    for name in names {
        match counted.iter_mut().find(|(known, _)| *known == name) {
            Some((_, number)) => *number += 1,
            None => counted.push((name, 1)),
        }
    }
    let words = |&(name, number): &(&String, usize)| {
        if number == 1 { name.clone() } else { format!("{number} {name}") }
    };
    let words: Vec<_> = counted.iter().map(words).collect();
    match &words[..] {
        [] => String::new(),
        [one] => one.clone(),
        [one, other] => format!("{one} and {other}"),
        [one, other, third] => format!("{one}, {other} and {third}"),
        [one, other, ..] => {
            let rest: usize = counted[2..].iter().map(|(_, number)| number).sum();
            format!("{one}, {other} and {}", exits::counted(rest as u64, "other"))
        }
    }
}
