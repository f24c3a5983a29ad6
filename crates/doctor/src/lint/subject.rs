//! A definition with what holds where it says nothing.

use domain::{
    Accelerator, CpuModel, Definition, Device, DeviceKind, FeatureState, Form, GuestIommu, Irqchip, Place,
};

use super::host_side::{HostSide, Technology};
use super::topology::{Topology, highest_apic_id};
use exits::{Isa, KernelVersion};

/// A definition, and the host where it is to run.
pub(super) struct Subject<'a> {
    pub(super) vm: &'a Definition,
    pub(super) host: &'a HostSide,
}

/// A value, and the part of the text that says it; `None` for a default.
pub(super) struct Held<'a, T> {
    pub(super) value: T,
    pub(super) place: Option<&'a Place>,
}

impl<'a> Subject<'a> {
    pub(super) fn form(&self) -> Form {
        self.vm.form
    }

    /// Whether KVM runs it. QEMU without a word translates, unless its name ends in `kvm` (QEMU `softmmu/vl.c`,
    /// `configure_accelerators`).
    pub(super) fn is_kvm(&self) -> bool {
        match &self.vm.machine.accelerator {
            Some(set) => set.value == Accelerator::Kvm,
            None => self.vm.program.as_ref().is_some_and(|program| program.value.ends_with("kvm")),
        }
    }

    /// Whether it may run on this kind of CPU: it is, or nobody knows.
    pub(super) fn may_be(&self, isa: Isa) -> bool {
        self.host.isa.is_none_or(|known| known == isa)
    }

    pub(super) fn kernel_is_older(&self, than: KernelVersion) -> Option<bool> {
        self.host.kernel.map(|kernel| kernel < than)
    }

    pub(super) fn machine(&self) -> &str {
        self.vm.machine.kind.as_ref().map_or("pc", |kind| kind.value.as_str())
    }

    pub(super) fn is_microvm(&self) -> bool {
        self.machine().starts_with("microvm")
    }

    /// Version of the machine type (`pc-q35-8.2`, `pc-i440fx-rhel7.6.0` has none of QEMU's); `None` for the newest.
    pub(super) fn machine_version(&self) -> Option<(u32, u32)> {
        let (_, version) = self.machine().rsplit_once('-')?;
        let mut numbers = version.split('.').map(str::parse::<u32>);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    }

    /// Whether the machine type is older than this version of QEMU.
    pub(super) fn machine_is_older(&self, than: (u32, u32)) -> bool {
        self.machine_version().is_some_and(|version| version < than)
    }

    /// Where the interrupt controllers are. `microvm` and `pc-q35-4.0` alone are split by default
    /// (`default_kernel_irqchip_split` in QEMU `hw/i386/microvm.c` and `hw/i386/pc_q35.c`; taken back in 4.0.1).
    pub(super) fn irqchip(&self) -> Held<'a, Irqchip> {
        if let Some(set) = &self.vm.machine.irqchip {
            return Held { value: set.value, place: Some(&set.place) };
        }
        let split = self.is_microvm() || self.machine() == "pc-q35-4.0";
        let value = if split { Irqchip::Split } else { Irqchip::Kernel };
        Held { value, place: None }
    }

    pub(super) fn model(&self) -> CpuModel {
        self.vm
            .cpu
            .model
            .as_ref()
            .map_or_else(|| CpuModel::Named("qemu64".to_owned()), |model| model.value.clone())
    }

    /// Whether the guest gets what the host has, but for single features.
    pub(super) fn passes_host_through(&self) -> bool {
        !matches!(self.model(), CpuModel::Named(_))
    }

    /// What the text says of a feature, and where.
    pub(super) fn said(&self, feature: &str) -> Option<Held<'a, FeatureState>> {
        let set = self.vm.cpu.features.get(feature)?;
        Some(Held { value: set.value, place: Some(&set.place) })
    }

    /// Whether the guest gets a feature, where `default` holds without a word.
    pub(super) fn given(&self, feature: &str, default: bool) -> Held<'a, bool> {
        self.said(feature).map_or(Held { value: default, place: None }, |said| Held {
            value: said.value != FeatureState::Off,
            place: said.place,
        })
    }

    /// Whether the guest is offered x2APIC: by default where the local APICs are in the kernel (QEMU
    /// `target/i386/kvm/kvm-cpu.c`, `kvm_default_props`).
    pub(super) fn x2apic(&self) -> Held<'a, bool> {
        self.given("x2apic", self.irqchip().value != Irqchip::UserSpace)
    }

    /// Whether KVM hides itself, and with that all of its paravirtual features.
    pub(super) fn hides_kvm(&self) -> Option<&'a Place> {
        if let Some(said) = self.said("kvm") {
            return (said.value == FeatureState::Off).then_some(said.place).flatten();
        }
        let hidden = |(name, value): &(String, String)| name == "kvm" && value == "off";
        self.vm.cpu.properties.iter().find(|set| hidden(&set.value)).map(|set| &set.place)
    }

    /// Whether an enlightenment is on, and where that is said.
    pub(super) fn enlightenment(&self, name: &str) -> Option<&'a Place> {
        // QEMU has two names for it.
        let names: &[&str] = if name == "avic" { &["avic", "apicv"] } else { &[name] };
        names
            .iter()
            .filter_map(|name| self.vm.cpu.hyperv.features.get(*name))
            .find(|set| set.value)
            .map(|set| &set.place)
    }

    /// Whether the guest gets every enlightenment of the host.
    pub(super) fn every_enlightenment(&self) -> Option<&'a Place> {
        self.vm.cpu.hyperv.passthrough.as_ref().filter(|set| set.value).map(|set| &set.place)
    }

    /// Whether the guest is told that it runs on Hyper-V, which is done for Windows.
    pub(super) fn is_enlightened(&self) -> bool {
        self.every_enlightenment().is_some() || self.vm.cpu.hyperv.features.values().any(|set| set.value)
    }

    /// vCPUs, those that can be added counted as well.
    pub(super) fn vcpus(&self) -> u32 {
        let of = |set: &Option<domain::Set<u32>>| set.as_ref().map_or(0, |set| set.value);
        of(&self.vm.vcpus.count).max(of(&self.vm.vcpus.maximum)).max(1)
    }

    pub(super) fn vcpus_place(&self) -> Option<&'a Place> {
        let vcpus = &self.vm.vcpus;
        vcpus.maximum.as_ref().or(vcpus.count.as_ref()).map(|set| &set.place)
    }

    pub(super) fn topology(&self) -> Topology {
        // libvirt names sockets when nobody does; QEMU prefers cores since machine types of 6.2.
        let prefers_sockets = self.form() == Form::Libvirt || self.machine_is_older((6, 2));
        Topology::of(&self.vm.vcpus, self.vcpus(), prefers_sockets)
    }

    pub(super) fn highest_apic_id(&self) -> u64 {
        highest_apic_id(self.topology(), self.vcpus())
    }

    /// The IOMMU that remaps interrupts and takes APIC IDs above 255. Both are on by default with a split irqchip
    /// (QEMU `hw/i386/intel_iommu.c`, `vtd_decide_config`).
    pub(super) fn remaps_wide_ids(&self) -> Option<&'a GuestIommu> {
        let split = self.irqchip().value == Irqchip::Split;
        self.vm.iommus.iter().find(|iommu| {
            let remaps = iommu.interrupt_remapping.as_ref().map_or(split, |set| set.value);
            let wide = iommu.extended_interrupt_mode.as_ref().map_or(remaps, |set| set.value);
            iommu.model == "intel-iommu" && remaps && wide
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

/// A device as it is called in a finding.
pub(super) fn called(device: &Device) -> String {
    match &device.id {
        Some(id) if *id != device.model => format!("{} ({id})", device.model),
        _ => device.model.clone(),
    }
}

/// "A", "A and B", "A, B and 3 others".
pub(super) fn listed(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [one, other] => format!("{one} and {other}"),
        [one, other, third] => format!("{one}, {other} and {third}"),
        [one, other, rest @ ..] => format!("{one}, {other} and {} others", rest.len()),
    }
}
