//! A guest, independent of how it was started and how commands reach it.

mod addresses;
mod barrier;
mod connection;
mod facts;
mod files;
mod host;
mod kernel;
mod last_words;
mod libvirt;
mod manager;
mod own_program;
mod pass_through;
mod patience;
mod plan;
mod process;
mod qemu;
mod qga;
mod reception;
pub mod shell;
mod span;
mod ssh;
mod start;
#[cfg(test)]
mod testing;
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
pub use own_program::own_program;
pub use pass_through::pass_through_obstacle;
pub use patience::Patience;
pub use plan::*;
pub use qemu::{DataPlanes, QemuGuest, qemu_command_line, qemu_definition};
pub use qga::{AgentGuest, Transport};
pub use span::{Span, UNITS_OF_TIME};
pub use ssh::SshGuest;
pub use start::{Ground, start};
pub use xen::XenGuest;
pub use xen_image::XenImageGuest;

/// Kills a guest, so that every call that waits for it returns.
pub type Cut = Box<dyn FnOnce() + Send>;

/// One running guest.
pub trait Guest: Send {
    /// Its name in results and messages.
    fn name(&self) -> &str;

    /// The number of its vCPUs.
    fn vcpus(&self) -> u32;

    /// The address at which the host reaches it, if it has a network.
    fn address(&self) -> Option<IpAddr>;

    /// The address at which it reaches the host.
    fn host_address(&self) -> Option<IpAddr>;

    /// The process on this host whose threads are sampled: QEMU. A Xen domain has none, as its vCPUs are not threads of
    /// dom0.
    fn process(&self) -> Option<i32> {
        None
    }

    /// A function that kills the guest, if it was started from the guest image. It may be called from another thread,
    /// also after the guest has ended.
    fn cut(&self) -> Option<Cut> {
        None
    }

    /// Runs a script with `sh -c` and waits for its end.
    ///
    /// # Errors
    /// If the guest cannot be reached or `limit` has expired. A status other than 0 is not an error.
    fn run(&mut self, script: &str, limit: Duration) -> Result<Output, GuestError> {
        let mut armed = self.arm(script, limit)?;
        armed.release()?;
        armed.finish(&AtomicBool::new(false)).map(|finished| finished.output)
    }

    /// Prepares a script that waits for its release, for a simultaneous start in all guests.
    ///
    /// # Errors
    /// If the guest cannot be reached.
    fn arm(&mut self, script: &str, limit: Duration) -> Result<Box<dyn Armed>, GuestError>;

    /// Facts about it by name: kernel, CPU model, clock source.
    fn facts(&mut self) -> BTreeMap<String, String> {
        facts::ask(|script, limit| self.run(script, limit))
    }

    /// Shuts the guest down, if it was started for the study.
    ///
    /// # Errors
    /// If it does not end.
    fn stop(&mut self) -> Result<(), GuestError>;
}

/// A script that waits in a guest for its release.
///
/// Dropping it ends the script and the processes that it started.
pub trait Armed: Send {
    /// Prepares to tell the script its start time. Returns how long before its start the script must be told, or zero if
    /// [`Armed::release`] itself starts it.
    ///
    /// # Errors
    /// If the guest cannot be reached.
    fn prepare(&mut self) -> Result<Duration, GuestError> {
        Ok(Duration::ZERO)
    }

    /// Tells the script to start at a time of this host's CLOCK_MONOTONIC, if [`Armed::prepare`] returned more than zero.
    /// This takes less than a fourth of the time that [`Armed::prepare`] took.
    ///
    /// # Errors
    /// If the guest cannot be reached.
    fn agree(&mut self, at_ns: u64) -> Result<(), GuestError> {
        let _ = at_ns;
        Ok(())
    }

    /// Releases the script.
    ///
    /// # Errors
    /// If the guest cannot be reached.
    fn release(&mut self) -> Result<(), GuestError>;

    /// Waits for the script's end. Once `stop` is set, ends it (SIGTERM, after 5 s SIGKILL): a server after the
    /// measured step, every script after a signal to this program. A script that was not released is then ended without
    /// having run.
    ///
    /// # Errors
    /// If the guest is gone or the limit has expired.
    fn finish(self: Box<Self>, stop: &AtomicBool) -> Result<Finished, GuestError>;
}

/// The output of a script.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Output {
    /// Its exit status; 128 plus the signal's number if a signal ended it.
    pub status: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

/// The result of a released script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// Its output.
    pub output: Output,
    /// Its start, in nanoseconds of this host's CLOCK_MONOTONIC: when its first line arrived, or by its own report.
    pub began_ns: u64,
    /// Its end, by the same clock: when this host learned of it, or by its own report.
    pub ended_ns: u64,
}

/// The error of a guest.
#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    /// It did not start.
    #[error("The guest {name} did not start: {why}")]
    Start {
        /// The guest.
        name: String,
        /// The reason, and the next step.
        why: String,
    },
    /// It cannot be reached.
    #[error("The guest {name} does not answer: {why}")]
    Unreachable {
        /// The guest.
        name: String,
        /// The operation that failed, and the reason.
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
