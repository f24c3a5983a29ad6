//! The earlier runs of a study.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::record::{Cell, Run};

/// Runs and attempts of earlier sessions, and of this session before its connection was lost.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Past {
    /// The complete runs.
    pub runs: Vec<Run>,
    /// Failed attempts by the run's position in the order.
    pub tried: BTreeMap<u32, Tried>,
    /// Seconds that the sessions with failed runs took, if longer than those of the complete runs.
    pub spent: f64,
}

/// The number of failed attempts at a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tried {
    /// Since the start of the study.
    pub ever: u32,
    /// In this session, which the plan's limit counts.
    pub now: u32,
}

impl Past {
    /// The past of a result folder at the start of a session.
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

    /// Records a failed attempt of this session.
    pub(crate) fn fail(&mut self, position: u32) {
        let tried = self.tried.entry(position).or_default();
        tried.ever += 1;
        tried.now += 1;
    }

    pub(crate) fn tried(&self, position: u32) -> Tried {
        self.tried.get(&position).copied().unwrap_or_default()
    }

    pub(crate) fn spent(&self) -> f64 {
        self.spent
    }
}
