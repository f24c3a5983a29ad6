//! What a study has made already.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::study::record::{Cell, Run};

/// Runs and attempts of earlier sessions, and of this one before its link was lost.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Past {
    /// Whole runs.
    pub runs: Vec<Run>,
    /// Failed attempts by the run's place in the order.
    pub tried: BTreeMap<u32, Tried>,
    /// Seconds that the failed runs' sessions took, where they are more than those of the whole ones.
    pub spent: f64,
}

/// How often a run was tried in vain.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tried {
    /// Since the study's begin.
    pub ever: u32,
    /// This time, which counts against the plan's limit.
    pub now: u32,
}

impl Past {
    /// That of a result folder, at a session's begin.
    pub fn new(runs: &[Run], failed: &[Run]) -> Self {
        let mut tried: BTreeMap<u32, Tried> = BTreeMap::new();
        for run in failed {
            tried.entry(run.position).or_default().ever += 1;
        }
        let spent = runs.iter().chain(failed).map(|run| run.spent).fold(0.0, f64::max);
        Self { runs: runs.to_vec(), tried, spent }
    }

    pub(super) fn is_done(&self, cell: &Cell) -> bool {
        self.runs.iter().any(|run| run.cell == *cell)
    }

    /// Notes a failed attempt of this time.
    pub(in crate::study) fn fail(&mut self, position: u32) {
        let tried = self.tried.entry(position).or_default();
        tried.ever += 1;
        tried.now += 1;
    }

    pub(in crate::study) fn tried(&self, position: u32) -> Tried {
        self.tried.get(&position).copied().unwrap_or_default()
    }

    pub(in crate::study) fn spent(&self) -> f64 {
        self.spent
    }
}
