//! A session's virtqueues: what was said of each, and when it is served.

use super::{Session, pool_error};
use crate::protocol::{RequestError, VirtioFeatures};
use crate::queue::{Notifiers, Queue, QueueKey};
use crate::ring::{Ring, RingError, RingFeatures, RingLayout};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

/// What was said of a virtqueue.
#[derive(Debug, Default)]
pub(super) struct Vring {
    /// Descriptors.
    pub(super) size: u32,
    /// Where it goes on.
    pub(super) base: u32,
    /// Where it is.
    pub(super) layout: Option<RingLayout>,
    pub(super) call: Option<OwnedFd>,
    pub(super) error: Option<OwnedFd>,
    /// Whether the front-end lets it be served.
    pub(super) enabled: bool,
    /// Whether it has begun: from its kick on, until its base is asked for.
    pub(super) started: bool,
    pub(super) kick: Option<OwnedFd>,
    /// While it is served.
    pub(super) key: Option<QueueKey>,
}

impl Session {
    pub(super) fn vring(&mut self, index: u32) -> Result<&mut Vring, RequestError> {
        let count = self.vrings.len();
        let error = || RequestError::Invalid(format!("there is no queue {index} of {count}"));
        self.vrings.get_mut(index as usize).ok_or_else(error)
    }

    fn ring_features(&self) -> RingFeatures {
        RingFeatures {
            packed: self.features.has(VirtioFeatures::PACKED),
            event_index: self.features.has(VirtioFeatures::EVENT_INDEX),
            indirect: self.features.has(VirtioFeatures::INDIRECT),
        }
    }

    /// Whether a queue is enabled: all are where the front-end does not know how to say so.
    pub(super) fn is_enabled(&self, index: usize) -> bool {
        self.vrings[index].enabled || !self.features.has(VirtioFeatures::PROTOCOL_FEATURES)
    }

    /// Begins to serve a queue, if all that it needs was said.
    pub(super) fn start(&mut self, index: usize) -> Result<(), RequestError> {
        let features = self.ring_features();
        let enabled = self.is_enabled(index);
        let device = &self.backend.device;
        let ring = &mut self.vrings[index];
        let Some(layout) = ring.layout.filter(|_| ring.started && ring.key.is_none()) else { return Ok(()) };
        let wrong = |error: RingError| RequestError::Invalid(format!("queue {index}: {error}"));
        if self.memory.is_cut() {
            return Err(wrong(RingError::Lost));
        }
        let made = Ring::new(&self.memory, &layout, ring.size, ring.base, features).map_err(wrong)?;
        let copy = |file: &Option<OwnedFd>| file.as_ref().map(OwnedFd::try_clone).transpose();
        let files = |error: std::io::Error| RequestError::Invalid(format!("a file cannot be kept: {error}"));
        let notifiers = Notifiers {
            kick: copy(&ring.kick).map_err(files)?,
            call: copy(&ring.call).map_err(files)?,
            error: copy(&ring.error).map_err(files)?,
        };
        let size = made.size();
        let handler = device.handler(index as u16, size, self.features);
        let backend = &self.backend.queues[index];
        let mut queue = Queue::new(made, notifiers, handler, Arc::clone(&backend.state));
        queue.set_enabled(enabled);
        queue.polled = backend.polled.load(Ordering::Relaxed);
        let memory = self.inflight.as_ref();
        if let Some(inflight) = memory.and_then(|memory| memory.queue(index as u16, size, features.packed)) {
            queue.virtqueue.track_inflight(inflight).map_err(wrong)?;
        }
        let weight = backend.weight.load(Ordering::Relaxed);
        if weight > 0 {
            queue.weight = weight;
        }
        let queue_key = queue.key;
        // Held until it is served: whoever ends the device meanwhile finds it.
        let mut key = backend.key.lock().unwrap_or_else(PoisonError::into_inner);
        if self.backend.over.load(Ordering::SeqCst) {
            return Err(RequestError::Invalid(format!("queue {index}: the device is taken away")));
        }
        let mut wanted = backend.worker.lock().unwrap_or_else(PoisonError::into_inner);
        *wanted = Some(self.pool.serve(queue, *wanted).map_err(|error| pool_error(&error))?);
        (*key, ring.key) = (Some(queue_key), Some(queue_key));
        Ok(())
    }

    /// Ends serving a queue, once nothing of it is under way any more. What was said of it stays.
    pub(super) fn pause(&mut self, index: usize) {
        let backend = &self.backend.queues[index];
        let ring = &mut self.vrings[index];
        let Some(key) = ring.key.take() else { return };
        // The worker that it was moved to meanwhile is where it goes on.
        if let Some(worker) = self.pool.worker_of(key) {
            *backend.worker.lock().unwrap_or_else(PoisonError::into_inner) = Some(worker);
        }
        match self.pool.end(key) {
            Ok(queue) => ring.base = queue.virtqueue.base(),
            Err(error) => tracing::debug!("Queue {index} was ended by another thread: {error}"),
        }
        *backend.key.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Ends a queue.
    pub(super) fn stop(&mut self, index: usize) {
        self.pause(index);
        let ring = &mut self.vrings[index];
        ring.started = false;
        ring.kick = None;
    }

    /// Ends serving all queues while `change` is made, and goes on with them afterwards.
    pub(super) fn with_queues_paused(
        &mut self,
        change: impl FnOnce(&mut Self) -> Result<(), RequestError>,
    ) -> Result<(), RequestError> {
        (0..self.vrings.len()).for_each(|index| self.pause(index));
        let outcome = change(self);
        let started = (0..self.vrings.len()).try_for_each(|index| self.start(index));
        outcome.and(started)
    }
}

/// An eventfd. The front-end has the same open file, so that whoever reads it or writes to it may be made to wait, whatever
/// its flags say: a worker does neither.
pub(super) fn eventfd(what: &str, file: Option<OwnedFd>) -> Result<Option<OwnedFd>, RequestError> {
    let Some(file) = file else { return Ok(None) };
    let cannot = |error: rustix::io::Errno| RequestError::Invalid(format!("the {what} descriptor: {error}"));
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    let name = rustix::fs::readlink(link, Vec::new()).map_err(cannot)?;
    if name.as_bytes() != b"anon_inode:[eventfd]" {
        let is = name.to_string_lossy().into_owned();
        return Err(RequestError::Invalid(format!(
            "the {what} descriptor must be an eventfd, and is {is:?}"
        )));
    }
    Ok(Some(file))
}
