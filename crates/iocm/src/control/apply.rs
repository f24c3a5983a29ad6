//! What a running daemon does when the tree is written.

use super::action::Action;
use super::facts::{Control, View as _};
use super::node::{Object, QueueName};
use super::refusal::{Errno, Refusal};
use crate::config::PollingConfig;
use crate::daemon::{Daemon, Placed};
use crate::device::Limit;
use crate::pool::PoolError;
use crate::queue::Queue;
use crate::session::ServedQueue;
use crate::worker::Polling;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

impl Control for Daemon {
    fn apply(&self, action: Action) -> Result<Option<String>, Refusal> {
        match action {
            Action::AddWorker(config) => {
                let number = self.pool().add_worker(&config.options(&self.config.workers)?)?;
                self.loads.begin(number);
                return Ok(Some(Object::Worker(number).name()));
            }
            Action::RemoveWorker(number) => self.remove_worker(number)?,
            Action::Pin(number, cpus) => self.pool().worker(number)?.pin(cpus)?,
            Action::Poll(number, polling) => {
                let worker = self.pool().worker(number)?;
                let nap = match worker.polling() {
                    Polling::Adaptive { nap_ns } => nap_ns / 1000,
                    _ => self.config.workers.longest_nap_us,
                };
                worker.set_polling(polling.polling(nap));
            }
            Action::LongestNap(number, longest) => {
                self.pool().worker(number)?.set_polling(PollingConfig::Adaptive.polling(longest));
            }
            Action::AddDevice(config) => {
                return Ok(Some(Object::Device(self.add_device(&config)?).name()));
            }
            Action::RemoveDevice(number) => self.drop_device(number)?,
            Action::MoveDevice(number, worker) => {
                let queues = 0..self.queue_count(self.wanted(number).map(|_| number)?);
                let names: Vec<_> = queues.map(|queue| QueueName { device: number, queue }).collect();
                self.move_to(&names, worker)?;
            }
            Action::Resize(number, bytes) => {
                let placed = self.wanted(number)?;
                placed.post.served.device.resize(bytes)?;
                placed.post.served.config_changed();
            }
            Action::LimitRequests(number, rate) => self.limit(number, |[requests, _]| requests.set(rate))?,
            Action::LimitBytes(number, rate) => self.limit(number, |[_, bytes]| bytes.set(rate))?,
            Action::MoveQueues(names, worker) => self.move_to(&names, worker)?,
            Action::Weigh(name, weight) => {
                let placed = self.wanted(name.device)?;
                let served = queue(&placed, name)?;
                served.weight.store(weight, Ordering::Relaxed);
                self.tell(served, move |queue| queue.weight = weight)?;
            }
            Action::PollQueue(name, always) => {
                let placed = self.wanted(name.device)?;
                let served = queue(&placed, name)?;
                served.polled.store(always, Ordering::Relaxed);
                self.tell(served, move |queue| queue.polled = always)?;
            }
        }
        Ok(None)
    }
}

fn queue(placed: &Placed, name: QueueName) -> Result<&ServedQueue, Refusal> {
    let served = placed.post.served.queues.get(usize::from(name.queue));
    served.map(AsRef::as_ref).ok_or_else(|| Refusal::missing(&Object::Queue(name).path()))
}

impl Daemon {
    /// A device that is there to stay.
    fn wanted(&self, number: u32) -> Result<Arc<Placed>, Refusal> {
        let name = Object::Device(number).name();
        let placed = self.device(number).ok_or_else(|| Refusal::missing(&name))?;
        match placed.post.is_closing() {
            true => Err(Refusal::new(Errno::Busy, format!("{name} is being removed"))),
            false => Ok(placed),
        }
    }

    fn remove_worker(&self, number: u32) -> Result<(), Refusal> {
        let name = Object::Worker(number).name();
        let workers = self.workers();
        if !workers.contains(&number) {
            return Err(Refusal::missing(&name));
        }
        if workers.len() == 1 {
            return Err(Refusal::new(
                Errno::Busy,
                format!("{name} is the last I/O worker: make another one first"),
            ));
        }
        let is_own = |(_, placed): &(u32, Arc<Placed>)| placed.own_worker == Some(number);
        if let Some((device, _)) = self.placed().iter().find(|placed| is_own(placed)) {
            let device = Object::Device(*device).name();
            return Err(Refusal::new(
                Errno::Busy,
                format!("{name} is there for {device} alone, and goes with it"),
            ));
        }
        self.pool().remove_worker(number)?;
        self.loads.forget(number);
        Ok(())
    }

    fn drop_device(&self, number: u32) -> Result<(), Refusal> {
        self.wanted(number)?;
        match self.remove_device(number) {
            true => Ok(()),
            false => Err(Refusal::missing(&Object::Device(number).name())),
        }
    }

    fn limit(&self, number: u32, set: impl Fn([&Limit; 2])) -> Result<(), Refusal> {
        let placed = self.wanted(number)?;
        let limits = placed.post.served.device.limits();
        if limits.is_empty() {
            let name = Object::Device(number).name();
            return Err(Refusal::new(Errno::Unsupported, format!("{name} has no limits")));
        }
        limits.into_iter().for_each(set);
        Ok(())
    }

    /// Gives queues to a worker, now those that are served, the others when they will be.
    fn move_to(&self, names: &[QueueName], worker: u32) -> Result<(), Refusal> {
        self.pool().worker(worker)?;
        let placed: Vec<_> = names.iter().map(|name| self.wanted(name.device)).collect::<Result<_, _>>()?;
        let served = placed.iter().zip(names).map(|(placed, name)| queue(placed, *name));
        let served: Vec<&ServedQueue> = served.collect::<Result<_, _>>()?;
        let keys = served.into_iter().filter_map(|served| {
            *served.worker.lock().unwrap_or_else(PoisonError::into_inner) = Some(worker);
            *served.key.lock().unwrap_or_else(PoisonError::into_inner)
        });
        // A queue that has just ended begins there next time.
        self.pool().move_queues(keys, worker).map(drop).map_err(Into::into)
    }

    /// Does something to a queue, if it is served.
    fn tell(
        &self,
        served: &ServedQueue,
        act: impl FnOnce(&mut Queue) + Send + 'static,
    ) -> Result<(), Refusal> {
        let key = *served.key.lock().unwrap_or_else(PoisonError::into_inner);
        match key.map(|key| self.pool().with(key, act)) {
            None | Some(Ok(()) | Err(PoolError::NoQueue(_))) => Ok(()),
            Some(Err(error)) => Err(error.into()),
        }
    }
}
