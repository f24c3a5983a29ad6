//! The machine: its type, accelerator, irqchip mode and timers.

use super::place::Set;
use serde::{Deserialize, Serialize};

/// The accelerator of the vCPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Accelerator {
    /// KVM.
    Kvm,
    /// QEMU's binary translation.
    Tcg,
    /// Xen.
    Xen,
    /// Another accelerator.
    Other,
}

/// The irqchip mode (QEMU `-machine kernel-irqchip=`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Irqchip {
    /// All interrupt controllers in the kernel: local APICs, I/O APIC, PIC and PIT.
    Kernel,
    /// Local APICs in the kernel, the rest in the VMM.
    Split,
    /// All in the VMM: interrupt virtualization is not possible.
    UserSpace,
}

/// A timer's policy for ticks that the guest missed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TickPolicy {
    /// Injects them later, at the usual rate (QEMU `delay`, libvirt `delay`). KVM's PIT calls this
    /// "reinject".
    Delay,
    /// Drops them (`discard`).
    Discard,
    /// Injects them faster (libvirt `catchup`, QEMU `slew`).
    CatchUp,
    /// Merges them (libvirt `merge`).
    Merge,
}

/// The machine. `None` if the text does not set it; the methods return the effective values.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Its type as given: `q35`, `pc-i440fx-9.2`, `microvm`.
    pub kind: Option<Set<String>>,
    /// Its accelerator.
    pub accelerator: Option<Set<Accelerator>>,
    /// Its irqchip mode.
    pub irqchip: Option<Set<Irqchip>>,
    /// The PIT is present (`-machine pit=`, microvm). libvirt's `<timer name='pit' present=>` has no effect.
    pub pit: Option<Set<bool>>,
    /// The PIC is present (`-machine pic=`, microvm; libvirt's `<pic>` is something else).
    pub pic: Option<Set<bool>>,
    /// The VMware port (`vmport`) is emulated.
    pub vmport: Option<Set<bool>>,
    /// The technology that encrypts the guest's memory: `sev`, `sev-snp`, `tdx`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encryption: Option<Set<String>>,
    /// All other properties of `-machine`, in order.
    pub properties: Vec<Set<(String, String)>>,
}

/// The timers. `None` if the text does not set it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timers {
    /// The PIT's policy for lost ticks.
    pub pit: Option<Set<TickPolicy>>,
    /// The RTC's policy for lost ticks.
    pub rtc: Option<Set<TickPolicy>>,
    /// The HPET is present.
    pub hpet: Option<Set<bool>>,
    /// KVM's paravirtual clock is offered (`kvmclock`).
    pub kvm_clock: Option<Set<bool>>,
    /// The Hyper-V reference clock is offered (`hypervclock`, `hv-time`).
    pub hyperv_clock: Option<Set<bool>>,
}
