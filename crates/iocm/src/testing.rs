//! The other side, for tests, benchmarks and fuzzing: a guest's drivers, and a front-end that speaks vhost-user for them.

mod block;
mod by_hand;
mod connect;
mod daemon;
mod driver;
mod front_end;
mod lingering;
mod memory_file;
#[cfg(test)]
mod mounted_file;
mod net;
mod one_worker;
mod panics;
mod qmp;

pub use block::BlockDriver;
pub use by_hand::ByHand;
pub use connect::connect_within;
pub use daemon::{MadeUpDaemon, queue_facts};
pub use driver::{DATA, Driver, NEXT, Piece, SIZE, USER};
pub use front_end::FrontEnd;
pub use lingering::lingering_socket;
pub use memory_file::{attributes_of_one_file, marked_pages, memory_file};
#[cfg(test)]
pub(crate) use mounted_file::MountedFile;
pub use net::NetDriver;
pub use one_worker::OneWorker;
#[cfg(debug_assertions)]
pub(crate) use panics::panic_if_enabled;
pub use panics::{PANICS, let_requests_panic};
pub use qmp::Qmp;
