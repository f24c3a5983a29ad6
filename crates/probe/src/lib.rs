//! A micro VM on `/dev/kvm` that measures interrupts and exits in cycles.
//!
//! The guest is one page of assembly ([`measure::Measure`] lists what it times) on 2 to 64 vCPUs. Both arms of
//! the comparison run in one VM: KVM inhibits APICv or AVIC for it and lifts the inhibit
//! ([`MicroVm::switch`]), without reloading a module and without affecting other VMs.
//!
//! ```no_run
//! use probe::{Config, MicroVm, measure::Measure, run::Arm};
//!
//! let mut vm = MicroVm::new(&Config::default())?;
//! for arm in [Arm::Off, Arm::On] {
//!     vm.switch(arm)?;
//!     let evidence = vm.verify_arm()?;
//!     let run = vm.run(Measure::IpiRunning, 100, 1000, None)?;
//!     println!("{arm:?} ({:?}): {:?}", evidence.verdict, run.cycles);
//! }
//! # Ok::<(), probe::Error>(())
//! ```

pub mod clock;
mod config;
mod cpuid;
mod create;
mod delivery;
mod error;
mod evidence;
mod execute;
mod inhibit;
mod layout;
pub mod measure;
mod memory;
mod parked;
mod payload;
pub mod run;
pub mod statistics;
mod threads;
mod vcpu;
mod vm;

pub use config::Config;
pub use error::Error;
pub use evidence::{Agreement, ArmEvidence};
pub use inhibit::{Arms, InhibitMechanism};
pub use vm::MicroVm;

/// The largest number of samples of one run.
pub const MAX_SAMPLES: u32 = layout::MAX_SAMPLES;
/// The largest number of vCPUs.
pub const MAX_VCPUS: u16 = layout::MAX_VCPUS;
