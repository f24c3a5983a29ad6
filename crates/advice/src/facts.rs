//! Facts from a VM's definition, on which the choice of devices and cures depends.

use std::collections::BTreeSet;

use domain::{Accelerator, Backend, CpuModel, Definition, Device, DeviceKind, FeatureState, Irqchip};
use exits::Access;
use host::pci::Bar;
use serde::{Deserialize, Serialize};

/// A fact about a VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Fact {
    /// The machine is a Q35.
    Q35,
    /// The machine is an i440FX.
    I440fx,
    /// The machine is a microvm.
    Microvm,
    /// The guest is a trust domain of TDX, for which KVM and QEMU allow only a split irqchip.
    Tdx,
    /// SEV, SEV-ES or SEV-SNP encrypts the memory. KVM inhibits AVIC for the VM.
    Sev,
    /// KVM emulates all interrupt controllers.
    IrqchipKernel,
    /// There is no PIC.
    NoPic,
    /// There is no HPET.
    NoHpet,
    /// There is no VMware port.
    NoVmport,
    /// KVM's clock is offered.
    KvmClock,
    /// Hyper-V's clock is offered.
    HypervTime,
    /// Hyper-V's timers are offered.
    HypervStimer,
    /// Hyper-V's timers may raise interrupts without a message (`hv-stimer-direct`).
    HypervStimerDirect,
    /// Windows is told to use the real APIC (`hv-avic`).
    HypervAvic,
    /// Hyper-V's EOIs without exits are offered (`hv-vapic`).
    HypervVapic,
    /// Paravirtual EOI is offered, in the form that the guest takes: KVM's, or Hyper-V's (`hv-vapic`) to a guest that is
    /// told of Hyper-V. The same holds for the other paravirtual methods below.
    PvEoi,
    /// The TSC-deadline timer is offered.
    TscDeadline,
    /// The TSC is said to be invariant.
    Invtsc,
    /// The guest can disable KVM's halt polling because it polls itself.
    PollControl,
    /// Paravirtual unhalt is offered: a vCPU that waits for a lock can sleep until another one wakes it. Hyper-V's form is
    /// a call of a vCPU that waits long (`hv-spinlocks`).
    PvUnhalt,
    /// Paravirtual IPIs are offered: one hypercall for many vCPUs (`hv-ipi`).
    PvIpi,
    /// The paravirtual TLB flush is offered: no IPI to vCPUs that are not running (`hv-tlbflush`).
    PvTlbFlush,
    /// There is no virtual PMU.
    NoPmu,
    /// The CPU model is the host's (`-cpu host`), or the nearest to it with the host's features (libvirt's `host-model`).
    HostCpu,
    /// x2APIC is offered.
    X2apic,
    /// HLT and MWAIT do not exit.
    CpuPm,
    /// Memory is backed by huge pages.
    HugePages,
    /// Memory is not merged with that of other VMs.
    NoMerge,
    /// Most of the memory is private to the guest (TDX, SEV-SNP), and comes from KVM's guest_memfd, not from the VMM's
    /// backend.
    PrivateMemory,
    /// Memory is not swapped.
    MemoryLocked,
    /// An e1000, e1000e or igb.
    NicE1000,
    /// An rtl8139.
    NicRtl8139,
    /// A vmxnet3.
    NicVmxnet3,
    /// A disk on AHCI.
    DiskAhci,
    /// A pointer or keyboard on a UHCI or EHCI.
    UsbPolled,
    /// An xHCI.
    UsbXhci,
    /// A virtio device on PCI.
    VirtioPci,
    /// The virtio devices are served by other processes (vhost-user).
    VirtioInOtherProcess,
    /// The virtio devices offer packed rings.
    PackedRings,
    /// A CD drive on IDE.
    CdDrive,
    /// A virtio-net device that QEMU serves itself.
    VirtioNetInVmm,
    /// A virtio device without ioeventfd.
    IoeventfdOff,
    /// A virtio-gpu and no other display.
    VirtioGpu,
    /// A display.
    Display,
    /// No display.
    NoDisplay,
    /// A balloon.
    Balloon,
    /// A device of the host is assigned to it.
    Assigned,
}

/// The facts of one VM.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    facts: BTreeSet<Fact>,
    /// The BARs of its PCI devices, if the VMM reported them.
    #[serde(default)]
    bars: Vec<Bar>,
    /// The IDs of its assigned devices that have one.
    #[serde(default)]
    assigned: BTreeSet<String>,
}

impl Facts {
    /// The facts of a definition, including the defaults of settings that it omits.
    #[must_use]
    pub fn of(definition: &Definition) -> Self {
        let mut facts = machine(definition);
        facts.extend(processor(definition));
        facts.extend(devices(definition));
        let assigned = definition.devices.iter().filter(|device| device.kind == DeviceKind::Assigned);
        let assigned = assigned.filter_map(|device| device.id.clone()).collect();
        Self { assigned, ..facts.into_iter().collect() }
    }

    /// These facts with the BARs of PCI devices.
    #[must_use]
    pub fn with_bars(self, bars: Vec<Bar>) -> Self {
        Self { bars, ..self }
    }

    /// The BAR that contains an access, if it is known.
    #[must_use]
    pub fn bar(&self, access: Access) -> Option<&Bar> {
        self.bars.iter().find(|bar| bar.has(access))
    }

    /// Tests whether a BAR is of an assigned device, by the ID that the VM's definition gives it.
    #[must_use]
    pub fn is_assigned(&self, bar: &Bar) -> bool {
        self.assigned.contains(&bar.id)
    }

    /// Tests whether the VM has this fact.
    #[must_use]
    pub fn has(&self, fact: Fact) -> bool {
        self.facts.contains(&fact)
    }

    /// Tests whether the VM has all of these facts.
    #[must_use]
    pub fn all(&self, facts: &[Fact]) -> bool {
        facts.iter().all(|&fact| self.has(fact))
    }

    /// Tests whether the VM has one of these facts.
    pub(crate) fn any(&self, facts: &[Fact]) -> bool {
        facts.iter().any(|&fact| self.has(fact))
    }

    /// All facts, in order.
    pub fn iter(&self) -> impl Iterator<Item = Fact> {
        self.facts.iter().copied()
    }
}

impl FromIterator<Fact> for Facts {
    fn from_iter<T: IntoIterator<Item = Fact>>(facts: T) -> Self {
        Self { facts: facts.into_iter().collect(), ..Self::default() }
    }
}

fn those(facts: impl IntoIterator<Item = (bool, Fact)>) -> Vec<Fact> {
    facts.into_iter().filter(|&(holds, _)| holds).map(|(_, fact)| fact).collect()
}

fn machine(definition: &Definition) -> Vec<Fact> {
    let machine = &definition.machine;
    let is_off = |set: &Option<domain::Set<bool>>| set.as_ref().is_some_and(|set| !set.value);
    let option = |name: &str, text: &str| {
        definition.other.iter().any(|set| set.value.0 == name && set.value.1.contains(text))
    };
    let is_not_merged = machine.properties.iter().any(|set| {
        let (name, value) = &set.value;
        name == "mem-merge" && matches!(value.as_str(), "off" | "no")
    });
    let is_private = |set: &domain::Set<String>| set.value.contains("tdx") || set.value.contains("snp");
    let has_private_memory = machine.encryption.as_ref().is_some_and(is_private);
    let huge = definition.huge_pages.as_ref().is_some_and(|set| set.value);
    let locked = option("overcommit", "mem-lock=on")
        || option("overcommit", "mem-lock=yes")
        || option("memoryBacking/locked", "");
    those([
        (definition.is_q35(), Fact::Q35),
        (definition.is_i440fx(), Fact::I440fx),
        (definition.is_microvm(), Fact::Microvm),
        (definition.irqchip_in_force() == Irqchip::Kernel, Fact::IrqchipKernel),
        (definition.is_tdx(), Fact::Tdx),
        (machine.encryption.is_some() && !definition.is_tdx(), Fact::Sev),
        // Off by default with TDX: tdx_kvm_init in target/i386/kvm/tdx.c.
        (is_off(&machine.pic) || definition.is_tdx(), Fact::NoPic),
        (!definition.has_hpet(), Fact::NoHpet),
        (is_off(&machine.vmport) || definition.is_microvm(), Fact::NoVmport),
        (option("overcommit", "cpu-pm=on") || option("overcommit", "cpu-pm=yes"), Fact::CpuPm),
        (huge, Fact::HugePages),
        // QEMU switches merging off if memory is encrypted: machine_run_board_init in hw/core/machine.c.
        (is_not_merged || machine.encryption.is_some(), Fact::NoMerge),
        (has_private_memory, Fact::PrivateMemory),
        (locked, Fact::MemoryLocked),
    ])
}

fn processor(definition: &Definition) -> Vec<Fact> {
    let cpu = &definition.cpu;
    let on = |name: &str| cpu.feature(name) == Some(FeatureState::On);
    let not_off = |name: &str| cpu.feature(name) != Some(FeatureState::Off);
    let is = |set: &Option<domain::Set<bool>>, default: bool| set.as_ref().map_or(default, |set| set.value);
    let kvm = definition.accelerator_in_force() == Accelerator::Kvm;
    let detected = kvm && definition.hiding_kvm().next().is_none();
    let host = definition.passes_host_cpu();
    let nearest = definition.cpu.model.as_ref().is_some_and(|model| model.value == CpuModel::HostModel);
    let clock = detected && is(&definition.timers.kvm_clock, true) && not_off("kvmclock");
    let hyperv_clock = is(&definition.timers.hyperv_clock, false) || definition.hyperv("time");
    let offered = |name: &str| detected && (on(name) || host && not_off(name));
    // Windows knows none of KVM's methods, which are offered by default.
    let is_enlightened = definition.is_enlightened();
    let paravirtual =
        |of_kvm: bool, of_hyperv: &str| if is_enlightened { definition.hyperv(of_hyperv) } else { of_kvm };
    // On by default with KVM: kvm_default_props in target/i386/kvm/kvm-cpu.c.
    let pv_eoi = detected && not_off("kvm-pv-eoi");
    those([
        (clock, Fact::KvmClock),
        (hyperv_clock, Fact::HypervTime),
        (definition.hyperv("stimer"), Fact::HypervStimer),
        (definition.hyperv("stimer-direct"), Fact::HypervStimerDirect),
        (definition.hyperv("avic"), Fact::HypervAvic),
        (definition.hyperv("vapic"), Fact::HypervVapic),
        (paravirtual(pv_eoi, "vapic"), Fact::PvEoi),
        // KVM offers it on any host CPU: kvm_arch_get_supported_cpuid in target/i386/kvm/kvm.c.
        (on("tsc-deadline") || kvm && host && not_off("tsc-deadline"), Fact::TscDeadline),
        (kvm && (host || nearest), Fact::HostCpu),
        (kvm && definition.x2apic_in_force(), Fact::X2apic),
        (on("invtsc"), Fact::Invtsc),
        // KVM offers all of these, and -cpu host enables what KVM offers: kvm_arch_get_supported_cpuid in
        // target/i386/kvm/kvm.c.
        (offered("kvm-poll-control"), Fact::PollControl),
        (paravirtual(offered("kvm-pv-unhalt"), "spinlocks"), Fact::PvUnhalt),
        (paravirtual(offered("kvm-pv-ipi"), "ipi"), Fact::PvIpi),
        (paravirtual(offered("kvm-pv-tlb-flush"), "tlbflush"), Fact::PvTlbFlush),
        (cpu.feature("pmu") == Some(FeatureState::Off), Fact::NoPmu),
    ])
}

/// The property's name in QEMU: libvirt has those of QEMU's drivers in `<driver>`, and any in `<qemu:override>`.
fn of_qemu(property: &str) -> &str {
    ["driver@", "override@"].iter().find_map(|path| property.strip_prefix(path)).unwrap_or(property)
}

fn devices(definition: &Definition) -> Vec<Fact> {
    let devices = &definition.devices;
    let any = |is: &dyn Fn(&Device) -> bool| devices.iter().any(is);
    let model = |device: &Device, start: &str| device.model.starts_with(start);
    let property = |device: &Device, name: &str, value: &str| {
        device.properties.iter().any(|(one, given)| of_qemu(one) == name && given == value)
    };
    let is_virtio_pci = |device: &Device| {
        model(device, "virtio-")
            && (device.model.contains("-pci") || device.model == "virtio-vga" || device.model == "virtio")
    };
    let virtio = || devices.iter().filter(|device| model(device, "virtio-"));
    let of_virtio = |device: &&Device| model(device, "virtio-") || model(device, "vhost-user-");
    let backends = || devices.iter().filter(of_virtio).filter_map(|device| device.backend.as_ref());
    let served = || backends().map(|backend| backend.value);
    let elsewhere =
        served().any(|one| one == Backend::VhostUser) && served().all(|one| one == Backend::VhostUser);
    let packed = virtio().next().is_some() && virtio().all(|device| property(device, "packed", "on"));
    let cd = |device: &Device| device.model.ends_with("-cd") || property(device, "media", "cdrom");
    let display = any(&|device| device.kind == DeviceKind::Display);
    let virtio_gpu =
        |device: &Device| device.model.contains("virtio-vga") || device.model.contains("virtio-gpu");
    let polled = any(&|device| device.model.contains("uhci") || device.model.contains("ehci"))
        || (definition.other.iter().any(|set| set.value.0 == "usb" || set.value.0 == "usbdevice")
            && !any(&|device| device.model.contains("xhci")));
    let usb_input = any(&|device| matches!(device.model.as_str(), "usb-tablet" | "usb-mouse" | "usb-kbd"));
    let xhci = any(&|device| device.model.contains("xhci"));
    those([
        (any(&|device| model(device, "e1000") || model(device, "igb")), Fact::NicE1000),
        (any(&|device| model(device, "rtl8139")), Fact::NicRtl8139),
        (any(&|device| model(device, "vmxnet3")), Fact::NicVmxnet3),
        (
            definition.is_q35()
                && any(&|device| {
                    model(device, "ide-") || model(device, "ahci") || model(device, "ich9-ahci")
                }),
            Fact::DiskAhci,
        ),
        (usb_input && (polled || !xhci), Fact::UsbPolled),
        (xhci, Fact::UsbXhci),
        (!definition.is_microvm() && any(&is_virtio_pci), Fact::VirtioPci),
        (elsewhere, Fact::VirtioInOtherProcess),
        (packed, Fact::PackedRings),
        (any(&cd), Fact::CdDrive),
        (
            any(&|device| model(device, "virtio-net") && definition.network_backend(device) == Backend::Vmm),
            Fact::VirtioNetInVmm,
        ),
        (
            any(&|device| {
                model(device, "virtio-")
                    && (property(device, "ioeventfd", "off") || property(device, "ioeventfd", "no"))
            }),
            Fact::IoeventfdOff,
        ),
        (
            any(&virtio_gpu) && !any(&|device| device.kind == DeviceKind::Display && !virtio_gpu(device)),
            Fact::VirtioGpu,
        ),
        (display, Fact::Display),
        (!display, Fact::NoDisplay),
        (any(&|device| model(device, "virtio-balloon")), Fact::Balloon),
        (definition.has_assigned_device(), Fact::Assigned),
    ])
}

#[cfg(test)]
#[path = "facts_tests.rs"]
mod tests;
