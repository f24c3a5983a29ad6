//! The eventfds by which a front-end is signalled.

use super::QueueState;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The state that all eventfds of a device share.
#[derive(Debug, Default)]
pub(crate) struct DeviceEventfds {
    /// The name of the device.
    name: String,
    /// The time until which workers do not write to them, because one of them made a worker wait: nanoseconds of the
    /// monotonic clock.
    no_writes_until: AtomicU64,
}

impl DeviceEventfds {
    /// The state of a device that made nobody wait.
    pub(crate) fn new(name: &str) -> Arc<Self> {
        Arc::new(Self { name: name.to_owned(), ..Self::default() })
    }
}

/// A call or error eventfd.
#[derive(Debug)]
pub(crate) struct Eventfd {
    file: OwnedFd,
    device: Arc<DeviceEventfds>,
}

impl Eventfd {
    /// An eventfd of a queue.
    pub(crate) fn new(file: OwnedFd, state: &QueueState) -> Arc<Self> {
        Arc::new(Self { file, device: Arc::clone(&state.eventfds) })
    }

    /// The name of its device.
    pub(crate) fn device(&self) -> &str {
        &self.device.name
    }

    /// The time until which no worker writes to it, nanoseconds.
    #[inline]
    pub(crate) fn no_writes_until(&self) -> u64 {
        self.device.no_writes_until.load(Ordering::Relaxed)
    }

    /// Lets no worker write to the device's eventfds until this time, nanoseconds. Returns whether that was so already.
    pub(crate) fn forbid_writes_until(&self, time: u64) -> bool {
        self.device.no_writes_until.fetch_max(time, Ordering::Relaxed) >= time
    }
}

impl AsFd for Eventfd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
