//! The request to the machine with the guests.

use serde::{Deserialize, Serialize};

use crate::engine::Past;
use crate::plan::Plan;

/// A study, and its existing runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// [`super::STREAM_FORMAT`].
    pub format: u32,
    /// Identifies the study, so that a server that is left over from an earlier connection can be ended first.
    pub study: String,
    /// The plan in full.
    pub plan: Plan,
    /// The seed of the random orders.
    pub seed: u64,
    /// The existing runs.
    pub past: Past,
}
