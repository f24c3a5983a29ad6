//! The memory of the policy from one decision to the next: a change on trial, earlier loads, and the time until the
//! next try.

use super::{Layout, QueueView, Settings, View};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Periods in a row in which fewer cores must do before one is given back.
pub(super) const SPARE_PERIODS: u32 = 3;

/// A load that changed by this factor is another one.
const ANOTHER: f64 = 1.3;
/// Cores that went to I/O do not make vCPUs want so much less, and those that were given back not so much more.
const MUCH_ANOTHER: f64 = 1.5;

/// Which way the number of cores goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// More I/O cores.
    More,
    /// Fewer I/O cores.
    Fewer,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Trial {
    pub(super) direction: Direction,
    /// The number of cores to go back to.
    pub(super) before: usize,
    /// Who was where.
    pub(super) layout: Layout,
    /// The requests per second of each queue, and its part of the load.
    pub(super) served: BTreeMap<u32, (f64, f64)>,
    pub(super) load: LoadProfile,
    pub(super) left: u32,
}

/// The properties by which one phase of a load differs from another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct LoadProfile {
    per_request: f64,
    bytes_per_request: f64,
    active: usize,
    wanted: f64,
}

pub(super) enum TrialResult {
    /// The load is another one: the comparison means nothing.
    Another,
    Paid(f64),
    Harmed(f64),
}

impl Trial {
    pub(super) fn begin(
        direction: Direction,
        before: usize,
        settle: u32,
        view: &View,
        load: LoadProfile,
    ) -> Self {
        let useful = view.useful();
        let share = |queue: &QueueView| if useful > 0.0 { queue.useful / useful } else { 0.0 };
        let served = view.queues.iter().map(|queue| (queue.number, (queue.requests, share(queue)))).collect();
        Self { direction, before, layout: Layout::of(view), served, load, left: settle }
    }

    /// Who was where before, if that can be again: the same queues, on cores that are still there.
    pub(super) fn undone(&self, view: &View) -> Option<Layout> {
        let queues: BTreeSet<u32> = view.queues.iter().map(|queue| queue.number).collect();
        let before: BTreeSet<u32> = self.layout.cores_by_queue().into_keys().collect();
        let has = |core: &u32| view.cores.iter().any(|one| one.number == *core);
        (queues == before && self.layout.0.keys().flatten().all(has)).then(|| self.layout.clone())
    }

    /// Seconds that a request takes longer without a core for I/O, where one of both sides had none.
    pub(super) fn longer_alone(&self, cores: usize, load: &LoadProfile) -> Option<f64> {
        let (alone, own) = match (self.before, cores) {
            (0, 1..) => (&self.load, load),
            (1.., 0) => (load, &self.load),
            _ => return None,
        };
        let is_same = !self.load.differs_in_kind(load) && own.per_request > 0.0;
        is_same.then(|| (alone.per_request - own.per_request).max(0.0))
    }

    /// Each queue's requests now as a share of those before, weighted by its part of the load: queues with few large
    /// requests count as much as those with many small ones.
    pub(super) fn judge(&self, settings: &Settings, view: &View, load: &LoadProfile) -> TrialResult {
        let (before, now) = (self.load.wanted + 0.5, load.wanted + 0.5);
        let is_other_computing = match self.direction {
            Direction::More => before > now * MUCH_ANOTHER,
            Direction::Fewer => now > before * MUCH_ANOTHER,
        };
        if self.load.differs_in_kind(load) || is_other_computing {
            return TrialResult::Another;
        }
        let mut ratio = 0.0;
        let mut weights = 0.0;
        for queue in &view.queues {
            if let Some(&(before, weight)) = self.served.get(&queue.number) {
                if before > 0.0 {
                    ratio += weight * (queue.requests / before);
                    weights += weight;
                }
            }
        }
        if weights <= 0.0 {
            return TrialResult::Another;
        }
        let ratio = ratio / weights;
        // A core that vCPUs miss is given only for what it brings.
        let must_pay = self.direction == Direction::More && view.waiting >= settings.short;
        let enough = ratio >= if must_pay { 1.0 + settings.margin } else { 1.0 - settings.margin };
        if enough { TrialResult::Paid(ratio) } else { TrialResult::Harmed(ratio) }
    }
}

impl LoadProfile {
    pub(super) fn of(view: &View) -> Self {
        let requests = view.requests().max(f64::MIN_POSITIVE);
        Self {
            per_request: view.useful() / requests,
            bytes_per_request: view.queues.iter().map(|queue| queue.bytes).sum::<f64>() / requests,
            active: view.queues.iter().filter(|queue| queue.useful > 0.001).count(),
            wanted: view.computing + view.waiting,
        }
    }

    /// Other requests than before, or from others: no change of cores does that.
    fn differs_in_kind(&self, other: &Self) -> bool {
        apart(self.bytes_per_request, other.bytes_per_request, ANOTHER)
            || apart(self.active as f64 + 1.0, other.active as f64 + 1.0, ANOTHER)
    }

    pub(super) fn differs(&self, other: &Self) -> bool {
        self.differs_in_kind(other) || apart(self.wanted + 0.5, other.wanted + 0.5, ANOTHER)
    }
}

fn apart(one: f64, other: f64, factor: f64) -> bool {
    let (low, high) = (one.min(other), one.max(other));
    high > low * factor && high > 0.0
}

/// The memory of the policy from one decision to the next.
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
    /// The first I/O, in CPUs' worth, that was seen with each number of cores under the load for which patience was
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

    /// The decision was told and not carried out: nothing is on trial, and the next period wants the same.
    pub(super) fn only_said(&mut self) {
        if self.trial.take().is_some_and(|trial| trial.direction == Direction::Fewer) {
            // The periods that fewer cores had to do for are over, however often this is said.
            self.spare = SPARE_PERIODS;
        }
        self.since_fewer = None;
    }

    /// Tests whether it is too early to try this direction again.
    pub(super) fn is_patient(&self, direction: Direction) -> bool {
        self.patience.get(&direction).is_some_and(|patience| patience.left > 0)
    }

    /// This way paid: no reason to wait with it.
    pub(super) fn trust(&mut self, direction: Direction) {
        self.patience.remove(&direction);
    }

    /// The demand of this load when it was last seen in full.
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
