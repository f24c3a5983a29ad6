//! The virtqueues of a session: their state as the front-end set it, starting and stopping them.

use super::{Session, pool_error};
use crate::protocol::{ProtocolFeatures, RequestError, VirtioFeatures};
use crate::queue::{Notifiers, Queue, QueueKey};
use crate::ring::{Ring, RingError, RingFeatures, RingLayout};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

/// The state of a virtqueue as the front-end set it.
#[derive(Debug, Default)]
pub(super) struct Vring {
    /// The number of descriptors.
    pub(super) size: u32,
    /// The index at which it continues.
    pub(super) base: u32,
    /// The addresses of its parts.
    pub(super) layout: Option<RingLayout>,
    pub(super) call: Option<OwnedFd>,
    pub(super) error: Option<OwnedFd>,
    /// The front-end enabled it.
    pub(super) enabled: bool,
    /// It was started by its kick eventfd, and not stopped by `VHOST_USER_GET_VRING_BASE`.
    pub(super) started: bool,
    pub(super) kick: Option<OwnedFd>,
    /// The number of the queue while it is served.
    pub(super) key: Option<QueueKey>,
}

impl Session {
    pub(super) fn vring(&mut self, index: u32) -> Result<&mut Vring, RequestError> {
        let count = self.vrings.len();
        let error = || {
            RequestError::Invalid(format!(
                "there is no queue {index} of {count}: does the front-end have more `queues` than the device?"
            ))
        };
        self.vrings.get_mut(index as usize).ok_or_else(error)
    }

    fn ring_features(&self) -> RingFeatures {
        RingFeatures {
            packed: self.features.has(VirtioFeatures::PACKED),
            event_index: self.features.has(VirtioFeatures::EVENT_INDEX),
            indirect: self.features.has(VirtioFeatures::INDIRECT),
        }
    }

    /// Tests whether a queue is enabled. Without `VHOST_USER_F_PROTOCOL_FEATURES` all are.
    pub(super) fn is_enabled(&self, index: usize) -> bool {
        self.vrings[index].enabled || !self.features.has(VirtioFeatures::PROTOCOL_FEATURES)
    }

    /// Starts a queue if the front-end has set all that it needs.
    pub(super) fn start(&mut self, index: usize) -> Result<(), RequestError> {
        let features = self.ring_features();
        let enabled = self.is_enabled(index);
        let device = &self.backend.device;
        let ring = &mut self.vrings[index];
        let Some(layout) = ring.layout.filter(|_| ring.started && ring.key.is_none()) else { return Ok(()) };
        // QEMU does not look at the reply to VHOST_USER_SET_FEATURES. A ring of another format, and the inflight records of
        // such a ring, would be misread and overwritten.
        if self.refused != 0 {
            return Err(RequestError::Unusable(format!(
                "the guest uses features ({:#x}) that the device does not offer; if its configuration was changed (such as \
                 `read-only`), undo that until the VM has been shut down and started again",
                self.refused
            )));
        }
        // A disk takes over a larger size of its file, which the front-end does not know: it may have come from another host.
        let known = device.size();
        device.acquire().map_err(RequestError::Unusable)?;
        if device.size() != known {
            self.backend.untold.store(true, Ordering::SeqCst);
        }
        let wrong = |error: RingError| RequestError::Invalid(format!("queue {index}: {error}"));
        if self.memory.is_cut() {
            return Err(wrong(RingError::Lost));
        }
        let mut made = Ring::new(&self.memory, &layout, ring.size, ring.base, features).map_err(wrong)?;
        // What has requests in flight has a record of them.
        let rests = device.protocol_features() & ProtocolFeatures::INFLIGHT == 0;
        if rests && !made.rest() {
            let base = ring.base;
            self.backend.log.warn(|| {
                format!(
                    "Queue {index} does not continue at {base:#x}, where the front-end says, and does not tell its place \
                     itself: if no packets pass, the guest's driver must reset the device"
                )
            });
        }
        let notifiers = Notifiers {
            kick: copy(ring.kick.as_ref())?,
            call: copy(ring.call.as_ref())?,
            error: copy(ring.error.as_ref())?,
        };
        let size = made.size();
        let handler = device.handler(index as u16, size, self.features);
        let backend = &self.backend.queues[index];
        let mut queue = Queue::new(made, notifiers, handler, Arc::clone(&backend.state));
        device.enable(index as u16, enabled);
        queue.set_enabled(enabled);
        let memory = self.inflight.as_ref();
        match memory.map(|memory| memory.queue(index as u16, size, features.packed)) {
            Some(Some(inflight)) => queue.track_inflight(inflight).map_err(wrong)?,
            Some(None) => self.backend.log.warn(|| {
                format!(
                    "Queue {index} of {size} descriptors has no room in the front-end's inflight memory: if this process is \
                     restarted, its requests can be lost"
                )
            }),
            None => {}
        }
        let queue_key = queue.key;
        // Held until the queue is served, so that whoever closes the device meanwhile finds it. Whoever sets the weight or
        // the polling stores it before it looks for the queue, so it is seen here or told to the queue.
        let mut key = backend.key.lock().unwrap_or_else(PoisonError::into_inner);
        queue.polled = backend.polled.load(Ordering::Relaxed);
        let weight = backend.weight.load(Ordering::Relaxed);
        if weight > 0 {
            queue.weight = weight;
        }
        if self.backend.over.load(Ordering::SeqCst) {
            return Err(RequestError::Invalid(format!("queue {index}: the device is being removed")));
        }
        let mut wanted = backend.worker.lock().unwrap_or_else(PoisonError::into_inner);
        *wanted = Some(self.pool.serve(queue, *wanted).map_err(|error| pool_error(&error))?);
        (*key, ring.key) = (Some(queue_key), Some(queue_key));
        Ok(())
    }

    /// Stops serving a queue once all requests that were taken have completed. Its state is kept.
    pub(super) fn pause(&mut self, index: usize) {
        let backend = &self.backend.queues[index];
        let ring = &mut self.vrings[index];
        let Some(key) = ring.key.take() else { return };
        // If the wanted worker was removed, the queue continues at the one that it was moved to. A move sets `wanted`
        // before it moves the queue.
        if let Some(worker) = self.pool.worker_of(key) {
            let mut wanted = backend.worker.lock().unwrap_or_else(PoisonError::into_inner);
            if wanted.is_none_or(|wanted| self.pool.worker(wanted).is_err()) {
                *wanted = Some(worker);
            }
        }
        // The queue is dropped before the key is cleared: whoever waits for that takes it for ended.
        match self.pool.end(key).map(|queue| queue.virtqueue.base()) {
            Ok(base) => {
                ring.base = base;
                *backend.key.lock().unwrap_or_else(PoisonError::into_inner) = None;
            }
            // That thread may still wait for requests in flight. It clears the key when they have completed.
            Err(error) => tracing::debug!("Queue {index} is ended by another thread: {error}"),
        }
    }

    /// Stops a queue at the request of the front-end, which may continue on another host. Returns the index at which the
    /// queue continues.
    ///
    /// With the last queue, the disk must have all data before the front-end knows that it has stopped: the other host does
    /// not see the page cache of this one, which would be written over newer data later. A daemon that ends does not do this,
    /// because the next one has the same page cache, and its guests wait for it.
    pub(super) fn hand_over(&mut self, index: usize) -> u32 {
        self.pause(index);
        let is_last = self.vrings.iter().enumerate().all(|(other, ring)| other == index || !ring.started);
        if is_last && !self.backend.device.write_back() {
            // No worker has the queue now.
            self.backend.queues[index].state.counters.errors.add(1);
        }
        self.stop(index);
        self.vrings[index].base
    }

    /// Stops a queue.
    pub(super) fn stop(&mut self, index: usize) {
        self.pause(index);
        self.backend.device.enable(index as u16, false);
        let ring = &mut self.vrings[index];
        ring.started = false;
        ring.kick = None;
        // While the device is being removed, the remover may still wait for requests of queues that it has ended, and
        // gives back then.
        let is_over = self.backend.over.load(Ordering::SeqCst);
        if !is_over && !self.vrings.iter().any(|ring| ring.started) {
            self.backend.device.release();
        }
    }

    /// Starts all queues whose memory is there. The change of the memory has not failed because of one that lacks some.
    ///
    /// # Errors
    ///
    /// [`RequestError::Unusable`]: no later change of the memory would start the queue.
    pub(super) fn start_all(&mut self) -> Result<(), RequestError> {
        for index in 0..self.vrings.len() {
            match self.start(index) {
                Ok(()) => {}
                Err(error @ RequestError::Unusable(_)) => return Err(error),
                Err(error) => {
                    self.backend.log.warn(|| format!("With the guest's memory as it is now, {error}"));
                }
            }
        }
        Ok(())
    }

    /// Stops all queues, calls `change`, and starts them again.
    pub(super) fn with_queues_paused(
        &mut self,
        change: impl FnOnce(&mut Self) -> Result<(), RequestError>,
    ) -> Result<(), RequestError> {
        (0..self.vrings.len()).for_each(|index| self.pause(index));
        let outcome = change(self);
        // One that cannot start does not stop the others.
        (0..self.vrings.len()).map(|index| self.start(index)).fold(outcome, Result::and)
    }
}

/// Copies a descriptor for a worker.
pub(super) fn copy(file: Option<&OwnedFd>) -> Result<Option<OwnedFd>, RequestError> {
    let cannot = |error: std::io::Error| {
        RequestError::Unusable(format!(
            "a descriptor cannot be kept: {error}; raise the limit of open files (LimitNOFILE= of the unit, `ulimit -n`)"
        ))
    };
    file.map(OwnedFd::try_clone).transpose().map_err(cannot)
}

/// Checks that a descriptor is an eventfd. The front-end shares the open file and its flags, so that reading or writing
/// it may block: a worker does not read it, and writes with a time limit only.
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
