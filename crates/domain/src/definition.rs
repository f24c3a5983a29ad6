//! A VM as described by its definition.

use super::cpu::GuestCpu;
use super::device::{Device, DeviceKind, GuestIommu};
use super::machine::{Machine, Timers};
use super::place::Set;
use serde::{Deserialize, Serialize};

/// The form of a definition's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Form {
    /// QEMU's arguments.
    Qemu,
    /// libvirt's domain XML.
    Libvirt,
    /// Xen's xl.cfg.
    Xl,
}

/// vCPUs and their topology.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vcpus {
    /// The number of vCPUs at start.
    pub count: Option<Set<u32>>,
    /// The maximum number of vCPUs.
    pub maximum: Option<Set<u32>>,
    /// Sockets.
    pub sockets: Option<Set<u32>>,
    /// Dies per socket.
    pub dies: Option<Set<u32>>,
    /// Clusters per die.
    pub clusters: Option<Set<u32>>,
    /// Cores per cluster.
    pub cores: Option<Set<u32>>,
    /// Threads per core.
    pub threads: Option<Set<u32>>,
}

/// An I/O thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoThread {
    /// Its name, to which devices refer.
    pub id: String,
    /// Host CPUs on which it may run, as a list such as `0-3,6`; `None` if not given.
    pub cpus: Option<Set<String>>,
    /// True if QEMU's own arguments in libvirt's XML make it: libvirt does not know it, and no element can name it.
    #[serde(skip)]
    pub unknown_to_libvirt: bool,
}

/// A VM as described by its definition. Fields contain no defaults, except where their description says so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Definition {
    /// The form of the text.
    pub form: Form,
    /// Its name.
    pub name: Option<Set<String>>,
    /// The VMM's program.
    pub program: Option<Set<String>>,
    /// The guest's architecture, if it is not x86.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other_architecture: Option<Set<String>>,
    /// The machine.
    pub machine: Machine,
    /// The timers of the machine.
    pub timers: Timers,
    /// vCPUs.
    pub vcpus: Vcpus,
    /// Memory in MiB.
    pub memory_mib: Option<Set<u64>>,
    /// True if the guest's memory is a file that other processes can map.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_memory: Option<Set<bool>>,
    /// True if all of the guest's memory is backed by huge pages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub huge_pages: Option<Set<bool>>,
    /// The CPU that the guest sees.
    pub cpu: GuestCpu,
    /// IOMMUs that the guest sees.
    pub iommus: Vec<GuestIommu>,
    /// I/O threads.
    pub iothreads: Vec<IoThread>,
    /// Devices, in the order of the text, followed by the default devices of the machine.
    pub devices: Vec<Device>,
    /// The affinity of each vCPU, as `(vCPU, host CPU list)`.
    pub vcpu_pins: Vec<Set<(u32, String)>>,
    /// The affinity of the VMM's other threads, including vhost's.
    pub emulator_cpus: Option<Set<String>>,
    /// Properties for all devices of a driver, as driver, property and value (QEMU `-global`), unless they
    /// are in another field.
    pub globals: Vec<Set<(String, String, String)>>,
    /// Settings without a field, in order: an option's name without dashes and its argument, or an element's
    /// path and its text.
    pub other: Vec<Set<(String, String)>>,
    /// Parts of the text that were not understood, each as a sentence; writing the definition keeps them.
    pub doubts: Vec<String>,
    /// The first file of a `-readconfig` that was not read, shortened if long: it may have any of the settings that are
    /// missing here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unread_file: Option<String>,
}

impl Definition {
    /// Tests whether the guest has a device of the host, such as a PCI device by VFIO: QEMU then wants the IOMMU's caching mode.
    #[must_use]
    pub fn has_assigned_device(&self) -> bool {
        self.devices.iter().any(|device| device.kind == DeviceKind::Assigned)
    }

    /// A definition without any settings.
    #[must_use]
    pub fn empty(form: Form) -> Self {
        Self {
            form,
            name: None,
            program: None,
            other_architecture: None,
            machine: Machine::default(),
            timers: Timers::default(),
            vcpus: Vcpus::default(),
            memory_mib: None,
            shared_memory: None,
            huge_pages: None,
            cpu: GuestCpu::default(),
            iommus: Vec::new(),
            iothreads: Vec::new(),
            devices: Vec::new(),
            vcpu_pins: Vec::new(),
            emulator_cpus: None,
            globals: Vec::new(),
            other: Vec::new(),
            doubts: Vec::new(),
            unread_file: None,
        }
    }
}
