//! The monitor's view of a host over one period: I/O on one side, computation on the other.

use serde::{Deserialize, Serialize};

/// A host over one period.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct View {
    /// The CPUs that I/O workers or vCPUs can have.
    pub cores: Vec<Core>,
    /// The I/O workers.
    pub workers: Vec<WorkerView>,
    /// The virtqueues.
    pub queues: Vec<QueueView>,
    /// CPUs' worth of time that vCPUs ran.
    pub computing: f64,
    /// CPUs' worth of time that vCPUs could have run and had to wait for a CPU.
    pub waiting: f64,
}

/// A CPU of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Core {
    /// The kernel's number.
    pub number: u32,
    /// Its NUMA node.
    pub node: u32,
}

/// An I/O worker.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct WorkerView {
    /// Its number.
    pub number: u32,
    /// The core that it has for itself; `None` while it may run anywhere.
    pub core: Option<u32>,
    /// The share of a core that it spent on requests, 0 to 1.
    pub useful: f64,
}

/// A virtqueue.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct QueueView {
    /// Its number.
    pub number: u32,
    /// The worker that serves it.
    pub worker: u32,
    /// The NUMA node of the VM's vCPUs, where they are on one.
    pub node: Option<u32>,
    /// The share of a core that was spent on its requests.
    pub useful: f64,
    /// Requests that were answered, per second.
    pub requests: f64,
    /// Bytes in them, per second.
    pub bytes: f64,
}

/// Requests of at least this many bytes on average are bulk: requests behind them wait for a copy of four pages or more.
const BULK_BYTES: f64 = 16_384.0;

impl QueueView {
    /// Tests whether its requests are large. Small requests of other queues should not wait behind them.
    #[must_use]
    pub fn is_bulk(&self) -> bool {
        self.requests > 0.0 && self.bytes / self.requests >= BULK_BYTES
    }
}

impl View {
    /// The time that all workers spent on requests, in CPUs' worth.
    #[must_use]
    pub fn useful(&self) -> f64 {
        total(self.queues.iter().map(|queue| queue.useful))
    }

    /// Requests per second of all queues.
    #[must_use]
    pub fn requests(&self) -> f64 {
        total(self.queues.iter().map(|queue| queue.requests))
    }
}

/// The sum, which is 0 and not -0 when there are no values.
pub(super) fn total(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(0.0, |total, value| total + value)
}
