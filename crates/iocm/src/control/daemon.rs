//! The daemon behind the control tree: its facts, its operations, and its errors.

use super::error::{ControlError, Errno};
use super::facts::{Control, DaemonFacts, DeviceFacts, FactSource, Operation, QueueFacts, WorkerFacts};
use super::object::{Object, QueueName};
use crate::config::{Config, DeviceConfig, PollingConfig};
use crate::daemon::{Daemon, DaemonError};
use crate::device::block::StorageError;
use crate::device::net::NetError;
use crate::device::{Limit, ResizeError};
use crate::endpoint::{Endpoint, EndpointError};
use crate::pool::PoolError;
use crate::queue::{DEFAULT_WEIGHT, Queue};
use crate::session::BackendQueue;
use crate::statistics::Times;
use crate::worker::{Polling, Worker, WorkerError};
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

impl FactSource for Daemon {
    fn daemon(&self) -> DaemonFacts {
        DaemonFacts {
            pid: std::process::id(),
            ticks_per_second: self.loads.ticks_per_second(),
            removed: self.pool().removed(),
            refused: self.refused().iter().map(|one| format!("{}: {}", one.config.name, one.why)).collect(),
            configuration: self.configuration_text(),
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
        for (device, endpoint) in self.numbered_endpoints() {
            for (index, queue) in endpoint.backend.queues.iter().enumerate() {
                if self.worker_of(queue) == Some(number) {
                    queues.push(QueueName { device, queue: index as u16 });
                }
            }
        }
        Some(WorkerFacts {
            cpus: worker.cpus(),
            thread: worker.thread_id(),
            nice: worker.nice(),
            polling: worker.polling(),
            load,
            awake,
            queues,
            figures,
            times: Times::of_worker(&figures, self.loads.ticks_per_second()),
        })
    }

    fn devices(&self) -> Vec<u32> {
        self.device_numbers()
    }

    fn device(&self, number: u32) -> Option<DeviceFacts> {
        let endpoint = self.endpoint(number)?;
        let queues = endpoint.backend.queues.iter().enumerate();
        Some(DeviceFacts {
            number,
            config: endpoint.config.clone(),
            kind: endpoint.backend.device.kind(),
            connected: endpoint.is_connected(),
            closing: endpoint.is_closing(),
            peer: endpoint.peer(),
            size: endpoint.backend.device.size(),
            limits: endpoint.backend.device.limits().first().map(|limits| limits.map(Limit::rate)),
            queues: queues
                .map(|(index, queue)| self.facts(QueueName { device: number, queue: index as u16 }, queue))
                .collect(),
        })
    }

    fn queue_count(&self, device: u32) -> u16 {
        self.endpoint(device).map_or(0, |endpoint| endpoint.backend.queues.len() as u16)
    }

    fn queue(&self, name: QueueName) -> Option<QueueFacts> {
        let endpoint = self.endpoint(name.device)?;
        let queue = endpoint.backend.queues.get(usize::from(name.queue))?;
        Some(self.facts(name, queue))
    }
}

impl Daemon {
    /// The worker that serves a queue now.
    fn worker_of(&self, queue: &BackendQueue) -> Option<u32> {
        let key = *queue.key.lock().unwrap_or_else(PoisonError::into_inner);
        self.pool().worker_of(key?)
    }

    fn facts(&self, name: QueueName, queue: &BackendQueue) -> QueueFacts {
        let now = self.worker_of(queue);
        let wanted = *queue.worker.lock().unwrap_or_else(PoisonError::into_inner);
        let still_there = |number: &u32| self.pool().worker(*number).is_ok();
        let weight = queue.weight.load(Ordering::Relaxed);
        let moves = &queue.state.moves;
        let figures = queue.state.counters.read();
        QueueFacts {
            name,
            worker: now.or(wanted.filter(still_there)),
            served: now.is_some(),
            broken: queue.state.broken.load(Ordering::Relaxed),
            weight: if weight == 0 { DEFAULT_WEIGHT } else { weight },
            polled: queue.polled.load(Ordering::Relaxed),
            figures,
            times: Times::of_queue(&figures, self.loads.ticks_per_second()),
            delays: queue.state.delays.counts(),
            moves: [moves.count.get(), moves.last_pause_ns.get(), moves.longest_pause_ns.get()],
        }
    }

    /// The configuration that would start the daemon in its present state.
    #[must_use]
    pub fn configuration(&self) -> Config {
        let mut config = self.config.clone();
        let workers = self.pool().workers();
        // The workers after the last one with a list need none.
        let lists =
            workers.iter().rposition(|worker| !worker.told_cpus().is_empty()).map_or(0, |last| last + 1);
        let list = |worker: &Arc<Worker>| match worker.told_cpus() {
            told if told.is_empty() => worker.cpus(),
            told => told,
        };
        config.workers.cpus = workers[..lists].iter().map(|worker| list(worker).to_string()).collect();
        config.workers.count = u32::try_from(workers.len()).unwrap_or(u32::MAX).max(1);
        let polling: Vec<Polling> = workers.iter().map(|worker| worker.polling()).collect();
        if let Some(usual) = usual(&polling) {
            let nap = usual.nap_ns().or_else(|| workers.iter().find_map(|worker| worker.last_nap_ns()));
            config.workers.longest_nap_us = nap.map_or(config.workers.longest_nap_us, |nap| nap / 1000);
            config.workers.polling = match usual {
                Polling::Adaptive { .. } => PollingConfig::Adaptive,
                Polling::Always => PollingConfig::Always,
                Polling::Never => PollingConfig::Never,
            };
        }
        let refused = self.refused().into_iter().map(|refused| refused.config);
        config.devices =
            self.endpoints().iter().map(|endpoint| current_config(endpoint)).chain(refused).collect();
        config
    }

    /// The same as text. It says which workers poll otherwise, for which the file has no words.
    fn configuration_text(&self) -> String {
        let text = self.configuration().text().unwrap_or_default();
        let workers = self.pool().workers();
        let polling: Vec<Polling> = workers.iter().map(|worker| worker.polling()).collect();
        let others = workers.iter().filter(|worker| Some(worker.polling()) != usual(&polling));
        let others: Vec<String> = others.map(|worker| Object::Worker(worker.number()).name()).collect();
        match others.is_empty() {
            true => text,
            false => format!("# Of other polling, which this file cannot say: {}\n{text}", others.join(", ")),
        }
    }
}

/// The polling of most workers; of several such that of the first.
fn usual(polling: &[Polling]) -> Option<Polling> {
    let count = |one: &Polling| polling.iter().filter(|other| *other == one).count();
    polling.iter().rev().max_by_key(|one| count(one)).copied()
}

/// The configuration of a device with its present limits and size.
fn current_config(endpoint: &Endpoint) -> DeviceConfig {
    let device = &endpoint.backend.device;
    let mut config = endpoint.config.clone();
    if let Some([requests, bytes]) = device.limits().first() {
        (config.requests_per_second, config.bytes_per_second) = (requests.rate(), bytes.rate());
    }
    if config.path.is_none() && device.size().is_some() {
        config.null_size_bytes = device.size();
    }
    config
}

impl Control for Daemon {
    fn apply(&self, operation: Operation) -> Result<Option<String>, ControlError> {
        match operation {
            Operation::AddWorker(config) => {
                let number = self.pool().add_worker(&config.options(&self.config.workers)?)?;
                self.loads.begin(number);
                return Ok(Some(Object::Worker(number).name()));
            }
            Operation::RemoveWorker(number) => self.remove_worker(number)?,
            Operation::Pin(number, cpus) => self.pool().worker(number)?.pin(cpus)?,
            Operation::Poll(number, polling) => {
                let worker = self.pool().worker(number)?;
                let nap = worker.last_nap_ns().map_or(self.config.workers.longest_nap_us, |nap| nap / 1000);
                worker.set_polling(polling.polling(nap));
            }
            Operation::LongestNap(number, longest) => {
                self.pool().worker(number)?.set_polling(PollingConfig::Adaptive.polling(longest));
            }
            Operation::AddDevice(config) => {
                return Ok(Some(Object::Device(self.add_device(&config)?).name()));
            }
            Operation::RemoveDevice(number) => self.drop_device(number)?,
            Operation::MoveDevice(number, worker) => {
                let queues = 0..self.queue_count(self.wanted(number).map(|_| number)?);
                let names: Vec<_> = queues.map(|queue| QueueName { device: number, queue }).collect();
                self.move_to(&names, worker)?;
            }
            Operation::Resize(number, bytes) => {
                let endpoint = self.wanted(number)?;
                endpoint.backend.device.resize(bytes)?;
                endpoint.backend.config_changed();
            }
            Operation::LimitRequests(number, rate) => {
                self.limit(number, |[requests, _]| requests.set(rate))?
            }
            Operation::LimitBytes(number, rate) => self.limit(number, |[_, bytes]| bytes.set(rate))?,
            Operation::MoveQueues(names, worker) => self.move_to(&names, worker)?,
            Operation::Weigh(name, weight) => {
                let endpoint = self.wanted(name.device)?;
                let queue = queue_of(&endpoint, name)?;
                queue.weight.store(weight, Ordering::Relaxed);
                self.tell(queue, move |queue| queue.weight = weight)?;
            }
            Operation::PollQueue(name, always) => {
                let endpoint = self.wanted(name.device)?;
                let queue = queue_of(&endpoint, name)?;
                queue.polled.store(always, Ordering::Relaxed);
                self.tell(queue, move |queue| queue.polled = always)?;
            }
        }
        Ok(None)
    }
}

fn queue_of(endpoint: &Endpoint, name: QueueName) -> Result<&BackendQueue, ControlError> {
    let queue = endpoint.backend.queues.get(usize::from(name.queue));
    queue.map(AsRef::as_ref).ok_or_else(|| ControlError::missing(&Object::Queue(name).path()))
}

impl Daemon {
    /// A device that exists and is not being removed.
    fn wanted(&self, number: u32) -> Result<Arc<Endpoint>, ControlError> {
        let name = Object::Device(number).name();
        let endpoint = self.endpoint(number).ok_or_else(|| ControlError::missing(&name))?;
        match endpoint.is_closing() {
            true => Err(ControlError::new(Errno::Busy, format!("{name} is being removed"))),
            false => Ok(endpoint),
        }
    }

    fn remove_worker(&self, number: u32) -> Result<(), ControlError> {
        let name = Object::Worker(number).name();
        if !self.workers().contains(&number) {
            return Err(ControlError::missing(&name));
        }
        let is_own = |(_, endpoint): &(u32, Arc<Endpoint>)| endpoint.own_worker == Some(number);
        if let Some((device, _)) = self.numbered_endpoints().iter().find(|endpoint| is_own(endpoint)) {
            let device = Object::Device(*device).name();
            return Err(ControlError::new(
                Errno::Busy,
                format!("{name} serves only {device}, and is removed with it"),
            ));
        }
        self.pool().remove_spare_worker(number)?;
        self.loads.forget(number);
        Ok(())
    }

    fn drop_device(&self, number: u32) -> Result<(), ControlError> {
        self.wanted(number)?;
        match self.remove_device(number) {
            true => Ok(()),
            false => Err(ControlError::missing(&Object::Device(number).name())),
        }
    }

    fn limit(&self, number: u32, set: impl Fn([&Limit; 2])) -> Result<(), ControlError> {
        let endpoint = self.wanted(number)?;
        let limits = endpoint.backend.device.limits();
        if limits.is_empty() {
            let name = Object::Device(number).name();
            return Err(ControlError::new(Errno::Unsupported, format!("{name} has no limits")));
        }
        limits.into_iter().for_each(set);
        // A worker may be sleeping until the time that the old limit set: wake it.
        endpoint.backend.queues.iter().try_for_each(|queue| self.tell(queue, |_| {}))
    }

    /// Moves queues to a worker at once; those that are not served go there when they start.
    fn move_to(&self, names: &[QueueName], worker: u32) -> Result<(), ControlError> {
        self.pool().worker(worker)?;
        let endpoints: Vec<_> =
            names.iter().map(|name| self.wanted(name.device)).collect::<Result<_, _>>()?;
        let queues = endpoints.iter().zip(names).map(|(endpoint, name)| queue_of(endpoint, *name));
        let queues: Vec<&BackendQueue> = queues.collect::<Result<_, _>>()?;
        let keys = queues.into_iter().filter_map(|queue| {
            *queue.worker.lock().unwrap_or_else(PoisonError::into_inner) = Some(worker);
            *queue.key.lock().unwrap_or_else(PoisonError::into_inner)
        });
        // A queue that has stopped in the meantime starts there next time.
        self.pool().move_queues(keys, worker).map(drop).map_err(Into::into)
    }

    /// Calls a function on a queue if it is served.
    fn tell(
        &self,
        queue: &BackendQueue,
        act: impl FnOnce(&mut Queue) + Send + 'static,
    ) -> Result<(), ControlError> {
        let key = *queue.key.lock().unwrap_or_else(PoisonError::into_inner);
        match key.map(|key| self.pool().with(key, act)) {
            None | Some(Ok(()) | Err(PoolError::NoQueue(_))) => Ok(()),
            Some(Err(error)) => Err(error.into()),
        }
    }
}

/// The error number for an error of the host.
fn of_host(error: &io::Error) -> Errno {
    match error.raw_os_error() {
        Some(libc::ENOENT) => Errno::Missing,
        Some(libc::EACCES | libc::EPERM | libc::EROFS) => Errno::Denied,
        Some(libc::EADDRINUSE | libc::EEXIST) => Errno::Exists,
        Some(libc::EBUSY) => Errno::Busy,
        Some(libc::EINVAL) => Errno::Invalid,
        Some(libc::ENOSPC | libc::EMFILE | libc::ENFILE | libc::EDQUOT | libc::ENOMEM | libc::EFBIG) => {
            Errno::NoSpace
        }
        _ if error.kind() == io::ErrorKind::InvalidInput => Errno::Invalid,
        _ => Errno::Failed,
    }
}

/// The error number for an error of a network device.
fn of_net(error: &NetError) -> Errno {
    match error {
        NetError::Tap { source, .. }
        | NetError::Namespace { source, .. }
        | NetError::NoTap { source, .. } => of_host(source),
        NetError::Address(_) => Errno::Exists,
        _ => Errno::Invalid,
    }
}

impl From<WorkerError> for ControlError {
    fn from(error: WorkerError) -> Self {
        let errno = match &error {
            WorkerError::Cannot { source, .. } => of_host(source),
            WorkerError::Gone => Errno::Missing,
        };
        Self::of(errno, &error)
    }
}

impl From<PoolError> for ControlError {
    fn from(error: PoolError) -> Self {
        let errno = match error {
            PoolError::Worker(error) => return error.into(),
            PoolError::Last(_) | PoolError::NoSpare(_) => Errno::Busy,
            PoolError::NoWorker(_) | PoolError::NoQueue(_) => Errno::Missing,
        };
        Self::of(errno, &error)
    }
}

impl From<EndpointError> for ControlError {
    fn from(error: EndpointError) -> Self {
        let (EndpointError::Socket { source, .. }
        | EndpointError::Access { source, .. }
        | EndpointError::Thread { source, .. }
        | EndpointError::Inherited(source)) = &error;
        Self::of(of_host(source), &error)
    }
}

impl From<DaemonError> for ControlError {
    fn from(error: DaemonError) -> Self {
        match error {
            DaemonError::Config(error) => error.into(),
            DaemonError::Worker(error) => error.into(),
            DaemonError::Pool(error) => error.into(),
            DaemonError::Endpoint(error) => error.into(),
            DaemonError::Exists(_) => Self::of(Errno::Exists, &error),
            DaemonError::Ended(_) => Self::of(Errno::Busy, &error),
            DaemonError::Account(_) => Self::of(Errno::Invalid, &error),
            DaemonError::Net { ref source, .. } => Self::of(of_net(source), &error),
            DaemonError::Storage { ref source, .. } => {
                let errno = match source {
                    StorageError::Open { source, .. } | StorageError::Size { source, .. } => of_host(source),
                    StorageError::Kind { .. }
                    | StorageError::Format { .. }
                    | StorageError::BlockSize { .. } => Errno::Invalid,
                };
                Self::of(errno, &error)
            }
        }
    }
}

impl From<ResizeError> for ControlError {
    fn from(error: ResizeError) -> Self {
        let errno = match &error {
            ResizeError::Unsized => Errno::Unsupported,
            ResizeError::Size { .. } | ResizeError::Fixed { .. } => Errno::Invalid,
            ResizeError::File { source, .. } => of_host(source),
        };
        Self::of(errno, &error)
    }
}
