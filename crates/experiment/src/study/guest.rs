//! A guest, whoever started it and however commands reach it.

mod plan;

use std::net::IpAddr;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

pub use plan::*;

use super::workload::Output;

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

    /// Ends the guest, if it was started for the study.
    ///
    /// # Errors
    /// Where it does not end.
    fn stop(&mut self) -> Result<(), GuestError>;
}

/// A script that waits in a guest for its release.
pub trait Armed: Send {
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
