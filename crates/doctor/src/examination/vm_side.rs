//! The facts about a running VM from other sources than files.

use conclusions::activation::{Activation, DeviceVerdict, IpiVirtualization};
use exits::InhibitReason;

/// One running VM: KVM's own state of it, judged.
///
/// It is plain data: reading the kernel's memory is done elsewhere.
#[derive(Debug, Clone, PartialEq)]
pub struct VmSide {
    /// Its process.
    pub pid: i32,
    /// The state of interrupt virtualization, and its inhibit reasons.
    pub activation: Activation,
    /// IPIs between its vCPUs take no exit.
    pub ipi_virtualization: IpiVirtualization,
    /// The delivery of its devices' interrupts.
    pub devices: Vec<DeviceVerdict>,
    /// The mask of inhibit reasons, as KVM keeps it; `None` where it could not be read.
    pub inhibits: Option<exits::Inhibits>,
    /// Evidence that could not be collected, each as a sentence without its full stop.
    pub missing: Vec<String>,
}

impl VmSide {
    /// The reasons in force that have a name.
    pub fn reasons(&self) -> impl Iterator<Item = InhibitReason> {
        self.activation.reasons.iter().filter_map(|one| one.reason)
    }
}
