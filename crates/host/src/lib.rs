//! Facts about a host: its kernel, CPU and KVM modules, and the availability of KVM.
//!
//! Every reader takes the directory that stands for `/`, so a tree of plain files can represent any machine.
//! Nothing here changes the host.

mod below;
mod control_group;
mod cpu_set;
mod cpuinfo;
mod error;
mod fact;
mod facts;
pub mod fake;
mod fingerprint;
mod hypervisor;
pub mod inspection;
mod interrupt_lines;
mod interrupt_virtualization;
pub mod kvm;
pub mod kvm_statistics;
mod lack;
mod modules;
pub mod pci;
mod pci_function;
mod root;
pub mod scheduling;
pub mod snapshot;
pub mod taps;
mod thread_id;
pub mod vms;
mod xen_control;
mod xen_devices;
mod xen_domains;

pub use below::Below;
pub use control_group::{ControlGroup, throttled_ns};
pub use cpu_set::CpuSet;
pub use cpuinfo::Cpu;
pub use error::Error;
pub use fact::{Absence, AbsenceKind, Evidence, Fact};
pub use fingerprint::{Difference, Fingerprint, between};
pub use hypervisor::Hypervisor;
pub use inspection::{CONTAINER_MARKS, Inspection, posting};
pub use interrupt_lines::{InterruptLine, counts_of_both, interrupt_lines};
pub use interrupt_virtualization::{Availability, InterruptVirtualization};
pub use lack::Lack;
pub use modules::{Parameters, parameter_path, switch};
pub use pci_function::{FunctionRole, PciFunction, whole_address};
pub use root::{Ownership, Root};
pub use xen_control::XenControl;
pub use xen_devices::XenDevice;
