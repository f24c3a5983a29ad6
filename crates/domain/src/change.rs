//! Changes of a definition.

use super::cpu::{CpuModel, FeatureState};
use super::machine::{Irqchip, TickPolicy};
use serde::{Deserialize, Serialize};

/// The note on a change from interrupt controllers in the kernel to a split irqchip: migration requires the same
/// devices on both sides, and KVM's interrupt controllers are other devices than QEMU's.
pub(crate) const SPLIT_NOTE: &str = "The irqchip is split from the next start. A VM that runs now cannot be migrated live \
                                     to this definition, nor back: shut it down and start it.";

/// The note on an invariant TSC: QEMU blocks migration with it, and with that saving, unless the TSC has a fixed frequency
/// (`kvm_arch_init_vcpu` in `target/i386/kvm/kvm.c`).
pub(crate) const INVTSC_NOTE: &str = "With invtsc the VM can be migrated or saved, and its memory be in a snapshot, only if \
                                      the TSC has a fixed frequency: tsc-frequency= of -cpu, <timer name='tsc' \
                                      frequency='...'/> of libvirt.";

/// One change of a definition, independent of the form of its text.
///
/// A change that the text already contains changes no byte.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum DefinitionChange {
    /// Sets the irqchip mode.
    Irqchip(Irqchip),
    /// Sets the PIT's policy for lost ticks.
    PitTickPolicy(TickPolicy),
    /// Adds or removes the HPET.
    Hpet(bool),
    /// Sets the CPU model.
    CpuModel(CpuModel),
    /// Sets a feature of the CPU, by QEMU's name with dashes.
    CpuFeature(String, FeatureState),
    /// Switches an enlightenment, by QEMU's name without its prefix.
    HyperV(String, bool),
    /// Adds an Intel IOMMU with interrupt remapping and APIC IDs above 255, or enables both in the existing
    /// one.
    InterruptRemapping,
    /// Makes the guest's memory a file that the processes behind vhost-user devices can map.
    SharedMemory,
    /// Makes QEMU reconnect when the process behind a vhost-user device has ended.
    Reconnect {
        /// The index of the device.
        device: usize,
    },
    /// Sets a device's model; the device is identified by its index in
    /// [`Definition::devices`](super::Definition::devices).
    DeviceModel {
        /// The index of the device.
        device: usize,
        /// QEMU's name of the new model.
        model: String,
    },
    /// Sets the backend of a network interface: vhost-net in the kernel, or the VMM.
    Vhost {
        /// The index of the device.
        device: usize,
        /// True for the kernel, false for the VMM.
        on: bool,
    },
    /// Sets the number of a device's queues.
    Queues {
        /// The index of the device.
        device: usize,
        /// The number of queues, or of queue pairs of a network interface.
        queues: u32,
    },
    /// Gives a disk its own I/O thread.
    IoThread {
        /// The index of the device.
        device: usize,
        /// The name of the thread; created if it does not exist.
        iothread: String,
    },
    /// Sets the I/O method of a disk (`native`, `io_uring`, `threads`).
    Aio {
        /// The index of the device.
        device: usize,
        /// The method.
        aio: String,
    },
}
