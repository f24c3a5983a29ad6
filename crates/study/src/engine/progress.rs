//! The progress of a study.

use serde::{Deserialize, Serialize};

use crate::record::Cell;

/// The progress of a study.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StudyProgress {
    /// The run's position in the order.
    pub position: u32,
    /// The number of runs that are complete or have failed for good.
    pub done: u32,
    /// The number of runs in the blocks that are known to be needed.
    pub total: u32,
    /// The stop rule may require more blocks than `total` includes.
    pub at_least: bool,
    /// The cell of the run.
    pub cell: Cell,
    /// The attempt, counted from 0.
    pub attempt: u32,
    /// The current phase of the run.
    pub phase: Phase,
}

/// A phase of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// The arm's levels are being applied.
    Levels,
    /// Guests are being started.
    Guests,
    /// Files are being created in the guests.
    Prepare,
    /// A warm-up run, whose result is discarded.
    WarmUp,
    /// The run itself.
    Run,
    /// The repetition that counts exits.
    Repetition,
}
