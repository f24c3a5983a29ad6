//! Devices of a VM.

use super::place::{Place, Set};
use serde::{Deserialize, Serialize};

/// The kind of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum DeviceKind {
    /// A disk or CD drive.
    Disk,
    /// A network interface.
    Network,
    /// A display adapter.
    Display,
    /// A controller with a bus for other devices: SCSI, USB, IDE, PCI bridges.
    Controller,
    /// A serial line or console.
    Serial,
    /// Sound.
    Sound,
    /// Keyboard, mouse, tablet.
    Input,
    /// A device of the host, assigned through VFIO.
    Assigned,
    /// Balloon, random numbers, watchdog, TPM, file systems and the rest.
    Other,
}

/// The backend of a device on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Backend {
    /// The VMM's own threads.
    Vmm,
    /// The kernel (vhost-net, vhost-scsi, vhost-vsock).
    Vhost,
    /// Another process (vhost-user).
    VhostUser,
    /// vDPA hardware or software.
    Vdpa,
}

/// A device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Its kind.
    pub kind: DeviceKind,
    /// The name of its driver in QEMU (`virtio-net-pci`, `e1000e`, `ide-hd`, `VGA`, `vfio-pci`), even if the
    /// text is libvirt's.
    pub model: String,
    /// Its name (`id=`, libvirt's alias or target).
    pub id: Option<String>,
    /// Its backend; `None` if the text does not set it.
    pub backend: Option<Set<Backend>>,
    /// Number of queues (queue pairs of a network interface).
    pub queues: Option<Set<u32>>,
    /// The I/O threads that serve it; empty if the main loop does.
    pub iothreads: Vec<Set<String>>,
    /// The I/O method of a disk: `threads`, `native`, `io_uring`.
    pub aio: Option<Set<String>>,
    /// Its cache mode: `none`, `writeback`...
    pub cache: Option<Set<String>>,
    /// Its resource on the host: a file, a tap, a PCI address.
    pub source: Option<Set<String>>,
    /// The kind of its resource on the host: libvirt's `type` of a disk or interface, QEMU's type of a `-netdev`
    /// or driver of the lowest block node.
    #[serde(skip)]
    pub resource: Option<String>,
    /// True if the connection to the process behind a vhost-user device is restored after a restart: QEMU reconnects,
    /// or QEMU is the server. `None` if there is no such process, or its socket is not in the text.
    #[serde(skip)]
    pub reconnects: Option<bool>,
    /// All properties in the text, in order.
    pub properties: Vec<(String, String)>,
    /// Its place in the text. Empty for default devices of the machine.
    pub place: Place,
}

impl Device {
    /// A device with only kind, model and place.
    pub(crate) fn new(kind: DeviceKind, model: impl Into<String>, place: Place) -> Self {
        Self {
            kind,
            model: model.into(),
            id: None,
            backend: None,
            queues: None,
            iothreads: Vec::new(),
            aio: None,
            cache: None,
            source: None,
            resource: None,
            reconnects: None,
            properties: Vec::new(),
            place,
        }
    }
}

/// An IOMMU that the guest sees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestIommu {
    /// `intel-iommu`, `amd-iommu`, `virtio-iommu`.
    pub model: String,
    /// It remaps interrupts (`intremap`).
    pub interrupt_remapping: Option<Set<bool>>,
    /// It supports APIC IDs above 255 (`eim`).
    pub extended_interrupt_mode: Option<Set<bool>>,
    /// It supports assigned devices (`caching-mode`).
    pub caching_mode: Option<Set<bool>>,
    /// The same for `amd-iommu` (`dma-remap`), for which libvirt has no name.
    pub dma_remapping: Option<Set<bool>>,
    /// Its place in the text.
    pub place: Place,
}
