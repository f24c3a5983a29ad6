//! Whether interrupt virtualization is active for the VMs of this host now, with the evidence.

mod collect;
mod provoke;
mod result;
mod seen;

pub use collect::{Verify, verify};
pub use provoke::provoke;
pub use result::{
    Changed, HostSide, Missing, Provoked, ReasonCures, StateSample, StateSeen, Verification, VmVerification,
};
