//! The runs that a study asks for.

use crate::engine::Past;
use crate::plan::Plan;
use crate::record::Cell;
use crate::schedule::{Schedule, Slot};

/// The runs that a study asks the other side for. That side is not trusted, and everything accepted from it takes
/// memory and disk space here.
#[derive(Debug)]
pub struct Asked {
    schedule: Schedule,
    blocks: u32,
    attempts: u32,
}

impl Asked {
    /// The runs of a plan with a seed.
    pub fn of(plan: &Plan, seed: u64) -> Self {
        Self {
            schedule: Schedule::new(plan, seed),
            blocks: plan.most_blocks(),
            attempts: plan.order.attempts,
        }
    }

    /// Tests whether the schedule has this cell at this position.
    pub fn has(&self, cell: &Cell, position: u32) -> bool {
        self.slot(cell).is_some_and(|slot| slot.position == position)
    }

    /// Tests whether the schedule has this cell, which does not depend on the seed.
    pub(crate) fn has_cell(&self, cell: &Cell) -> bool {
        self.slot(cell).is_some()
    }

    /// Tests whether the position is in the cell's block, which does not depend on the seed.
    pub(crate) fn is_in_block(&self, cell: &Cell, position: u32) -> bool {
        position / self.schedule.runs_per_block().max(1) == cell.block
    }

    fn slot(&self, cell: &Cell) -> Option<Slot> {
        let slots = || self.schedule.block(cell.block).into_iter().flat_map(|arm| arm.slots);
        (cell.block < self.blocks).then(|| slots().find(|slot| slot.cell == *cell)).flatten()
    }

    /// Tests whether a run of this cell at this position is still missing from `past`, and may be attempted again.
    pub fn lacks(&self, cell: &Cell, position: u32, past: &Past) -> bool {
        self.has(cell, position)
            && past.tried(position).now < self.attempts
            && !past.runs.iter().any(|run| run.cell == *cell)
    }
}
