//! The daemon as the control tree sees it: its readable state, and the operations on it.

use super::error::ControlError;
use super::object::{Object, QueueName};
use crate::config::{DeviceConfig, PollingConfig, WorkerConfig};
use crate::endpoint::Peer;
use crate::statistics::{BUCKETS, QueueFigures, Times, WorkerFigures};
use crate::worker::Polling;
use host::CpuSet;

/// A source of facts: a daemon, or a fake one in a test.
pub trait FactSource {
    /// Reads the facts of the daemon itself.
    fn daemon(&self) -> DaemonFacts;

    /// The numbers of the workers, ascending.
    fn workers(&self) -> Vec<u32>;

    /// Reads the facts of a worker.
    fn worker(&self, number: u32) -> Option<WorkerFacts>;

    /// The numbers of the devices, ascending.
    fn devices(&self) -> Vec<u32>;

    /// Reads the facts of a device.
    fn device(&self, number: u32) -> Option<DeviceFacts>;

    /// The number of queues of a device; 0 when there is no such device.
    fn queue_count(&self, device: u32) -> u16;

    /// Reads the facts of a queue.
    fn queue(&self, name: QueueName) -> Option<QueueFacts>;
}

/// A source that also carries out operations.
pub trait Control: FactSource {
    /// Carries out an operation. Returns the name of the object that it made, if any.
    ///
    /// # Errors
    ///
    /// [`ControlError`]; nothing has changed then.
    fn apply(&self, operation: Operation) -> Result<Option<String>, ControlError>;
}

/// The readable state of the daemon itself.
#[derive(Debug, Clone, PartialEq)]
pub struct DaemonFacts {
    /// Its process id.
    pub pid: u32,
    /// Ticks of the TSC in a second.
    pub ticks_per_second: u64,
    /// The sums of the counters of the workers that were removed.
    pub removed: WorkerFigures,
    /// The devices of its file that are not served, each with the reason.
    pub refused: Vec<String>,
    /// The configuration that would start it in its present state.
    pub configuration: String,
}

/// The readable state of a worker.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkerFacts {
    /// Host CPUs that it may run on.
    pub cpus: CpuSet,
    /// The ID of its thread.
    pub thread: i32,
    /// The `nice` value of its thread; `None` if the thread has ended.
    pub nice: Option<i32>,
    /// Polling when it finds nothing to do.
    pub polling: Polling,
    /// The share of time that it spent on requests in the last second or more, percent.
    pub load: f64,
    /// The share of that time that it was awake, percent.
    pub awake: f64,
    /// The queues that it serves.
    pub queues: Vec<QueueName>,
    /// Its counters.
    pub figures: WorkerFigures,
    /// Its time, by what it did.
    pub times: Times,
}

/// The readable state of a device.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceFacts {
    /// Its number.
    pub number: u32,
    /// The configuration that it was made from.
    pub config: DeviceConfig,
    /// Its type, `block` or `net`.
    pub kind: &'static str,
    /// A front-end is connected.
    pub connected: bool,
    /// It is being removed.
    pub closing: bool,
    /// The process of the connected front-end.
    pub peer: Option<Peer>,
    /// Its size, bytes.
    pub size: Option<u64>,
    /// Limits of requests and of bytes a second, 0 for none.
    pub limits: Option<[u64; 2]>,
    /// Its queues.
    pub queues: Vec<QueueFacts>,
}

/// The readable state of a queue.
#[derive(Debug, Clone, PartialEq)]
pub struct QueueFacts {
    /// Its name.
    pub name: QueueName,
    /// The worker that serves it, or will when a front-end connects; `None` if it has not been chosen yet.
    pub worker: Option<u32>,
    /// A worker serves it.
    pub served: bool,
    /// The driver violated the ring's format, so the ring is no longer read.
    pub broken: bool,
    /// Its weight.
    pub weight: u32,
    /// It is always polled, and never waits for kicks.
    pub polled: bool,
    /// Its counters.
    pub figures: QueueFigures,
    /// Its time, by what was done meanwhile.
    pub times: Times,
    /// Requests by their delay until they were taken: element n counts those from 2^n up to, not
    /// including, 2^(n+1) nanoseconds.
    pub delays: [u64; BUCKETS],
    /// Moves: their number, the last pause and the longest, nanoseconds.
    pub moves: [u64; 3],
}

impl QueueFacts {
    /// The delay that this many thousandths of the requests did not exceed, nanoseconds: the upper end of a bucket. 0
    /// when nothing was counted.
    #[must_use]
    pub fn delay(&self, of_thousand: u64) -> u64 {
        let all: u128 = self.delays.iter().map(|count| u128::from(*count)).sum();
        let wanted = (all * u128::from(of_thousand)).div_ceil(1000);
        let mut seen = 0;
        for (bucket, count) in self.delays.iter().enumerate() {
            seen += u128::from(*count);
            if seen > 0 && seen >= wanted {
                return 1 << (bucket + 1);
            }
        }
        0
    }
}

/// A change of the daemon that a write to the tree requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// Adds a worker.
    AddWorker(WorkerConfig),
    /// Removes a worker; its queues go to the others.
    RemoveWorker(u32),
    /// Restricts a worker to these CPUs; an empty list allows all.
    Pin(u32, CpuSet),
    /// Sets the polling mode of a worker.
    Poll(u32, PollingConfig),
    /// Sets the longest nap of a worker, microseconds.
    LongestNap(u32, u64),
    /// Adds a device.
    AddDevice(Box<DeviceConfig>),
    /// Removes a device after its requests in flight.
    RemoveDevice(u32),
    /// Moves all queues of a device to a worker.
    MoveDevice(u32, u32),
    /// Resizes a device to this many bytes, or to the size of its file.
    Resize(u32, Option<u64>),
    /// Limits a device's requests per second; 0 for no limit.
    LimitRequests(u32, u64),
    /// Limits a device's bytes per second; 0 for no limit.
    LimitBytes(u32, u64),
    /// Moves queues to a worker.
    MoveQueues(Vec<QueueName>, u32),
    /// Sets the weight of a queue.
    Weigh(QueueName, u32),
    /// Always polls a queue, or leaves it to kicks while it is empty.
    PollQueue(QueueName, bool),
}

impl Object {
    /// Tests whether the object exists.
    pub fn exists(self, source: &impl FactSource) -> bool {
        match self {
            Self::Worker(number) => source.workers().contains(&number),
            Self::Device(number) => source.devices().contains(&number),
            Self::Queue(name) => name.queue < source.queue_count(name.device),
            Self::Root | Self::Workers | Self::Devices | Self::Queues => true,
        }
    }

    /// The objects in a collection, in order.
    pub fn children(self, source: &impl FactSource) -> Vec<Self> {
        match self {
            Self::Root => vec![Self::Workers, Self::Devices, Self::Queues],
            Self::Workers => source.workers().into_iter().map(Self::Worker).collect(),
            Self::Devices => source.devices().into_iter().map(Self::Device).collect(),
            Self::Queues => {
                let of =
                    |device| (0..source.queue_count(device)).map(move |queue| QueueName { device, queue });
                source.devices().into_iter().flat_map(of).map(Self::Queue).collect()
            }
            Self::Worker(_) | Self::Device(_) | Self::Queue(_) => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::queue_facts;

    #[test]
    fn percentiles_are_ends_of_buckets() {
        let mut queue = queue_facts(QueueName { device: 0, queue: 0 });
        assert_eq!(queue.delay(500), 0);
        (queue.delays[10], queue.delays[20]) = (990, 10);
        assert_eq!([500, 990, 991, 1000].map(|of| queue.delay(of)), [2048, 2048, 2 << 20, 2 << 20]);
    }
}
