//! The host behind the monitor: our own I/O workers, or the threads of the kernel's vhost.

mod computing;
mod pinning;
mod vhost;
mod vhost_vms;
mod workers;

use super::{Action, Layout, WorkerCore};
use crate::control::client::ClientError;
use std::collections::BTreeMap;

pub use super::vm::{Seen, VmSeen};
pub use pinning::Pinning;
pub use vhost::Vhost;
pub use workers::Workers;

/// A source of figures that also carries out decisions.
pub trait Actuator {
    /// Looks at the host. What is counted is of the time since the last look.
    ///
    /// # Errors
    /// [`Trouble`] when there is nothing to decide about.
    fn look(&mut self) -> Result<Seen, Trouble>;

    /// Carries actions out, in order, that lead to this layout. What could not be done for a reason that goes away by
    /// itself (a queue is no more, a thread has ended) is left out and told.
    ///
    /// # Errors
    /// [`Trouble`] when the rest is not worth trying.
    fn act(&mut self, actions: &[Action], wanted: &Layout) -> Result<Vec<String>, Trouble>;

    /// Which workers look again at once instead of waiting for kicks, by place. Empty where that is not the monitor's.
    fn polled(&self) -> BTreeMap<WorkerCore, bool> {
        BTreeMap::new()
    }

    /// Has workers look again at once, or wait. What could not be done.
    ///
    /// # Errors
    /// [`Trouble`] when the rest is not worth trying.
    fn poll(&mut self, _wanted: &BTreeMap<WorkerCore, bool>) -> Result<Vec<String>, Trouble> {
        Ok(Vec::new())
    }

    /// Puts everything back that does not outlast the monitor. What could not be.
    fn give_back(&mut self) -> Vec<String>;

    /// The name of a queue.
    fn name_of(&self, queue: u32) -> String;
}

/// Why there is nothing to decide about. The monitor does nothing then, says so, and looks again later.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Trouble {
    /// The data plane is not there, or ended.
    #[error(transparent)]
    DataPlane(#[from] ClientError),
    /// There are too few CPUs to share.
    #[error(
        "The monitor may use {usable} of the CPUs {online} that are on, and needs two: one for I/O and one for vCPUs{why}"
    )]
    Cores {
        /// The number of CPUs that it may use.
        usable: u64,
        /// Those that are on.
        online: String,
        /// The reason why it may not use the others.
        why: String,
    },
    /// No VM does I/O that could be placed.
    #[error("There is no I/O to place: {0}")]
    NoIo(String),
    /// The host could not be read.
    #[error(transparent)]
    Host(#[from] host::Error),
    /// The host could not be changed.
    #[error(transparent)]
    Change(#[from] knobs::Error),
    /// Something of the host could not be read.
    #[error("Cannot read {0}, without which nothing can be decided")]
    Unreadable(&'static str),
}

impl Trouble {
    /// With its causes.
    #[must_use]
    pub fn told(&self) -> String {
        let mut text = self.to_string();
        let mut source = std::error::Error::source(self);
        while let Some(cause) = source {
            let cause_text = cause.to_string();
            if !text.contains(&cause_text) {
                text = format!("{text} ({cause_text})");
            }
            source = cause.source();
        }
        text
    }
}
