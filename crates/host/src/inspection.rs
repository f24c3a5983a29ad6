//! All facts by which a host is judged: its processors, IOMMUs, kernel, KVM, Xen, and running VMs.

mod arguments;
mod config;
mod container;
mod interrupt;
mod iommu;
mod kernel;
mod kernel_types;
mod kvm_device;
mod log;
mod modprobe;
mod place;
pub mod posting;
mod processor;
mod running;
mod topology;
mod vmx;
mod xen;

use crate::{Error, Fingerprint, Root};

pub use crate::root::LogLine;
pub use crate::xen_control::XenInfo;
pub use crate::xen_domains::XenDomain;
pub use arguments::{Argument, Arguments};
pub use config::{KernelConfig, OptionState};
pub use container::{CONTAINER_MARKS, Container};
pub use interrupt::{DeviceKind, Interrupt, Interrupts};
pub use iommu::{AcpiTables, AmdFeatures, IntelCapabilities, IommuRegisters, IommuUnit, Iommus};
pub use kernel::{BuiltIn, Distribution, Kernel};
pub use kernel_types::{KernelTypes, TypeQuestion};
pub use kvm_device::KvmDevice;
pub use log::KernelLog;
pub use modprobe::{ModprobeFile, ModprobeLine, ModprobeWord, modprobe_lines};
pub use place::{Occupant, Placement};
pub use processor::{CpuidLeaf, FeatureControl, Processor, SvmFeatures, VmCr};
pub use running::{LibvirtDomain, Role, Running, RunningVm, ThreadPlace};
pub use topology::{Idle, Node, Topology};
pub use vmx::VmxFeatures;
pub(crate) use xen::addresses as xen_addresses;
pub use xen::{Xen, XenFrequency, XenLog, XenPool, XenVcpu, xen_frequencies};

/// A host, inspected once.
///
/// Reading changes nothing and takes a few milliseconds; a fact that could not be read has the reason. Two
/// inspections are equal if everything read is equal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inspection {
    /// True if the host is the machine on which this program runs.
    pub live: bool,
    /// The container that this program runs in.
    pub container: Option<Container>,
    /// The facts by which measurements are compared: release, first processor, modules with their parameters,
    /// command line, lockdown.
    pub fingerprint: Fingerprint,
    /// The processors and their features for hypervisors.
    pub processor: Processor,
    /// The topology of processors and nodes, and idle states.
    pub topology: Topology,
    /// The IOMMUs.
    pub iommus: Iommus,
    /// The kernel and its configuration.
    pub kernel: Kernel,
    /// The lines of the kernel's log that concern virtualization and interrupts.
    pub log: KernelLog,
    /// `/dev/kvm`.
    pub kvm: KvmDevice,
    /// Interrupts of devices, and the processors that handle them.
    pub interrupts: Interrupts,
    /// The running VMs.
    pub running: Running,
    /// The use of processors that have threads of VMs, or interrupts bound to them.
    pub placements: Vec<Placement>,
    /// Xen, if it is below.
    pub xen: Option<Xen>,
}

impl Inspection {
    /// Inspects a host.
    ///
    /// # Errors
    /// [`Error::Root`] if the root is not a directory. Facts that cannot be read are absent, with the cause.
    pub fn read(root: &Root) -> Result<Self, Error> {
        if !root.is_there() {
            return Err(Error::Root { path: root.place("") });
        }
        // With hundreds of processors these two files are long, so each is read once.
        let cpuinfo = root.line("/proc/cpuinfo", "a list of processors");
        let fingerprint = Fingerprint::with(root, cpuinfo.get().map(String::as_str))?;
        let processor = Processor::read(root, &cpuinfo);
        let interrupts = Interrupts::read(root);
        let online = processor.online.get();
        let topology = Topology::read(root, online);
        let running = Running::read(root);
        let placements = Placement::of(
            running.vms.get().map_or(&[], Vec::as_slice),
            interrupts.devices.get().map_or(&[], Vec::as_slice),
            &topology,
            online,
        );
        Ok(Self {
            live: root.is_live(),
            container: Container::read(root),
            kernel: Kernel::read(root),
            iommus: Iommus::read(root, &interrupts),
            log: KernelLog::read(root),
            kvm: KvmDevice::read(root, processor.first.get()),
            xen: Xen::read(root, &processor.hypervisor),
            fingerprint,
            processor,
            topology,
            interrupts,
            running,
            placements,
        })
    }
}
