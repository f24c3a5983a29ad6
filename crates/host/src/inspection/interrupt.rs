//! Interrupts of devices, and the processors that take them.

use crate::{CpuSet, Fact};

/// The interrupts of a host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Interrupts {
    /// Those of network, storage and assigned devices, by number.
    pub devices: Fact<Vec<Interrupt>>,
    /// How many interrupts of devices there are whose chip remaps them (`IR-`), and how many in all.
    pub remapped: Fact<(u32, u32)>,
    /// `PIN`, `PIW`, `NPI`: posted-interrupt notifications, wakeups and nested ones of all processors since boot
    /// (Intel; `arch/x86/kernel/irq.c`); each absent where the kernel does not count it.
    pub posted: Option<u64>,
    /// As above: wakeups.
    pub posted_wakeups: Option<u64>,
}

/// What an interrupt is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DeviceKind {
    /// A network device.
    Network,
    /// A storage device (NVMe, virtio-blk, host adapters).
    Storage,
    /// A device that a VM has for itself (VFIO).
    Assigned,
}

/// An interrupt of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interrupt {
    /// Its number.
    pub number: u32,
    /// The chip that delivers it (`IR-PCI-MSIX-0000:65:00.0`).
    pub chip: String,
    /// Who asked for it (`mlx5_comp3@pci:0000:65:00.0`, `nvme0q4`, `vfio-msix[0](0000:65:00.0)`).
    pub action: String,
    /// What it is of.
    pub kind: DeviceKind,
    /// How often it came since boot, on all processors.
    pub count: u64,
    /// Where it may go (`/proc/irq/N/smp_affinity_list`).
    pub affinity: Option<CpuSet>,
    /// Where it goes (`/proc/irq/N/effective_affinity_list`).
    pub effective: Option<CpuSet>,
}
