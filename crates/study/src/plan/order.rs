//! The number of repeats, the order, and the stop rule.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Span;
use crate::schedule::Schedule;

/// The most runs, above any practical study; the schedule numbers runs with 32 bits.
pub(super) const MOST_RUNS: u32 = 1_000_000;
/// The most blocks.
pub(super) const MOST_BLOCKS: u32 = 10_000;

/// The least number of blocks, and of pairs of each figure, before the width of intervals may end a study. Stopping as
/// soon as intervals are narrow favours those that are narrow by chance: with at least 3 blocks 90 of 100 contain the
/// truth, with at least 8 blocks 93 (`study_coverage`, among the tests).
pub const LEAST_FOR_WIDTH: u32 = 8;

/// The order of the runs. A block has every arm once, in random order; every second block
/// reverses the order of the one before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Order {
    /// The least number of blocks, each with one run of every arm.
    #[schemars(range(min = 1, max = 10_000))]
    pub repeats: u32,
    /// Warm-up runs of each workload after each start of the guests; their results are discarded.
    #[schemars(range(max = 100))]
    pub warm_up: u32,
    /// Attempts at a run before it has failed for good.
    #[schemars(range(min = 1, max = 20))]
    pub attempts: u32,
    /// The time limit of an attempt at a run, including the start of its guests, preparation and warm-up. By
    /// default the sum of the limits of these.
    pub run_limit: Option<Span>,
    /// The seed of the random order; chosen at random and recorded if not given.
    #[schemars(range(max = 9_007_199_254_740_991_u64))]
    pub seed: Option<u64>,
    /// More blocks until this is met.
    pub until: Option<Until>,
}

impl Default for Order {
    fn default() -> Self {
        Self { repeats: 4, warm_up: 1, attempts: 3, run_limit: None, seed: None, until: None }
    }
}

/// The stop rule: at the end of a block, as soon as one of these is met.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Until {
    /// Every 95 % interval of a change against the baseline is narrower than this, in percentage points from
    /// end to end.
    pub interval_percent: Option<f64>,
    /// The figures whose intervals must be so narrow, by name; all throughputs and latencies of the workloads
    /// if none are named.
    #[serde(default)]
    pub metrics: Vec<String>,
    /// The time since the start of the study, without pauses.
    pub budget: Option<Span>,
    /// The most blocks.
    #[schemars(range(min = 1, max = 10_000))]
    pub blocks: Option<u32>,
}

impl super::Plan {
    /// The largest number of blocks: of the stop rule, or else the limit for any study; without a stop rule, the
    /// repeats.
    pub fn most_blocks(&self) -> u32 {
        let repeats = self.order.repeats;
        let Some(until) = &self.order.until else { return repeats };
        let limit = || MOST_BLOCKS.min(MOST_RUNS / Schedule::new(self, 0).runs_per_block().max(1));
        until.blocks.unwrap_or_else(limit).max(repeats)
    }
}
