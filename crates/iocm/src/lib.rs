//! Shared I/O workers that serve the virtio devices of many VMs over vhost-user.

pub mod accounts;
mod clock;
pub mod config;
pub mod control;
pub mod daemon;
pub mod device;
pub mod endpoint;
mod fatal;
pub mod inherited;
mod listener;
pub mod log_limit;
pub mod memory;
pub mod pool;
pub mod protocol;
pub mod queue;
pub mod ring;
pub mod running;
pub mod safety;
pub mod session;
pub mod socket_file;
pub mod statistics;
pub mod testing;
pub mod worker;
