//! Devices: what they offer to a guest, and what they do with its requests.

pub mod block;
mod limit;
pub mod net;

use crate::protocol::VirtioFeatures;
use crate::queue::Handler;

pub use limit::{Limit, Limits};

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
