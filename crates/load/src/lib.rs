//! Load generators for what no packaged tool does: requests at a fixed rate, attained or not, and latencies
//! counted from when a request was due.
//!
//! A tool that sends the next request only when the last one was answered asks less of a slow server, and
//! misses the waiting time of the requests it did not send ("coordinated omission"). Here requests are due at
//! fixed moments.

mod connection;
mod crowd;
mod error;
#[doc(hidden)]
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
pub use mqtt::{MOSQUITTO, MqttLoad};
pub use outcome::{LOAD_FORMAT, Latency, LoadResult, NoOutcome, Protocol};
