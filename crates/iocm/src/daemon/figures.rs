//! What was counted of a daemon up to now.

use super::Daemon;
use crate::statistics::{BUCKETS, QueueFigures, WorkerFigures};
use serde::Serialize;
use std::sync::PoisonError;

/// Number of the form of [`DaemonFigures`].
pub const FORMAT: u32 = 1;

/// What was counted up to now.
#[derive(Debug, Clone, Serialize)]
pub struct DaemonFigures {
    /// [`FORMAT`].
    pub format: u32,
    /// The workers.
    pub workers: Vec<WorkerReport>,
    /// The devices.
    pub devices: Vec<DeviceReport>,
}

/// A worker's figures.
#[derive(Debug, Clone, Serialize)]
pub struct WorkerReport {
    /// Its number.
    pub worker: u32,
    /// Its thread.
    pub thread: i32,
    /// What was counted.
    #[serde(flatten)]
    pub figures: WorkerFigures,
}

/// A device's figures.
#[derive(Debug, Clone, Serialize)]
pub struct DeviceReport {
    /// What it is called.
    pub name: String,
    /// What it is.
    pub kind: &'static str,
    /// Whether a front-end is there.
    pub connected: bool,
    /// Its queues.
    pub queues: Vec<QueueReport>,
}

/// A queue's figures.
#[derive(Debug, Clone, Serialize)]
pub struct QueueReport {
    /// Which queue of the device.
    pub queue: usize,
    /// Which worker serves it; `None` while none does.
    pub worker: Option<u32>,
    /// What was counted.
    #[serde(flatten)]
    pub figures: QueueFigures,
    /// How many requests waited at least 2^n nanoseconds before they were taken, and less than twice that.
    pub delays: Vec<u64>,
}

impl Daemon {
    /// What was counted up to now.
    #[must_use]
    pub fn figures(&self) -> DaemonFigures {
        let workers = self.pool.workers().into_iter().map(|worker| WorkerReport {
            worker: worker.number(),
            thread: worker.thread_id(),
            figures: worker.counters().read(),
        });
        let devices = self.endpoints().into_iter().map(|endpoint| DeviceReport {
            name: endpoint.config.name.clone(),
            kind: endpoint.backend.device.kind(),
            connected: endpoint.is_connected(),
            queues: endpoint
                .backend
                .queues
                .iter()
                .enumerate()
                .map(|(queue, served)| {
                    let key = *served.key.lock().unwrap_or_else(PoisonError::into_inner);
                    let mut delays = served.state.delays.counts().to_vec();
                    let used =
                        (0..BUCKETS).rev().find(|bucket| delays[*bucket] > 0).map_or(0, |bucket| bucket + 1);
                    delays.truncate(used);
                    QueueReport {
                        queue,
                        worker: key.and_then(|key| self.pool.worker_of(key)),
                        figures: served.state.counters.read(),
                        delays,
                    }
                })
                .collect(),
        });
        DaemonFigures { format: FORMAT, workers: workers.collect(), devices: devices.collect() }
    }
}
