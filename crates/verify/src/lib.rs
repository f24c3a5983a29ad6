//! Checks that interrupt virtualization is active for the running VMs of this host, with the evidence.

mod collect;
mod provoke;
mod result;
mod seen;

pub use collect::{Verify, verify};
pub use provoke::provoke;
pub use result::{
    Changed, HostSide, Missing, Provoked, ReasonCures, StateSample, StateSeen, Verification, VmVerification,
};
