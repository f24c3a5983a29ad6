//! Devices: their features, their configuration space, and the handlers of their queues.

pub mod block;
mod limit;
pub mod net;

use crate::protocol::VirtioFeatures;
use crate::queue::Handler;

pub use limit::{Limit, Limits};

/// A failure to resize a device.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResizeError {
    /// Devices of this type have no size.
    #[error("A device of this kind has no size")]
    Unsized,
    /// The new size is not valid.
    #[error(
        "A disk's size must be a multiple of its blocks of {block} bytes, and at least its present size and that of its \
         file ({now})"
    )]
    Size {
        /// The present size, or that of the file if it is larger, bytes.
        now: u64,
        /// The block size in the guest, bytes.
        block: u64,
    },
    /// The block device is smaller, and cannot be grown from here.
    #[error("{path} has {has} bytes and cannot be grown from here: make it larger first")]
    Fixed {
        /// The path of the block device.
        path: std::path::PathBuf,
        /// Its size, bytes.
        has: u64,
    },
    /// The file cannot be grown, or its size cannot be read.
    #[error("Cannot make {path} larger")]
    File {
        /// The file.
        path: std::path::PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
}

/// A virtio device.
pub trait Device: Send + Sync + std::fmt::Debug {
    /// Its type: `block`, `net`.
    fn kind(&self) -> &'static str;

    /// The feature bits of the device type; those of every virtio device are added.
    fn features(&self) -> u64;

    /// Feature bits that are not offered, but accepted from guests that have negotiated them nevertheless.
    fn accepted_features(&self) -> u64 {
        0
    }

    /// The protocol features of the device type, besides those of every device.
    fn protocol_features(&self) -> u64 {
        0
    }

    /// The largest number of queues, also the reply to `VHOST_USER_GET_QUEUE_NUM`: of a network device too it is the number
    /// of virtqueues (vhost-user, "Multiple queue support"), and so cloud-hypervisor and crosvm understand it.
    fn queues(&self) -> u16;

    /// Makes the handler of a queue of `size` descriptors, for the negotiated features.
    fn handler(&self, index: u16, size: u16, features: VirtioFeatures) -> Box<dyn Handler>;

    /// Reads the configuration space; bytes after its end are zero.
    fn config(&self, offset: u32, size: u32) -> Vec<u8>;

    /// Writes to the configuration space.
    ///
    /// # Errors
    ///
    /// The reason why it cannot be written.
    fn set_config(&self, offset: u32, bytes: &[u8]) -> Result<(), String>;

    /// The limits of requests and of bytes per second, one pair for each direction. All are set together; empty if the
    /// device has none.
    fn limits(&self) -> Vec<[&Limit; 2]> {
        Vec::new()
    }

    /// Its size in bytes, if it has one.
    fn size(&self) -> Option<u64> {
        None
    }

    /// Grows it to this many bytes, or to the size of its file.
    ///
    /// # Errors
    ///
    /// [`ResizeError`]; nothing has changed then.
    fn resize(&self, _bytes: Option<u64>) -> Result<(), ResizeError> {
        Err(ResizeError::Unsized)
    }

    /// Sets the MTU that the front-end reported to the guest; `None` when the front-end has gone.
    ///
    /// # Errors
    ///
    /// The reason why it is not valid.
    fn set_mtu(&self, _mtu: Option<u64>) -> Result<(), String> {
        Ok(())
    }

    /// Sets up what a queue needs on the host while it is started and enabled, or releases it. This may take
    /// milliseconds: it is called on the front-end's thread, never on a worker.
    fn enable(&self, _index: u16, _enabled: bool) {}

    /// Takes what only one back-end at a time may use, before a queue starts, and takes over what another one has changed;
    /// does nothing if it has it. Like [`Self::enable`], this is called on the front-end's thread.
    ///
    /// # Errors
    ///
    /// The reason why it cannot be had now.
    fn acquire(&self) -> Result<(), String> {
        Ok(())
    }

    /// Writes to the disk what is only in the memory of this host, once no queue takes requests and before
    /// [`Self::release`]. This takes as long as the disk does, and is called on the front-end's thread. `false` if it
    /// failed.
    fn write_back(&self) -> bool {
        true
    }

    /// Gives back what [`Self::acquire`] took, when no queue is started any more.
    fn release(&self) {}

    /// Announces a guest to the network after a migration.
    ///
    /// # Errors
    ///
    /// The reason why it cannot be announced.
    fn announce(&self, _mac: [u8; 6]) -> Result<(), String> {
        Err("it is not a network device".to_owned())
    }
}
