//! The facts about a running VM from other sources than files.

use conclusions::activation::{Activation, DeviceVerdict, IpiVirtualization};
use exits::InhibitReason;

/// A running VM, with a judgement of its state in KVM.
///
/// Plain data: other crates read the kernel's memory.
#[derive(Debug, Clone, PartialEq)]
pub struct VmSide {
    /// Its process.
    pub pid: i32,
    /// The state of interrupt virtualization, and its inhibit reasons.
    pub activation: Activation,
    /// The state of IPI virtualization.
    pub ipi_virtualization: IpiVirtualization,
    /// The delivery of its devices' interrupts.
    pub devices: Vec<DeviceVerdict>,
    /// KVM's mask of inhibit reasons; `None` if it could not be read.
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
