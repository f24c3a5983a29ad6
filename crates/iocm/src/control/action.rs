//! What writing to the tree asks for.

use super::node::QueueName;
use crate::config::{DeviceConfig, PollingConfig, WorkerConfig};

/// What writing to the tree asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// One more worker.
    AddWorker(WorkerConfig),
    /// One worker less; its queues go to the others.
    RemoveWorker(u32),
    /// A worker runs on these CPUs alone, on all when there are none.
    Pin(u32, Vec<usize>),
    /// A worker waits in this way.
    Poll(u32, PollingConfig),
    /// A worker naps for so long at most, microseconds.
    LongestNap(u32, u64),
    /// One more device.
    AddDevice(Box<DeviceConfig>),
    /// One device less, after its requests under way.
    RemoveDevice(u32),
    /// A worker serves all queues of a device.
    MoveDevice(u32, u32),
    /// A device has so many bytes, or as many as its file.
    Resize(u32, Option<u64>),
    /// A device makes so many requests a second at most, 0 for any number.
    LimitRequests(u32, u64),
    /// The same in bytes.
    LimitBytes(u32, u64),
    /// A worker serves these queues.
    MoveQueues(Vec<QueueName>, u32),
    /// A queue has this weight.
    Weigh(QueueName, u32),
    /// A queue is looked at all the time, or left to its kicks when it has nothing.
    PollQueue(QueueName, bool),
}
