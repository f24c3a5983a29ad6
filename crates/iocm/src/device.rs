//! Devices: what they offer to a guest, and what they do with its requests.

pub mod block;
mod limit;
pub mod net;

use crate::protocol::VirtioFeatures;
use crate::queue::Handler;

pub use limit::{Limit, Limits};

/// Why a device cannot have another size.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResizeError {
    /// Devices of its kind have none.
    #[error("A device of this kind has no size")]
    Unsized,
    /// It is no such number.
    #[error("A disk's size is a multiple of 512 bytes that is not below what it is now ({now})")]
    Size {
        /// Bytes that it has.
        now: u64,
    },
    /// What it is made of is smaller and cannot grow from here.
    #[error("{path} has {has} bytes and does not grow by being told to: make it larger first")]
    Fixed {
        /// The block device.
        path: std::path::PathBuf,
        /// Bytes that it has.
        has: u64,
    },
    /// The file cannot be made larger, or looked at.
    #[error("Cannot make {path} larger")]
    File {
        /// The file.
        path: std::path::PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// A device, as a front-end sees it.
pub trait Device: Send + Sync + std::fmt::Debug {
    /// What it is: `block`, `net`.
    fn kind(&self) -> &'static str;

    /// Features of the device itself, as bits; those of every virtio device are added.
    fn features(&self) -> u64;

    /// Features of the protocol that devices of its kind have beside all others'.
    fn protocol_features(&self) -> u64 {
        0
    }

    /// Queues at most.
    fn queues(&self) -> u16;

    /// What `VHOST_USER_GET_QUEUE_NUM` is answered with: for network devices front-ends want pairs of queues.
    fn queue_number(&self) -> u16 {
        self.queues()
    }

    /// What does the work of a queue of `size` descriptors, after these features were agreed on.
    fn handler(&self, index: u16, size: u16, features: VirtioFeatures) -> Box<dyn Handler>;

    /// Reads the configuration. Bytes behind its end are zero.
    fn config(&self, offset: u32, size: u32) -> Vec<u8>;

    /// Writes to the configuration.
    ///
    /// # Errors
    /// Why it cannot be written.
    fn set_config(&self, offset: u32, bytes: &[u8]) -> Result<(), String>;

    /// Its limits of requests and of bytes a second, each way one of them; all are set together; none where it has no such.
    fn limits(&self) -> Vec<[&Limit; 2]> {
        Vec::new()
    }

    /// Its size in bytes, where it has one.
    fn size(&self) -> Option<u64> {
        None
    }

    /// Makes it so many bytes large, or as large as what it is made of is now.
    ///
    /// # Errors
    /// [`ResizeError`]; it is as it was then.
    fn resize(&self, _bytes: Option<u64>) -> Result<(), ResizeError> {
        Err(ResizeError::Unsized)
    }

    /// Takes note of the MTU that the guest is told.
    fn set_mtu(&self, _mtu: u64) {}

    /// Tells the network where a guest is that came here by migration.
    ///
    /// # Errors
    /// Why it cannot be told.
    fn announce(&self, _mac: [u8; 6]) -> Result<(), String> {
        Err("it is no network device".to_owned())
    }
}
