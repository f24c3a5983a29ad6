//! The order of the runs: block after block, each with every arm once.
//!
//! The order of a block's arms depends only on the seed and the block's number, so a study that continues
//! after an interruption, or that gets more blocks than planned, keeps its order.
//!
//! Every second block has the order of the one before reversed. With a random order in each, one of two arms would be the
//! first in all of four blocks in one study of eight, and the effect of the place would be reported as that of the arm. A
//! steady drift of the host cancels in the two blocks as well.

mod enough;

pub use enough::{Enough, enough};

use rand::rngs::ChaCha8Rng;
use rand::{Rng as _, SeedableRng as _};

use super::plan::{Arm, Plan};
use super::record::Cell;
use guests::GuestPlan;

/// All runs of a plan with a seed.
#[derive(Debug, Clone)]
pub struct Schedule {
    seed: u64,
    visits: Vec<Visit>,
    workloads: Vec<String>,
}

/// The runs of one arm, in any block.
#[derive(Debug, Clone)]
struct Visit {
    arm: Arm,
    names: std::collections::BTreeMap<String, String>,
    guests: GuestPlan,
    counts: Vec<u32>,
}

/// The runs of one arm in one block, in their order.
#[derive(Debug, Clone)]
pub struct ArmRuns {
    /// The arm.
    pub arm: Arm,
    /// Its guests.
    pub guests: GuestPlan,
    /// The runs, by number of guests, ascending.
    pub slots: Vec<Slot>,
}

/// A run to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    /// Its position in the order of all runs.
    pub position: u32,
    /// Its cell.
    pub cell: Cell,
    /// The workload, by its index in the plan.
    pub workload: usize,
}

impl Schedule {
    /// The schedule of a checked plan.
    pub fn new(plan: &Plan, seed: u64) -> Self {
        let visit = |arm: Arm| {
            let guests = plan.guests_of(&arm).unwrap_or_else(|_| plan.guests.clone());
            Visit { names: plan.arm_names(&arm), counts: guests.counts(), guests, arm }
        };
        let workloads = plan.workloads.iter().map(|workload| workload.name.clone()).collect();
        Self { seed, visits: plan.arms().into_iter().map(visit).collect(), workloads }
    }

    /// The number of runs of one block.
    pub fn runs_per_block(&self) -> u32 {
        let counts: usize = self.visits.iter().map(|visit| visit.counts.len()).sum();
        u32::try_from(counts * self.workloads.len()).unwrap_or(u32::MAX)
    }

    /// The number of starts of guests in one block, without warm-ups and failures.
    pub(crate) fn guest_starts_per_block(&self) -> u64 {
        self.visits.iter().filter_map(|visit| visit.counts.last()).map(|&most| u64::from(most)).sum()
    }

    /// The number of times in a block that guests are started or added, each of which is followed by warm-up runs.
    pub(crate) fn counts_per_block(&self) -> u64 {
        self.visits.iter().map(|visit| visit.counts.len() as u64).sum()
    }

    /// The arms of a block in their order.
    pub fn block(&self, block: u32) -> Vec<ArmRuns> {
        let mut position = block.saturating_mul(self.runs_per_block());
        self.order(block)
            .into_iter()
            .map(|index| {
                let visit = &self.visits[index];
                let cells = visit.counts.iter().flat_map(|&guests| {
                    self.workloads.iter().enumerate().map(move |(workload, name)| {
                        let cell = Cell { block, arm: visit.names.clone(), guests, workload: name.clone() };
                        (cell, workload)
                    })
                });
                let slots = cells
                    .map(|(cell, workload)| {
                        let slot = Slot { position, cell, workload };
                        position += 1;
                        slot
                    })
                    .collect();
                ArmRuns { arm: visit.arm.clone(), guests: visit.guests.clone(), slots }
            })
            .collect()
    }

    /// A Fisher–Yates shuffle for every second block, and its reverse for the next one. Our own, because the order must
    /// not change with the version of a library.
    fn order(&self, block: u32) -> Vec<usize> {
        let is_reversed = block % 2 == 1;
        let mut random = ChaCha8Rng::seed_from_u64(self.seed);
        random.set_stream(u64::from(block - u32::from(is_reversed)));
        let mut order: Vec<usize> = (0..self.visits.len()).collect();
        for last in (1..order.len()).rev() {
            let other = random.next_u64() % (last as u64 + 1);
            order.swap(last, usize::try_from(other).unwrap_or(last));
        }
        if is_reversed {
            order.reverse();
        }
        order
    }
}

#[cfg(test)]
#[path = "schedule_tests.rs"]
mod tests;
