//! What the policy decides, with the figures that led to it.

use super::Layout;
use serde::{Deserialize, Serialize};

/// Which way the number of cores goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// More I/O cores.
    More,
    /// Fewer I/O cores.
    Fewer,
}

/// What to do, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// How queues should be served from now on.
    pub layout: Layout,
    /// Why.
    pub reason: Reason,
}

/// Why a decision was made, with the figures that led to it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "reason")]
pub enum Reason {
    /// Everything is as it should be.
    Fine {
        /// CPUs' worth of time spent on requests.
        useful: f64,
        /// I/O cores.
        cores: usize,
    },
    /// The workers would be too busy with the cores that they have.
    Busy {
        /// CPUs' worth of time spent on requests.
        useful: f64,
        /// I/O cores before.
        before: usize,
        /// I/O cores after.
        after: usize,
    },
    /// Fewer cores are enough.
    Spare {
        /// CPUs' worth of time spent on requests.
        useful: f64,
        /// I/O cores before.
        before: usize,
        /// I/O cores after.
        after: usize,
    },
    /// vCPUs wait for CPUs that the workers can spare.
    Short {
        /// CPUs' worth of waiting vCPUs.
        waiting: f64,
        /// I/O cores before.
        before: usize,
        /// I/O cores after.
        after: usize,
    },
    /// The change before did not pay and was taken back.
    Regret {
        /// The way it went.
        direction: Direction,
        /// What was served after it, as a share of what was served before.
        ratio: f64,
        /// I/O cores again.
        cores: usize,
        /// Periods until it is tried again.
        patience: u32,
    },
    /// The change before paid, or did no harm.
    Kept {
        /// The way it went.
        direction: Direction,
        /// What was served after it, as a share of what was served before.
        ratio: f64,
        /// I/O cores.
        cores: usize,
    },
    /// The cores are right, the queues were not evenly spread over them.
    Uneven {
        /// The busiest worker's load, as a share of its core.
        most: f64,
        /// The idlest worker's.
        least: f64,
    },
}
