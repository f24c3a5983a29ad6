//! What can be changed in a definition.

use super::cpu::{CpuModel, FeatureState};
use super::machine::{Irqchip, TickPolicy};
use serde::{Deserialize, Serialize};

/// One change to a definition, whatever text it is written in.
///
/// Making a change that the text already has changes no byte.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Change {
    /// Where the interrupt controllers are emulated.
    Irqchip(Irqchip),
    /// What the PIT does with lost ticks.
    PitTickPolicy(TickPolicy),
    /// Whether there is an HPET.
    Hpet(bool),
    /// Which CPU the guest sees.
    CpuModel(CpuModel),
    /// A feature of the CPU, by QEMU's name with dashes.
    CpuFeature(String, FeatureState),
    /// An enlightenment, by QEMU's name without its prefix.
    HyperV(String, bool),
    /// An Intel IOMMU that remaps interrupts and takes APIC IDs above 255: added, or switched so.
    InterruptRemapping,
    /// A device's model; the device is named by its position in [`Definition::devices`](super::Definition::devices).
    DeviceModel {
        /// Position of the device.
        device: usize,
        /// QEMU's name of the model it shall be.
        model: String,
    },
    /// Who does a network interface's work: the kernel, or the VMM.
    Vhost {
        /// Position of the device.
        device: usize,
        /// Whether the kernel does.
        on: bool,
    },
    /// How many queues a device has.
    Queues {
        /// Position of the device.
        device: usize,
        /// Queues, or queue pairs of a network interface.
        queues: u32,
    },
    /// An I/O thread of its own for a disk.
    IoThread {
        /// Position of the device.
        device: usize,
        /// Name of the thread; made when it is not there.
        iothread: String,
    },
    /// How a disk is read and written (`native`, `io_uring`, `threads`).
    Aio {
        /// Position of the device.
        device: usize,
        /// The way.
        aio: String,
    },
}
