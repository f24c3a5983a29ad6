//! Shared I/O workers that serve the virtio devices of many VMs over vhost-user.

pub mod memory;
pub mod ring;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
