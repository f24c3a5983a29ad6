//! Activation of interrupt virtualization for a VM: evidence and verdict.

mod devices;
mod ipi;
mod judge;
mod signs;
mod state;

pub use devices::{DeviceDelivery, DeviceEvidence, DeviceVerdict, PostingObstacle};
pub use ipi::{IpiEvidence, IpiVirtualization, NoIpiVirtualization};
pub use judge::{Activation, Doubt, Evidence, InForce, Mode, Status, judge};
pub use signs::ExitSigns;
pub use state::{Controls, InhibitSeen, Irqchip, VcpuState, VmState};
