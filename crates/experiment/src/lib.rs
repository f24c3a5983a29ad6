//! Plans, runs and honest statistics.

pub mod prove;
pub mod study;
pub mod verify;
mod waiting;

pub use waiting::pause;
