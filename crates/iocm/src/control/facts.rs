//! The daemon as the control tree sees it: what can be read of it, and what it can be asked to do.

use super::error::ControlError;
use super::object::{Object, QueueName};
use crate::config::{DeviceConfig, PollingConfig, WorkerConfig};
use crate::endpoint::Peer;
use crate::statistics::{BUCKETS, QueueFigures, WorkerFigures};
use crate::worker::Polling;

/// Who answers for what is read: a daemon, or a made-up one.
pub trait FactSource {
    /// Of the daemon itself.
    fn daemon(&self) -> DaemonFacts;

    /// The numbers of the workers, ascending.
    fn workers(&self) -> Vec<u32>;

    /// Of a worker.
    fn worker(&self, number: u32) -> Option<WorkerFacts>;

    /// The numbers of the devices, ascending.
    fn devices(&self) -> Vec<u32>;

    /// Of a device.
    fn device(&self, number: u32) -> Option<DeviceFacts>;

    /// How many queues a device has; 0 when there is no such device.
    fn queue_count(&self, device: u32) -> u16;

    /// Of a queue.
    fn queue(&self, name: QueueName) -> Option<QueueFacts>;
}

/// Who also carries out what writing asks for.
pub trait Control: FactSource {
    /// Does it. The name of what was made, if something was.
    ///
    /// # Errors
    /// [`ControlError`]; nothing has changed then.
    fn apply(&self, operation: Operation) -> Result<Option<String>, ControlError>;
}

/// What can be known of a daemon itself.
#[derive(Debug, Clone, PartialEq)]
pub struct DaemonFacts {
    /// Its process.
    pub pid: u32,
    /// Ticks of the TSC in a second.
    pub ticks_per_second: u64,
    /// The file that would make it as it is now.
    pub configuration: String,
}

/// What can be known of a worker.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkerFacts {
    /// Host CPUs that it may run on, ascending.
    pub cpus: Vec<usize>,
    /// Its thread.
    pub thread: i32,
    /// What it does when there is nothing to do.
    pub polling: Polling,
    /// Its share of time on requests since the last look but one, percent.
    pub load: f64,
    /// Its share of time awake since then, percent.
    pub awake: f64,
    /// What it serves.
    pub queues: Vec<QueueName>,
    /// What was counted.
    pub figures: WorkerFigures,
}

/// What can be known of a device.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceFacts {
    /// Its number.
    pub number: u32,
    /// What it was made from.
    pub config: DeviceConfig,
    /// What it is.
    pub kind: &'static str,
    /// Whether a front-end is connected.
    pub connected: bool,
    /// Whether it is being removed.
    pub closing: bool,
    /// Who is connected.
    pub peer: Option<Peer>,
    /// Its size, bytes.
    pub size: Option<u64>,
    /// Limits of requests and of bytes a second, 0 for none.
    pub limits: Option<[u64; 2]>,
    /// Its queues.
    pub queues: Vec<QueueFacts>,
}

/// What can be known of a queue.
#[derive(Debug, Clone, PartialEq)]
pub struct QueueFacts {
    /// What it is called.
    pub name: QueueName,
    /// The worker that serves it, or will when there is a front-end; `None` while that is open.
    pub worker: Option<u32>,
    /// Whether it is served.
    pub served: bool,
    /// Whether its ring broke the rules, so that it is no longer looked at.
    pub broken: bool,
    /// Its weight.
    pub weight: u32,
    /// Whether it is never left to its kicks.
    pub polled: bool,
    /// What was counted.
    pub figures: QueueFigures,
    /// How many requests waited at least 2^n nanoseconds before they were taken, and less than twice that.
    pub delays: [u64; BUCKETS],
    /// Moves: how many, the last pause and the longest, nanoseconds.
    pub moves: [u64; 3],
}

impl QueueFacts {
    /// A time that so many of a thousand delays did not exceed, nanoseconds: the end of a bucket. 0 when nothing was
    /// counted.
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

/// What writing to the tree asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
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

impl Object {
    /// Whether it is there.
    pub fn exists(self, source: &impl FactSource) -> bool {
        match self {
            Self::Worker(number) => source.workers().contains(&number),
            Self::Device(number) => source.devices().contains(&number),
            Self::Queue(name) => name.queue < source.queue_count(name.device),
            Self::Root | Self::Workers | Self::Devices | Self::Queues => true,
        }
    }

    /// What is in it, in order.
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
