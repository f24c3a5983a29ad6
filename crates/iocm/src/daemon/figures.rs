//! The counters of a daemon, as a report.

use super::Daemon;
use crate::statistics::{BUCKETS, QueueFigures, Times, WorkerFigures};
use serde::Serialize;
use std::sync::PoisonError;

/// The format of [`DaemonFigures`].
pub const FORMAT: u32 = 1;

/// The counters of a daemon since its start.
#[derive(Debug, Clone, Serialize)]
pub struct DaemonFigures {
    /// [`FORMAT`].
    pub format: u32,
    /// The workers.
    pub workers: Vec<WorkerReport>,
    /// The devices.
    pub devices: Vec<DeviceReport>,
}

/// The counters of a worker.
#[derive(Debug, Clone, Serialize)]
pub struct WorkerReport {
    /// Its number.
    pub worker: u32,
    /// Its thread.
    pub thread: i32,
    /// Its counters.
    #[serde(flatten)]
    pub figures: WorkerFigures,
    /// Its time, by what it did.
    #[serde(flatten)]
    pub times: Times,
}

/// The counters of a device.
#[derive(Debug, Clone, Serialize)]
pub struct DeviceReport {
    /// Its name.
    pub name: String,
    /// Its type, `block` or `net`.
    pub kind: &'static str,
    /// A front-end is connected.
    pub connected: bool,
    /// Its queues.
    pub queues: Vec<QueueReport>,
}

/// The counters of a queue.
#[derive(Debug, Clone, Serialize)]
pub struct QueueReport {
    /// Its number in the device.
    pub queue: usize,
    /// The worker that serves it; `None` while none does.
    pub worker: Option<u32>,
    /// Its counters.
    #[serde(flatten)]
    pub figures: QueueFigures,
    /// Its time, by what was done meanwhile.
    #[serde(flatten)]
    pub times: Times,
    /// Requests by their delay until they were taken: element n counts those from 2^n up to, not
    /// including, 2^(n+1) nanoseconds.
    pub delays: Vec<u64>,
}

impl Daemon {
    /// The counters since the daemon's start.
    #[must_use]
    pub fn figures(&self) -> DaemonFigures {
        let ticks_per_second = self.loads.ticks_per_second();
        let workers = self.pool.workers().into_iter().map(|worker| {
            let figures = worker.counters().read();
            WorkerReport {
                worker: worker.number(),
                thread: worker.thread_id(),
                figures,
                times: Times::of_worker(&figures, ticks_per_second),
            }
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
                    let figures = served.state.counters.read();
                    QueueReport {
                        queue,
                        worker: key.and_then(|key| self.pool.worker_of(key)),
                        figures,
                        times: Times::of_queue(&figures, ticks_per_second),
                        delays,
                    }
                })
                .collect(),
        });
        DaemonFigures { format: FORMAT, workers: workers.collect(), devices: devices.collect() }
    }
}
