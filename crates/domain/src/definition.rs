//! A VM as its definition says.

use super::cpu::GuestCpu;
use super::device::{Device, GuestIommu};
use super::machine::{Machine, Timers};
use super::place::Set;
use serde::{Deserialize, Serialize};

/// What a definition was read from.
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
    /// vCPUs at start.
    pub count: Option<Set<u32>>,
    /// vCPUs at most.
    pub maximum: Option<Set<u32>>,
    /// Sockets.
    pub sockets: Option<Set<u32>>,
    /// Dies a socket.
    pub dies: Option<Set<u32>>,
    /// Clusters a die.
    pub clusters: Option<Set<u32>>,
    /// Cores a cluster.
    pub cores: Option<Set<u32>>,
    /// Threads a core.
    pub threads: Option<Set<u32>>,
}

/// A thread for I/O.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoThread {
    /// Its name, as devices refer to it.
    pub id: String,
    /// Host CPUs it may run on, as a list such as `0-3,6`; `None` when the text does not say.
    pub cpus: Option<Set<String>>,
}

/// A VM as its definition says. Nothing in it is a default that the text does not say, except where a field's
/// description tells otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Definition {
    /// What it was read from.
    pub form: Form,
    /// Its name.
    pub name: Option<Set<String>>,
    /// The VMM's program.
    pub program: Option<Set<String>>,
    /// The machine.
    pub machine: Machine,
    /// Its timers.
    pub timers: Timers,
    /// vCPUs.
    pub vcpus: Vcpus,
    /// Memory in MiB.
    pub memory_mib: Option<Set<u64>>,
    /// The CPU that the guest sees.
    pub cpu: GuestCpu,
    /// IOMMUs that the guest sees.
    pub iommus: Vec<GuestIommu>,
    /// Threads for I/O.
    pub iothreads: Vec<IoThread>,
    /// Devices, in the order of the text; those that the machine brings along by default follow.
    pub devices: Vec<Device>,
    /// Where each vCPU may run, as `(vCPU, host CPU list)`.
    pub vcpu_pins: Vec<Set<(u32, String)>>,
    /// Where the VMM's other threads, vhost's among them, may run.
    pub emulator_cpus: Option<Set<String>>,
    /// Properties set for every device of a driver, as driver, property and value (QEMU `-global`), as far as no other
    /// field has them.
    pub globals: Vec<Set<(String, String, String)>>,
    /// What the text says and the model has no field for, in order: an option's name without dashes and its argument,
    /// or an element's path and its text.
    pub other: Vec<Set<(String, String)>>,
    /// Parts of the text that were not understood, each as a sentence; nothing in them is lost when it is written.
    pub doubts: Vec<String>,
}

impl Definition {
    /// A definition that says nothing.
    #[must_use]
    pub fn empty(form: Form) -> Self {
        Self {
            form,
            name: None,
            program: None,
            machine: Machine::default(),
            timers: Timers::default(),
            vcpus: Vcpus::default(),
            memory_mib: None,
            cpu: GuestCpu::default(),
            iommus: Vec::new(),
            iothreads: Vec::new(),
            devices: Vec::new(),
            vcpu_pins: Vec::new(),
            emulator_cpus: None,
            globals: Vec::new(),
            other: Vec::new(),
            doubts: Vec::new(),
        }
    }
}
