//! The effective values of settings that a definition does not contain.
//!
//! The rules are QEMU's, because libvirt leaves these settings to QEMU too; each method names QEMU's
//! function.

use super::cpu::{CpuModel, FeatureState, HIDES_KVM};
use super::definition::{Definition, Form};
use super::device::{Backend, Device};
use super::machine::{Accelerator, Irqchip, TickPolicy};
use super::place::Place;

/// The QEMU versions of distributions' machine types, by the starts of their names after the family: the version in the
/// release that introduced the type. For RHEL (with Advanced Virtualization) it is that of qemu-kvm. All types of RHEL 7
/// have that of the last one, rhel7.6.0 (Daniel Berrangé in "hw/i386/pc_piix: Mark the machine types from version 1.4 to
/// 1.7 as deprecated", qemu-devel, September 2023). A start without a minor release is that of all later ones, and has the
/// version of the first of them (qemu-kvm of RHEL 9.6 and 10.0). Those of Ubuntu are in its patch
/// `define-ubuntu-machine-types.patch`; a type with a suffix (`-hpb`, `-v2`) has the version of the one without.
const OF_DISTRIBUTIONS: &[(&str, (u32, u32))] = &[
    ("rhel7.", (2, 12)),
    ("rhel8.0.", (3, 1)),
    ("rhel8.1.", (4, 1)),
    ("rhel8.2.", (4, 2)),
    ("rhel8.3.", (5, 1)),
    ("rhel8.4.", (5, 2)),
    ("rhel8.5.", (6, 0)),
    ("rhel8.6.", (6, 2)),
    ("rhel9.0.", (6, 2)),
    ("rhel9.2.", (7, 2)),
    ("rhel9.4.", (8, 2)),
    ("rhel9.", (9, 1)),
    ("rhel10.", (9, 1)),
    ("trusty", (2, 0)),
    ("utopic", (2, 0)),
    ("vivid", (2, 3)),
    ("wily", (2, 4)),
    ("xenial", (2, 5)),
    ("yakkety", (2, 6)),
    ("zesty", (2, 8)),
    ("artful", (2, 10)),
    ("bionic", (2, 11)),
    ("cosmic", (2, 12)),
    ("disco", (3, 1)),
    ("eoan", (4, 0)),
    ("focal", (4, 2)),
    ("groovy", (5, 0)),
    ("hirsute", (5, 2)),
    ("impish", (6, 0)),
    ("jammy", (6, 2)),
    ("kinetic", (7, 0)),
    ("lunar", (7, 2)),
    ("mantic", (8, 0)),
    ("noble", (8, 2)),
    ("oracular", (9, 0)),
    ("plucky", (9, 2)),
    ("questing", (10, 0)),
    ("resolute", (10, 2)),
];

impl Definition {
    /// The machine type; `pc` by default on x86.
    #[must_use]
    pub fn machine_kind(&self) -> &str {
        self.machine.kind.as_ref().map_or("pc", |kind| kind.value.as_str())
    }

    /// The machine type without the suffix of Proxmox (`q35+pve0`).
    fn qemus_kind(&self) -> &str {
        let kind = self.machine_kind();
        kind.split_once('+').map_or(kind, |(kind, _)| kind)
    }

    /// Tests whether the machine is a Q35.
    #[must_use]
    pub fn is_q35(&self) -> bool {
        self.qemus_kind() == "q35" || self.qemus_kind().starts_with("pc-q35-")
    }

    /// Tests whether the machine is an i440FX.
    #[must_use]
    pub fn is_i440fx(&self) -> bool {
        let kind = self.qemus_kind();
        let versioned =
            kind.strip_prefix("pc-").is_some_and(|rest| rest.starts_with(|one: char| one.is_ascii_digit()));
        let native = self.other_architecture.is_none();
        (kind == "pc" && (native || self.machine.kind.is_some()))
            || kind.starts_with("pc-i440fx-")
            || versioned
    }

    /// Tests whether the machine is a microvm.
    #[must_use]
    pub fn is_microvm(&self) -> bool {
        self.qemus_kind() == "microvm" || self.qemus_kind().starts_with("microvm-")
    }

    /// The QEMU version of the machine type (`pc-q35-8.2`, `pc-i440fx-9.0+pve0`, `pc-i440fx-rhel7.6.0`,
    /// `pc-1.0-precise`); `None` if the name has none, as `q35`, and for unknown types of distributions.
    #[must_use]
    pub fn machine_version(&self) -> Option<(u32, u32)> {
        let kind = self.qemus_kind();
        let name = ["pc-q35-", "pc-i440fx-", "pc-"].iter().find_map(|family| kind.strip_prefix(*family));
        let known = |name: &str| OF_DISTRIBUTIONS.iter().find(|(start, _)| name.starts_with(*start));
        if let Some((_, version)) = name.and_then(known) {
            return Some(*version);
        }
        let version = name.or_else(|| Some(kind.rsplit_once('-')?.1))?;
        let mut numbers = version.split(['.', '-']).map(str::parse::<u32>);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    }

    /// Tests whether the machine type is known to be of this version of QEMU or a later one. `q35` and `pc` are the newest
    /// types; an unknown type of a distribution may be an old one.
    #[must_use]
    pub fn machine_is_since(&self, version: (u32, u32)) -> bool {
        self.machine_version().map_or(!self.qemus_kind().contains('-'), |of_machine| of_machine >= version)
    }

    /// The effective accelerator: TCG by default, but KVM if the name of QEMU's program ends in `kvm`
    /// (`configure_accelerators` in `system/vl.c`).
    #[must_use]
    pub fn accelerator_in_force(&self) -> Accelerator {
        let named = self.program.as_ref().is_some_and(|program| program.value.ends_with("kvm"));
        let default = if named { Accelerator::Kvm } else { Accelerator::Tcg };
        self.machine.accelerator.as_ref().map_or(default, |set| set.value)
    }

    /// Tests whether the guest is a trust domain of TDX.
    #[must_use]
    pub fn is_tdx(&self) -> bool {
        self.machine.encryption.as_ref().is_some_and(|set| set.value.contains("tdx"))
    }

    /// The effective irqchip mode. The default is split on `microvm` (`hw/i386/microvm.c`), on `pc-q35-4.0`
    /// (`hw/i386/pc_q35.c`; 4.0.1 reverted it) and with TDX, which allows no other (`tdx_kvm_init` in
    /// `target/i386/kvm/tdx.c`); otherwise all interrupt controllers are in the kernel with KVM, and in the VMM
    /// without it.
    #[must_use]
    pub fn irqchip_in_force(&self) -> Irqchip {
        if self.accelerator_in_force() == Accelerator::Tcg {
            return Irqchip::UserSpace;
        }
        let split = self.is_microvm() || self.qemus_kind() == "pc-q35-4.0" || self.is_tdx();
        let default = if split { Irqchip::Split } else { Irqchip::Kernel };
        self.machine.irqchip.as_ref().map_or(default, |set| set.value)
    }

    /// Tests whether the guest has a PIT, in the kernel or in the VMM (`pc_basic_device_init` in
    /// `hw/i386/pc.c`).
    #[must_use]
    pub fn has_pit(&self) -> bool {
        self.machine.pit.as_ref().is_none_or(|set| set.value)
    }

    /// The policy of KVM's own PIT for lost ticks; `None` if there is no such PIT (`kvm_pit_in_kernel` in
    /// `target/i386/kvm/kvm_i386.h`). The default is `delay` (`kvm_pit_properties` in `hw/i386/kvm/i8254.c`),
    /// which KVM calls "reinject".
    #[must_use]
    pub fn kernel_pit_in_force(&self) -> Option<TickPolicy> {
        let in_kernel = self.irqchip_in_force() == Irqchip::Kernel && self.has_pit();
        in_kernel.then(|| self.timers.pit.as_ref().map_or(TickPolicy::Delay, |set| set.value))
    }

    /// Tests whether the machine type is one that only Red Hat's QEMU has (`pc-q35-rhel9.4.0`).
    #[must_use]
    pub fn is_of_red_hat(&self) -> bool {
        self.qemus_kind().contains("-rhel")
    }

    /// Tests whether the guest has an HPET: by default all PCs do (`pc_machine_initfn` in `hw/i386/pc.c`), but Red Hat's
    /// QEMU is built without it (no `CONFIG_HPET` in `configs/devices/x86_64-softmmu/x86_64-rh-devices.mak`); a microvm
    /// never has one.
    #[must_use]
    pub fn has_hpet(&self) -> bool {
        let default = !self.is_of_red_hat();
        !self.is_microvm() && self.timers.hpet.as_ref().map_or(default, |set| set.value)
    }

    /// The number of vCPUs at start (`machine_parse_smp_config` in `hw/core/machine-smp.c`): the given
    /// number, the product of the topology, or one.
    #[must_use]
    pub fn vcpus_in_force(&self) -> u32 {
        let vcpus = &self.vcpus;
        let levels = [&vcpus.sockets, &vcpus.dies, &vcpus.clusters, &vcpus.cores, &vcpus.threads];
        let product = levels
            .iter()
            .fold(1_u32, |product, level| product.saturating_mul(level.as_ref().map_or(1, |set| set.value)));
        let said = vcpus.count.as_ref().map_or(product, |set| set.value);
        said.max(1)
    }

    /// The maximum number of vCPUs, including those that can be hotplugged.
    #[must_use]
    pub fn most_vcpus(&self) -> u32 {
        self.vcpus_in_force().max(self.vcpus.maximum.as_ref().map_or(0, |set| set.value))
    }

    /// Tests whether the guest is told that it runs on Hyper-V, as Windows guests are. The crash registers alone
    /// (`hv-crash`, libvirt's `<panic model='hyperv'/>`) do not count: they offer the guest nothing to use. Nor does a
    /// vendor's name, which QEMU leaves out without an enlightenment (`hyperv_enabled` in `target/i386/kvm/kvm.c`).
    #[must_use]
    pub fn is_enlightened(&self) -> bool {
        let passthrough = self.cpu.hyperv.passthrough.as_ref().is_some_and(|set| set.value);
        let counts = |name: &str| !matches!(name, "crash" | "vendor-id");
        passthrough || self.cpu.hyperv.features.iter().any(|(name, set)| set.value && counts(name))
    }

    /// Tests whether an enlightenment is on, by QEMU's name without its prefix. With `hv-passthrough` all
    /// enlightenments of the host are on, unless the text disables them.
    #[must_use]
    pub fn hyperv(&self, name: &str) -> bool {
        let passthrough = self.cpu.hyperv.passthrough.as_ref().is_some_and(|set| set.value);
        self.cpu.hyperv.features.get(name).map_or(passthrough, |set| set.value)
    }

    /// Tests whether the guest is offered x2APIC, on a host whose KVM supports it. With KVM it is on by
    /// default for every model, unless the local APICs are in the VMM (`kvm_default_props` and
    /// `kvm_cpu_instance_init` in `target/i386/kvm/kvm-cpu.c`).
    #[must_use]
    pub fn x2apic_in_force(&self) -> bool {
        let default = self.irqchip_in_force() != Irqchip::UserSpace;
        self.cpu.feature("x2apic").map_or(default, |state| state != FeatureState::Off)
    }

    /// Tests whether the guest is offered 15-bit destinations in its interrupt messages
    /// (`kvm-msi-ext-dest-id`), which reach APIC IDs above 255 without remapping. On by default with a split
    /// irqchip, since machine types of 5.2 (`kvm_cpu_instance_init`, and `pc_compat_5_1` in `hw/i386/pc.c`);
    /// QEMU 7.0 and later are assumed.
    #[must_use]
    pub fn extended_destinations_in_force(&self) -> bool {
        let split = self.irqchip_in_force() == Irqchip::Split;
        let default = split && self.machine_is_since((5, 2));
        let hidden = self.hiding_kvm().next().is_some();
        !hidden && self.cpu.feature("kvm-msi-ext-dest-id").map_or(default, |state| state != FeatureState::Off)
    }

    /// The disabled features without which the guest does not detect KVM, nor any of its paravirtual features, each with
    /// the place that disables it.
    pub fn hiding_kvm(&self) -> impl Iterator<Item = (&'static str, &Place)> {
        HIDES_KVM.into_iter().filter_map(|name| {
            let set = self.cpu.features.get(name).filter(|set| set.value == FeatureState::Off)?;
            Some((name, &set.place))
        })
    }

    /// Tests whether the guest gets the host's CPU, apart from features that are disabled one by one.
    #[must_use]
    pub fn passes_host_cpu(&self) -> bool {
        self.cpu.model.as_ref().is_some_and(|model| matches!(model.value, CpuModel::Host | CpuModel::Maximum))
    }

    /// The backend of a network interface. QEMU uses vhost only if told to; libvirt uses it for virtio on a tap if the host
    /// has it (`qemuInterfaceOpenVhostNet`), which is assumed here.
    #[must_use]
    pub fn network_backend(&self, interface: &Device) -> Backend {
        if let Some(said) = &interface.backend {
            return said.value;
        }
        let taps = ["network", "bridge", "ethernet", "direct"];
        let opened = self.form == Form::Libvirt
            && self.accelerator_in_force() == Accelerator::Kvm
            && interface.model.starts_with("virtio-net")
            && interface.resource.as_deref().is_some_and(|kind| taps.contains(&kind));
        if opened { Backend::Vhost } else { Backend::Vmm }
    }

    /// The default model of a network interface in QEMU's arguments (`default_nic` of the machine in
    /// `hw/i386/pc_piix.c` and `hw/i386/pc_q35.c`); `None` if the machine has no default.
    #[must_use]
    pub fn default_network_model(&self) -> Option<&'static str> {
        if self.is_q35() {
            Some("e1000e")
        } else if self.is_i440fx() {
            Some("e1000")
        } else {
            None
        }
    }
}

/// The architecture of a QEMU program's guests, if its name says that it is not x86.
pub(crate) fn other_than_x86(program: &str) -> Option<&str> {
    let (_, target) = program.rsplit_once("qemu-system-")?;
    let target = target.split(|one: char| !one.is_ascii_alphanumeric() && one != '_').next()?;
    let native = ["x86_64", "i386", "amd64", "x86"].contains(&target);
    (!native && !target.is_empty()).then_some(target)
}

/// The architecture of a machine type that no x86 program has, for programs whose names say nothing (`qemu-kvm`).
pub(crate) fn architecture_of_machine(kind: &str) -> Option<&'static str> {
    const MACHINES: [(&str, &str); 3] =
        [("virt", "Arm, RISC-V or LoongArch"), ("pseries", "ppc64"), ("s390-ccw-virtio", "s390x")];
    let kinds =
        |name: &str| kind == name || kind.strip_prefix(name).is_some_and(|rest| rest.starts_with('-'));
    MACHINES.iter().find(|(name, _)| kinds(name)).map(|(_, architecture)| *architecture)
}

#[cfg(test)]
#[path = "defaults_tests.rs"]
mod tests;
