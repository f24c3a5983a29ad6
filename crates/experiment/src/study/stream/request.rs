//! What the side with the guests is asked to do.

use serde::{Deserialize, Serialize};

use crate::study::engine::Past;
use crate::study::plan::Plan;

/// A study, and what of it is there already.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// [`super::STREAM_FORMAT`].
    pub format: u32,
    /// Tells studies apart: a server that an earlier link left behind is ended before the same study goes on.
    pub study: String,
    /// The plan in full.
    pub plan: Plan,
    /// What the orders come from.
    pub seed: u64,
    /// What is there already.
    pub past: Past,
}
