//! What the policy remembers from one decision to the next.

use super::Direction;
use super::policy::SPARE_PERIODS;
use super::trial::{LoadProfile, Trial};
use std::collections::BTreeMap;

/// What the policy remembers from one decision to the next.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PolicyState {
    pub(super) trial: Option<Trial>,
    /// Periods until the next try without a cause, by direction.
    patience: BTreeMap<Direction, Patience>,
    /// The load for which patience was learnt.
    learnt: Option<LoadProfile>,
    /// Loads that were there, and the CPUs' worth of I/O that they wanted when that was last seen whole; the latest last.
    seen: Vec<(LoadProfile, f64)>,
    /// Periods in a row in which fewer cores would do.
    pub(super) spare: u32,
    /// Periods since cores were given back.
    pub(super) since_fewer: Option<u32>,
    /// What I/O took with each number of cores, in CPUs' worth, when that was first seen of the load for which patience was
    /// learnt.
    shown: BTreeMap<usize, f64>,
    /// Seconds that a request takes longer where workers have no core of their own: seen when they got one, or lost it.
    pub(super) longer_alone: f64,
}

/// I/O that changed by this factor with the same cores is another load.
const ANOTHER_IO: f64 = 1.3;
/// Less I/O than so many CPUs' worth is all alike.
const LITTLE_IO: f64 = 0.05;

/// So many loads are remembered.
const SEEN: usize = 16;

impl PolicyState {
    /// One period more has passed, with this load.
    pub(super) fn pass(&mut self, load: LoadProfile, cores: usize, useful: f64) {
        if self.learnt.is_none_or(|learnt| learnt.differs(&load)) {
            self.patience.clear();
            self.learnt = Some(load);
            self.shown.clear();
        }
        // Workers that are as full as before, or vCPUs that are as short of CPUs, hide how much more is wanted now; what is
        // done by the same cores shows it.
        if self.trial.is_none() {
            let first = *self.shown.entry(cores).or_insert(useful);
            let (low, high) = (first.min(useful) + LITTLE_IO, first.max(useful) + LITTLE_IO);
            if high > low * ANOTHER_IO {
                self.patience.clear();
                self.shown = [(cores, useful)].into();
            }
        }
        for patience in self.patience.values_mut() {
            patience.left = patience.left.saturating_sub(1);
        }
        self.since_fewer = self.since_fewer.map(|periods| periods + 1).filter(|&periods| periods < SOON);
    }

    /// What was decided was said and not done: nothing is on trial, and what is wanted is wanted as much in the next period.
    pub(super) fn only_said(&mut self) {
        if self.trial.take().is_some_and(|trial| trial.direction == Direction::Fewer) {
            // The periods that fewer cores had to do for are over, however often this is said.
            self.spare = SPARE_PERIODS;
        }
        self.since_fewer = None;
    }

    /// Whether this way is not to be tried yet.
    pub(super) fn is_patient(&self, direction: Direction) -> bool {
        self.patience.get(&direction).is_some_and(|patience| patience.left > 0)
    }

    /// This way paid: no reason to wait with it.
    pub(super) fn trust(&mut self, direction: Direction) {
        self.patience.remove(&direction);
    }

    /// What this load wanted when that was last seen whole.
    pub(super) fn known(&self, load: &LoadProfile) -> Option<f64> {
        self.seen.iter().rev().find(|(seen, _)| !seen.differs(load)).map(|&(_, io)| io)
    }

    /// Makes the next try of this way later than the last one. The periods until then.
    pub(super) fn hesitate(&mut self, direction: Direction) -> u32 {
        let patience = self.patience.entry(direction).or_default();
        patience.next = (patience.next * 2).clamp(*PATIENCE.start(), *PATIENCE.end());
        patience.left = patience.next;
        patience.next
    }

    /// Keeps what a request takes longer without a core for I/O, where that was seen.
    pub(super) fn learn_alone(&mut self, longer: Option<f64>) {
        self.longer_alone = longer.unwrap_or(self.longer_alone);
    }

    pub(super) fn learn(&mut self, load: LoadProfile, io: f64) {
        self.seen.retain(|(seen, _)| seen.differs(&load));
        self.seen.push((load, io));
        if self.seen.len() > SEEN {
            self.seen.remove(0);
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Patience {
    left: u32,
    next: u32,
}

/// Patience at first and at most, in periods.
const PATIENCE: std::ops::RangeInclusive<u32> = 8..=256;
/// A core that is wanted again within so many periods should not have been given back.
const SOON: u32 = 20;
