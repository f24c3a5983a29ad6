//! Shared I/O workers that serve the virtio devices of many VMs over vhost-user.

mod clock;
pub mod device;
pub mod memory;
pub mod queue;
pub mod ring;
pub mod statistics;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod worker;
