//! A mock daemon.

use crate::config::DeviceConfig;
use crate::control::{
    Control, ControlError, DaemonFacts, DeviceFacts, FactSource, Operation, QueueFacts, QueueName,
    WorkerFacts,
};
use crate::endpoint::Peer;
use crate::statistics::{BUCKETS, QueueFigures, Times, WorkerFigures};
use crate::worker::Polling;
use std::cell::RefCell;

/// The facts of a queue with a few counts.
#[must_use]
pub fn queue_facts(name: QueueName) -> QueueFacts {
    QueueFacts {
        name,
        worker: Some(0),
        served: true,
        broken: false,
        weight: 100,
        polled: false,
        figures: QueueFigures { requests: 10, bytes: 4096, ..QueueFigures::default() },
        times: Times { worked_ns: 1, polled_ns: 2, napped_ns: 3, slept_ns: 4 },
        delays: [0; BUCKETS],
        moves: [2, 3000, 5000],
    }
}

/// A fake daemon that only records operations. It has workers 0 and 3, and device 1 with two queues.
#[derive(Debug, Default)]
pub struct MadeUpDaemon {
    asked: RefCell<Vec<Operation>>,
}

impl MadeUpDaemon {
    /// The operations so far, in order.
    #[must_use]
    pub fn asked(&self) -> Vec<Operation> {
        self.asked.borrow().clone()
    }
}

impl FactSource for MadeUpDaemon {
    fn daemon(&self) -> DaemonFacts {
        DaemonFacts {
            pid: 7,
            ticks_per_second: 2_000_000_000,
            removed: WorkerFigures { sleeps: 3, ..WorkerFigures::default() },
            refused: vec!["web: its file is gone".to_owned()],
            configuration: "[workers]\n".to_owned(),
        }
    }

    fn workers(&self) -> Vec<u32> {
        vec![0, 3]
    }

    fn worker(&self, number: u32) -> Option<WorkerFacts> {
        self.workers().contains(&number).then(|| WorkerFacts {
            cpus: [0, 1, 2, 5].into_iter().collect(),
            thread: 42,
            nice: Some(-3),
            polling: Polling::default(),
            load: 12.34,
            awake: 50.0,
            queues: vec![QueueName { device: 1, queue: 0 }],
            figures: WorkerFigures { sweeps: 9, ..WorkerFigures::default() },
            times: Times { worked_ns: 5, polled_ns: 6, napped_ns: 7, slept_ns: 8 },
        })
    }

    fn devices(&self) -> Vec<u32> {
        vec![1]
    }

    fn device(&self, number: u32) -> Option<DeviceFacts> {
        let text = "{ name = \"web\", type = \"block\", socket = \"/run/web\", queues = 2, path = \"/x\" }";
        let config = DeviceConfig::parse(text).ok()?;
        (number == 1).then_some(DeviceFacts {
            number,
            config,
            kind: "block",
            connected: true,
            closing: false,
            peer: Some(Peer { pid: 99, vm: "guest".to_owned() }),
            size: Some(1 << 20),
            limits: Some([5, 0]),
            queues: (0..2).map(|queue| queue_facts(QueueName { device: 1, queue })).collect(),
        })
    }

    fn queue_count(&self, device: u32) -> u16 {
        if device == 1 { 2 } else { 0 }
    }

    fn queue(&self, name: QueueName) -> Option<QueueFacts> {
        (name.queue < self.queue_count(name.device)).then(|| queue_facts(name))
    }
}

impl Control for MadeUpDaemon {
    fn apply(&self, operation: Operation) -> Result<Option<String>, ControlError> {
        self.asked.borrow_mut().push(operation);
        Ok(None)
    }
}
