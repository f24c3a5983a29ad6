//! Loads of our own, for what no packaged tool does: a rate that is asked for whether or not it is attained.

mod outcome;

pub use outcome::{LOAD_FORMAT, Latency, NoOutcome, Outcome, Protocol};
