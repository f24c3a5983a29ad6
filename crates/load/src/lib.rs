//! Load generators that packaged tools do not offer: requests at a fixed rate, whether or not the server keeps up, and
//! latencies counted from when a request was due.
//!
//! A tool that sends the next request only after the last answer asks less of a slow server, and does not measure the
//! waiting time of the requests that it did not send ("coordinated omission"). Here requests are due at fixed times.

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
