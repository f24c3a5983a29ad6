//! What is known of a running daemon.

use super::facts::{DaemonFacts, DeviceFacts, QueueFacts, View, WorkerFacts};
use super::node::QueueName;
use crate::config::{Config, DeviceConfig, PollingConfig};
use crate::daemon::{Daemon, Placed};
use crate::queue::USUAL_WEIGHT;
use crate::session::ServedQueue;
use crate::worker::Polling;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

impl View for Daemon {
    fn daemon(&self) -> DaemonFacts {
        DaemonFacts {
            pid: std::process::id(),
            ticks_per_second: self.loads.ticks_per_second(),
            configuration: self.configuration().text().unwrap_or_default(),
        }
    }

    fn workers(&self) -> Vec<u32> {
        self.pool().workers().iter().map(|worker| worker.number()).collect()
    }

    fn worker(&self, number: u32) -> Option<WorkerFacts> {
        let worker = self.pool().worker(number).ok()?;
        let figures = worker.counters().read();
        let [load, awake] = self.loads.of(number, &figures);
        let mut queues = Vec::new();
        for (device, placed) in self.placed() {
            for (queue, served) in placed.post.served.queues.iter().enumerate() {
                if self.worker_of(served) == Some(number) {
                    queues.push(QueueName { device, queue: queue as u16 });
                }
            }
        }
        Some(WorkerFacts {
            cpus: worker.cpus(),
            thread: worker.thread_id(),
            polling: worker.polling(),
            load,
            awake,
            queues,
            figures,
        })
    }

    fn devices(&self) -> Vec<u32> {
        self.device_numbers()
    }

    fn device(&self, number: u32) -> Option<DeviceFacts> {
        let placed = Self::device(self, number)?;
        let post = &placed.post;
        let queues = post.served.queues.iter().enumerate();
        Some(DeviceFacts {
            number,
            config: placed.config.clone(),
            kind: post.served.device.kind(),
            connected: post.is_connected(),
            closing: post.is_closing(),
            peer: post.peer(),
            size: post.served.device.size(),
            limits: post.served.device.limits().first().map(|limits| limits.map(crate::device::Limit::rate)),
            queues: queues
                .map(|(queue, served)| self.facts(QueueName { device: number, queue: queue as u16 }, served))
                .collect(),
        })
    }

    fn queue_count(&self, device: u32) -> u16 {
        Self::device(self, device).map_or(0, |placed| placed.post.served.queues.len() as u16)
    }

    fn queue(&self, name: QueueName) -> Option<QueueFacts> {
        let placed = Self::device(self, name.device)?;
        let served = placed.post.served.queues.get(usize::from(name.queue))?;
        Some(self.facts(name, served))
    }
}

impl Daemon {
    /// The worker that has a queue now.
    fn worker_of(&self, served: &ServedQueue) -> Option<u32> {
        let key = *served.key.lock().unwrap_or_else(PoisonError::into_inner);
        self.pool().place(key?)
    }

    fn facts(&self, name: QueueName, served: &ServedQueue) -> QueueFacts {
        let place = self.worker_of(served);
        let wanted = *served.worker.lock().unwrap_or_else(PoisonError::into_inner);
        let still_there = |number: &u32| self.pool().worker(*number).is_ok();
        let weight = served.weight.load(Ordering::Relaxed);
        let moves = &served.state.moves;
        QueueFacts {
            name,
            worker: place.or(wanted.filter(still_there)),
            served: place.is_some(),
            broken: served.state.broken.load(Ordering::Relaxed),
            weight: if weight == 0 { USUAL_WEIGHT } else { weight },
            polled: served.polled.load(Ordering::Relaxed),
            figures: served.state.counters.read(),
            delays: served.state.delays.counts(),
            moves: [moves.count.get(), moves.last_pause_ns.get(), moves.longest_pause_ns.get()],
        }
    }

    /// What would make the daemon as it is now.
    #[must_use]
    pub fn configuration(&self) -> Config {
        let mut config = self.config.clone();
        let workers = self.pool().workers();
        // One that may run everywhere need not be said, nor those after the last that may not.
        let everywhere = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let lists = workers.iter().map(|worker| worker.cpus());
        let mut lists: Vec<Vec<usize>> = lists.collect();
        while lists.last().is_some_and(|cpus| cpus.len() >= everywhere) {
            lists.pop();
        }
        config.workers.cpus = lists.iter().map(|cpus| super::pace::list(cpus)).collect();
        config.workers.count = u32::try_from(workers.len()).unwrap_or(u32::MAX).max(1);
        if let Some(polling) = workers.first().map(|worker| worker.polling()) {
            config.workers.polling = match polling {
                Polling::Adaptive { nap_ns } => {
                    config.workers.longest_nap_us = nap_ns / 1000;
                    PollingConfig::Adaptive
                }
                Polling::Always => PollingConfig::Always,
                Polling::Never => PollingConfig::Never,
            };
        }
        config.devices = self.placed().iter().map(|(_, placed)| as_it_is(placed)).collect();
        config
    }
}

fn as_it_is(placed: &Placed) -> DeviceConfig {
    let device = &placed.post.served.device;
    let mut config = placed.config.clone();
    if let Some([requests, bytes]) = device.limits().first() {
        (config.requests_per_second, config.bytes_per_second) = (requests.rate(), bytes.rate());
    }
    if config.path.is_none() && device.size().is_some() {
        config.null_size_bytes = device.size();
    }
    config
}
