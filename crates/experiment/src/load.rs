//! Loads of our own, for what no packaged tool does: a rate that is asked for whether or not it is attained, and
//! latencies from when a request was due.
//!
//! A tool that sends the next request when the last one was answered asks less of a server that is slow, and does not
//! see the waiting of those that it did not send ("coordinated omission"). Here requests are due at fixed moments.

mod connection;
mod crowd;
mod error;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod http;
mod machine;
mod mqtt;
mod outcome;
mod reactor;
mod schedule;
mod tally;
mod threads;

pub use error::LoadError;
pub use http::HttpLoad;
pub use mqtt::MqttLoad;
pub use outcome::{LOAD_FORMAT, Latency, NoOutcome, Outcome, Protocol};
