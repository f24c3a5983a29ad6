//! A guest, whoever started it and however commands reach it.

mod addresses;
mod barrier;
mod connection;
mod facts;
mod files;
mod host;
mod last_words;
mod libvirt;
mod pass_through;
mod plan;
mod qemu;
mod qga;
mod reception;
mod ssh;
mod start;
mod waiting;
mod xen;
mod xen_image;
mod xl;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

pub use barrier::{release_together, skew};
pub use files::GuestFiles;
pub use host::HostGuest;
pub use libvirt::LibvirtGuest;
pub use pass_through::pass_through_obstacle;
pub use plan::*;
pub use qemu::{DataPlanes, QemuGuest, qemu_command_line, qemu_definition};
pub use qga::AgentGuest;
pub use ssh::SshGuest;
pub use start::{Ground, start};
pub use xen::XenGuest;
pub use xen_image::XenImageGuest;

use super::workload::Output;

/// Cuts a guest off for good, so that everything that waits for it comes back.
pub type Cut = Box<dyn FnOnce() + Send>;

/// One running guest.
pub trait Guest: Send {
    /// Its name in results and messages.
    fn name(&self) -> &str;

    /// vCPUs it has.
    fn vcpus(&self) -> u32;

    /// Where the host reaches it, if it has a network.
    fn address(&self) -> Option<IpAddr>;

    /// Where it reaches the host.
    fn host_address(&self) -> Option<IpAddr>;

    /// Its process on this host, where it is one (QEMU): for samples of its threads.
    fn process(&self) -> Option<i32>;

    /// What cuts it off, where it is a process of ours. It may be called from another thread, also after the guest's end.
    fn cut(&self) -> Option<Cut> {
        None
    }

    /// Runs a script with `sh -c` and waits for its end.
    ///
    /// # Errors
    /// Where the guest cannot be reached or `limit` is over. A status other than 0 is no error.
    fn run(&mut self, script: &str, limit: Duration) -> Result<Output, GuestError>;

    /// Brings a script to where one word releases it, for a start at the same moment in all guests.
    ///
    /// # Errors
    /// Where the guest cannot be reached.
    fn arm(&mut self, script: &str, limit: Duration) -> Result<Box<dyn Armed>, GuestError>;

    /// Lines about it, by what they tell: kernel, CPU model, clock source.
    fn facts(&mut self) -> BTreeMap<String, String> {
        facts::ask(|script, limit| self.run(script, limit))
    }

    /// Ends the guest, if it was started for the study.
    ///
    /// # Errors
    /// Where it does not end.
    fn stop(&mut self) -> Result<(), GuestError>;
}

/// A script that waits in a guest for its release.
///
/// Dropping it ends the script, with what it started.
pub trait Armed: Send {
    /// How long before its start it must be told the time of it; zero where the release itself starts it.
    fn lead(&self) -> Duration {
        Duration::ZERO
    }

    /// Tells it to start at a time of this host's CLOCK_MONOTONIC, if it has a [`Armed::lead`].
    ///
    /// # Errors
    /// Where the guest cannot be reached.
    fn agree(&mut self, at_ns: u64) -> Result<(), GuestError> {
        let _ = at_ns;
        Ok(())
    }

    /// Releases it.
    ///
    /// # Errors
    /// Where the guest cannot be reached.
    fn release(&mut self) -> Result<(), GuestError>;

    /// Waits for its end, and ends it (SIGTERM, after 5 s SIGKILL) once `stop` is set: a server after the measured
    /// step, everything after a signal. One that was never released is ended then without having run.
    ///
    /// # Errors
    /// Where the guest is gone or the limit is over.
    fn finish(self: Box<Self>, stop: &AtomicBool) -> Result<Finished, GuestError>;
}

/// What a released script left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// What it printed.
    pub output: Output,
    /// When it began, by this host's CLOCK_MONOTONIC in nanoseconds: the time at which its first word came back.
    pub began_ns: u64,
    /// When its end was known here, by the same clock.
    pub ended_ns: u64,
}

/// What is wrong with a guest.
#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    /// It did not start.
    #[error("The guest {name} did not start: {why}")]
    Start {
        /// The guest.
        name: String,
        /// What was seen, and what to do next.
        why: String,
    },
    /// It cannot be reached any more, or never could.
    #[error("The guest {name} does not answer: {why}")]
    Unreachable {
        /// The guest.
        name: String,
        /// What was tried.
        why: String,
    },
    /// A script took longer than its limit.
    #[error("In the guest {name} a step was still running after {} s", limit.as_secs())]
    Limit {
        /// The guest.
        name: String,
        /// The limit.
        limit: Duration,
    },
}
