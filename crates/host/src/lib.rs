//! Facts about a host: its kernel, CPU, KVM modules and whether KVM can be used.
//!
//! Every reader takes the directory that stands for `/`, so a tree of plain files can play any machine.
//! Nothing here changes the host.

mod cpuinfo;
mod error;
mod facts;
mod fingerprint;
mod interrupts;
pub mod kvm;
pub mod kvm_statistics;
mod modules;
pub mod posting;
pub mod vms;

pub use cpuinfo::Cpu;
pub use error::Error;
pub use fingerprint::{Difference, Fingerprint};
pub use interrupts::{Availability, InterruptVirtualization};
pub use modules::Parameters;
