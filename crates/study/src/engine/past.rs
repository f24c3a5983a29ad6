//! The earlier runs of a study.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::plan::Plan;
use crate::record::{Cell, Run};
use crate::schedule::{Enough, Schedule, Slot, enough};

/// Runs and attempts of earlier sessions, and of this session before its connection was lost.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Past {
    /// The complete runs; of earlier sessions only those of whole blocks.
    pub runs: Vec<Run>,
    /// The complete runs of earlier sessions in incomplete blocks, which are made again.
    pub of_incomplete: Vec<Run>,
    /// Failed attempts by the run's position in the order.
    pub tried: BTreeMap<u32, Tried>,
    /// The seconds that the study had taken at the end of the last of its runs, complete or failed.
    pub spent: f64,
}

/// The number of failed attempts at a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tried {
    /// In all sessions.
    pub ever: u32,
    /// In this session: the plan's limit of attempts is for one session.
    pub now: u32,
}

impl Past {
    /// The past of a result folder at the start of a session.
    ///
    /// A block is whole if one session made all of its runs. The runs of other blocks do not count, so the block is made
    /// again: the host may have changed between two sessions, which would look like the effect of an arm.
    pub fn new(plan: &Plan, runs: &[Run], failed: &[Run]) -> Self {
        let mut tried: BTreeMap<u32, Tried> = BTreeMap::new();
        for run in failed {
            tried.entry(run.position).or_default().ever += 1;
        }
        let spent = runs.iter().chain(failed).map(|run| run.spent).fold(0.0, f64::max);
        let mut made: BTreeMap<(u32, u32), u32> = BTreeMap::new();
        for run in runs {
            *made.entry((run.cell.block, run.session)).or_default() += 1;
        }
        let each = Schedule::new(plan, 0).runs_per_block();
        let is_of_whole = |run: &Run| made.get(&(run.cell.block, run.session)) == Some(&each);
        let (runs, of_incomplete) = runs.iter().cloned().partition(is_of_whole);
        Self { runs, of_incomplete, tried, spent }
    }

    /// Tests whether the study is complete: its stop rule is met, and no block lacks a run.
    pub fn is_complete(&self, plan: &Plan, seed: u64) -> bool {
        let schedule = Schedule::new(plan, seed);
        let is_whole = |block: u32| {
            let mut slots = schedule.block(block).into_iter().flat_map(|arm| arm.slots);
            slots.all(|slot| self.is_done(&slot.cell))
        };
        let mut blocks = 0;
        while self.is_over(plan, blocks, self.spent).is_none() {
            // The loop ends here at the latest: a block that was not started is incomplete.
            if !is_whole(blocks) {
                return false;
            }
            blocks += 1;
        }
        true
    }

    /// The reason to stop after the first `blocks`, if any. Blocks that were already started are completed first.
    pub(super) fn is_over(&self, plan: &Plan, blocks: u32, spent: f64) -> Option<Enough> {
        let each = Schedule::new(plan, 0).runs_per_block().max(1);
        let tried = self.tried.keys().map(|position| position / each);
        let made = self.runs.iter().chain(&self.of_incomplete).map(|run| run.cell.block);
        if made.chain(tried).max().is_some_and(|last| last >= blocks) {
            return None;
        }
        // A result may contain any number.
        let spent = Duration::try_from_secs_f64(spent.max(0.0)).unwrap_or(Duration::MAX);
        enough(plan, blocks, spent, &self.runs)
    }

    /// The runs that an earlier session made in an incomplete block, if it made all of the block's `slots` that are not
    /// hopeless.
    pub(super) fn all_but(
        &self,
        block: u32,
        slots: &[Slot],
        is_hopeless: impl Fn(&Cell) -> bool,
    ) -> Option<Vec<Run>> {
        let mut sessions: BTreeMap<u32, Vec<&Run>> = BTreeMap::new();
        for run in self.of_incomplete.iter().filter(|run| run.cell.block == block) {
            sessions.entry(run.session).or_default().push(run);
        }
        let made_all_others = |made: &Vec<&Run>| {
            let is_made = |cell: &Cell| made.iter().any(|run| run.cell == *cell);
            slots.iter().all(|slot| is_made(&slot.cell) || is_hopeless(&slot.cell))
        };
        let made = sessions.into_values().rev().find(made_all_others)?;
        Some(made.into_iter().cloned().collect())
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
