//! The target of the monitor: our own I/O workers, or the threads of the kernel's vhost.

mod computing;
mod numbers;
mod pinning;
mod vhost;
mod vhost_vms;
mod workers;

use super::{Action, Core, Layout, WorkerCore};
use host::CpuSet;
use host::scheduling::{nodes, online};
use iocm::control::client::ClientError;
use std::collections::BTreeMap;
use std::path::Path;

pub use super::vm::{Seen, VmSeen};
pub use pinning::Pinning;
pub use vhost::Vhost;
pub use workers::Workers;

/// A source of figures that also carries out decisions.
pub trait Actuator {
    /// Reads the host. Counters are differences from the last call.
    ///
    /// # Errors
    /// [`Trouble`] when there is nothing to decide about.
    fn look(&mut self) -> Result<Seen, Trouble>;

    /// Carries out, in order, the actions that lead to this layout. Skips and reports actions that fail for a transient
    /// reason: a queue was removed, a thread has ended.
    ///
    /// # Errors
    /// [`Trouble`] when the rest is not worth trying.
    fn act(&mut self, actions: &[Action], wanted: &Layout) -> Result<Vec<String>, Trouble>;

    /// The workers whose polling the monitor may set, by core: true if they always poll. Empty if the actuator cannot
    /// set it.
    fn polled(&self) -> BTreeMap<WorkerCore, bool> {
        BTreeMap::new()
    }

    /// Sets workers to poll always, or adaptively. Returns what could not be done.
    ///
    /// # Errors
    /// [`Trouble`] when the rest is not worth trying.
    fn poll(&mut self, _wanted: &BTreeMap<WorkerCore, bool>) -> Result<Vec<String>, Trouble> {
        Ok(Vec::new())
    }

    /// Restores everything that must not outlast the monitor. Returns what could not be restored.
    fn give_back(&mut self) -> Vec<String>;

    /// The name of a queue.
    fn name_of(&self, queue: u32) -> String;
}

/// The online CPUs that `may` selects, and all that are online.
fn cores(root: &Path, may: impl Fn(u32) -> bool) -> Result<(Vec<Core>, CpuSet), Trouble> {
    let online = online(root).ok_or(Trouble::Unreadable("the CPUs that are on"))?;
    let nodes = nodes(root);
    let core = |number| Core { number, node: nodes.get(&number).copied().unwrap_or(0) };
    Ok((online.iter().filter(|&cpu| may(cpu)).map(core).collect(), online))
}

/// The reason why nothing can be decided. The monitor then does nothing, reports it, and tries again in the next period.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Trouble {
    /// The data plane is not running.
    #[error(transparent)]
    DataPlane(#[from] ClientError),
    /// There are too few CPUs to share.
    #[error(
        "The monitor may use {usable} of the CPUs {online} that are on, and needs two: one for I/O and one for vCPUs{why}"
    )]
    Cores {
        /// The number of CPUs that the monitor may use.
        usable: u64,
        /// The online CPUs.
        online: String,
        /// The reason why the monitor may not use the others.
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
    /// Something on the host could not be read.
    #[error("Cannot read {0}, without which nothing can be decided")]
    Unreadable(&'static str),
}

impl Trouble {
    /// The message with its causes.
    #[must_use]
    pub fn told(&self) -> String {
        exits::with_causes_in_brackets(self)
    }
}
