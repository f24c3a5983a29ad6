//! The machine: its type, what runs it, its interrupt controllers and its timers.

use super::place::Set;
use serde::{Deserialize, Serialize};

/// What runs the vCPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Accelerator {
    /// KVM.
    Kvm,
    /// QEMU's translator.
    Tcg,
    /// Xen.
    Xen,
    /// Another one.
    Other,
}

/// Where the interrupt controllers are emulated (QEMU `-machine kernel-irqchip=`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Irqchip {
    /// All in the kernel: local APICs, I/O APIC, PIC and PIT.
    Kernel,
    /// Local APICs in the kernel, the rest in the VMM.
    Split,
    /// All in the VMM: interrupt virtualization cannot be used.
    UserSpace,
}

/// What a timer does with ticks that the guest missed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TickPolicy {
    /// Injects them later, at the usual rate (QEMU `delay`, libvirt `delay`). KVM's PIT "reinjects" then.
    Delay,
    /// Drops them (`discard`).
    Discard,
    /// Injects them faster (libvirt `catchup`, QEMU `slew`).
    CatchUp,
    /// Merges them (libvirt `merge`).
    Merge,
}

/// The machine. `None` is what the text does not say; the methods give what holds then.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Its type as written: `q35`, `pc-i440fx-9.2`, `microvm`.
    pub kind: Option<Set<String>>,
    /// What runs it.
    pub accelerator: Option<Set<Accelerator>>,
    /// Where the interrupt controllers are.
    pub irqchip: Option<Set<Irqchip>>,
    /// Whether a PIT is there (`-machine pit=`, microvm), or libvirt's `<timer name='pit' present=>`.
    pub pit: Option<Set<bool>>,
    /// Whether a PIC is there (`-machine pic=`, microvm; libvirt `<pic>` is no such thing).
    pub pic: Option<Set<bool>>,
    /// Whether `vmport` is emulated.
    pub vmport: Option<Set<bool>>,
    /// All other properties of `-machine`, in order.
    pub properties: Vec<Set<(String, String)>>,
}

/// The timers. `None` is what the text does not say.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timers {
    /// What the PIT does with lost ticks.
    pub pit: Option<Set<TickPolicy>>,
    /// What the RTC does with lost ticks.
    pub rtc: Option<Set<TickPolicy>>,
    /// Whether there is an HPET.
    pub hpet: Option<Set<bool>>,
    /// Whether KVM's paravirtual clock is offered (`kvmclock`).
    pub kvm_clock: Option<Set<bool>>,
    /// Whether the Hyper-V reference clock is offered (`hypervclock`, `hv-time`).
    pub hyperv_clock: Option<Set<bool>>,
}
