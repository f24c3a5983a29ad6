//! The request to the side with the guests.

use serde::{Deserialize, Serialize};

use crate::engine::Past;
use crate::plan::Plan;

/// A study, and its existing runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// [`super::STREAM_FORMAT`].
    pub format: u32,
    /// Identifies the study: a server that an earlier connection left behind is ended before the same study
    /// continues.
    pub study: String,
    /// The plan in full.
    pub plan: Plan,
    /// The seed of the orders.
    pub seed: u64,
    /// The existing runs.
    pub past: Past,
}
