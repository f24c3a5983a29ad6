//! The other side, for tests, benchmarks and fuzzing: a guest's drivers, and a front-end that speaks vhost-user for them.

mod block;
mod by_hand;
mod daemon;
mod driver;
mod front_end;
mod net;

pub use block::BlockDriver;
pub use by_hand::ByHand;
pub use daemon::{MadeUpDaemon, queue_facts};
pub use driver::{DATA, Driver, Piece, SIZE, USER};
pub use front_end::FrontEnd;
pub use net::NetDriver;
