//! Stand-ins until the rooms of guests, loads, samples and factors are merged.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Stand-in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkloadPlan {
    /// Its name.
    pub name: String,
    /// What runs.
    pub tool: String,
}
