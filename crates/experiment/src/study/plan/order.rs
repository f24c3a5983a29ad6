//! How often, in which order, and when it is enough.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::study::Span;

/// The order of the runs. A block has every arm once, in a random order of its own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Order {
    /// Blocks: how often each arm is measured at least.
    #[schemars(range(min = 1, max = 10_000))]
    pub repeats: u32,
    /// Runs of each workload that are thrown away each time the guests have been started.
    #[schemars(range(max = 100))]
    pub warm_up: u32,
    /// How often a run is tried before it has failed for good.
    #[schemars(range(min = 1, max = 20))]
    pub attempts: u32,
    /// How long an attempt at a run may take, the start of its guests, preparation and warm-up included, before it has
    /// failed. By default what the limits of these add up to.
    pub run_limit: Option<Span>,
    /// What the random order comes from; by chance where it is not given, and recorded.
    #[schemars(range(max = 9_007_199_254_740_991_u64))]
    pub seed: Option<u64>,
    /// More blocks until this is reached.
    pub until: Option<Until>,
}

impl Default for Order {
    fn default() -> Self {
        Self { repeats: 4, warm_up: 1, attempts: 3, run_limit: None, seed: None, until: None }
    }
}

/// When it is enough: as soon as one of these is reached, at the end of a block.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Until {
    /// Every 95 % interval of a change against the baseline is narrower than this, in percentage points from end to
    /// end.
    pub interval_percent: Option<f64>,
    /// The figures that must be so sure, by name; all throughputs and latencies of the workloads where none are named.
    #[serde(default)]
    pub metrics: Vec<String>,
    /// The time since the study's start, pauses not counted.
    pub budget: Option<Span>,
    /// Blocks at most.
    #[schemars(range(min = 1, max = 10_000))]
    pub blocks: Option<u32>,
}

impl super::Plan {
    /// Blocks that are made at most; those of a time budget alone are not bounded but by the largest number.
    pub fn most_blocks(&self) -> u32 {
        let until = self.order.until.as_ref();
        until.and_then(|until| until.blocks).unwrap_or(self.order.repeats).max(self.order.repeats)
    }
}
