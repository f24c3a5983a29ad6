//! The memory of the policy from one decision to the next: the change on trial, earlier loads, and the delay until the
//! next trial.

use super::{Layout, QueueView, Settings, View};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The number of consecutive periods in which fewer cores must suffice before one is given back.
pub(super) const SPARE_PERIODS: u32 = 3;

/// A load that changed by this factor counts as a different load.
const ANOTHER: f64 = 1.3;
/// The same for the demand of vCPUs during a trial: the trial itself changes the demand by less than this.
const MUCH_ANOTHER: f64 = 1.5;

/// The direction of a change of the number of cores.
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
    /// The number of cores before the trial.
    pub(super) before: usize,
    /// The layout before the trial.
    pub(super) layout: Layout,
    /// The requests per second of each queue before the trial, and the queue's share of the load.
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
    /// The load has changed: a comparison would mean nothing.
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

    /// The layout before the trial, if it can be restored: the queues are the same, and the cores still exist.
    pub(super) fn undone(&self, view: &View) -> Option<Layout> {
        let queues: BTreeSet<u32> = view.queues.iter().map(|queue| queue.number).collect();
        let before: BTreeSet<u32> = self.layout.cores_by_queue().into_keys().collect();
        let has = |core: &u32| view.cores.iter().any(|one| one.number == *core);
        (queues == before && self.layout.0.keys().flatten().all(has)).then(|| self.layout.clone())
    }

    /// Tests whether cores were to be added and none was: the actuator refused.
    pub(super) fn was_refused(&self, cores: usize) -> bool {
        self.direction == Direction::More && cores <= self.before
    }

    /// The extra seconds of a request without a dedicated core, if there was none before or after the change.
    pub(super) fn longer_alone(&self, cores: usize, load: &LoadProfile) -> Option<f64> {
        let (alone, own) = match (self.before, cores) {
            (0, 1..) => (&self.load, load),
            (1.., 0) => (load, &self.load),
            _ => return None,
        };
        let is_same = !self.load.differs_in_kind(load) && own.per_request > 0.0;
        is_same.then(|| (alone.per_request - own.per_request).max(0.0))
    }

    /// Compares each queue's throughput with that before, weighted by its share of the load. So queues with few large
    /// requests count as much as queues with many small ones.
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
            if let Some(&(before, weight)) = self.served.get(&queue.number)
                && before > 0.0
            {
                ratio += weight * (queue.requests / before);
                weights += weight;
            }
        }
        if weights <= 0.0 {
            return TrialResult::Another;
        }
        let ratio = ratio / weights;
        // vCPUs are short of CPUs: a core is kept for I/O only if it raises the throughput.
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

    /// Tests whether the requests have another size or come from another number of queues, which a change of cores does
    /// not cause.
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
    /// The delay until the next trial, by direction.
    patience: BTreeMap<Direction, Patience>,
    /// The load that the delays belong to.
    learnt: Option<LoadProfile>,
    /// Earlier loads and their demand for I/O, in CPUs' worth, when no worker was last full. The latest is last.
    seen: Vec<(LoadProfile, f64)>,
    /// The number of consecutive periods in which fewer cores would suffice.
    pub(super) spare: u32,
    /// Periods since cores were given back.
    pub(super) since_fewer: Option<u32>,
    /// The I/O that was first seen with each number of cores, in CPUs' worth, under the load that the delays belong to.
    shown: BTreeMap<usize, f64>,
    /// The extra seconds of a request without a dedicated core, learnt whenever the number of dedicated cores goes from
    /// or to 0.
    pub(super) longer_alone: f64,
}

/// I/O that changed by this factor on the same number of cores is a different load.
const ANOTHER_IO: f64 = 1.3;
/// Added to both amounts of I/O, in CPUs' worth, before they are compared: small amounts do not differ.
const LITTLE_IO: f64 = 0.05;

/// The number of loads that are remembered.
const SEEN: usize = 16;

impl PolicyState {
    /// Accounts for one more period with this load.
    pub(super) fn pass(&mut self, load: LoadProfile, cores: usize, useful: f64) {
        if self.learnt.is_none_or(|learnt| learnt.differs(&load)) {
            self.patience.clear();
            self.learnt = Some(load);
            self.shown.clear();
        }
        // Full workers, or vCPUs that are short of CPUs, hide a change of the demand. The I/O served by the same number
        // of cores shows it.
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

    /// The decision was reported but not carried out (dry run): no trial runs, and the next period decides the same.
    pub(super) fn only_said(&mut self) {
        if self.trial.take().is_some_and(|trial| trial.direction == Direction::Fewer) {
            // The required periods have passed; do not count them again for the next report.
            self.spare = SPARE_PERIODS;
        }
        self.since_fewer = None;
    }

    /// Tests whether the next trial in this direction is still delayed.
    pub(super) fn is_patient(&self, direction: Direction) -> bool {
        self.patience.get(&direction).is_some_and(|patience| patience.left > 0)
    }

    /// Resets the delay after a trial in this direction paid.
    pub(super) fn reset_delay(&mut self, direction: Direction) {
        self.patience.remove(&direction);
    }

    /// The demand of this load when no worker was last full.
    pub(super) fn known(&self, load: &LoadProfile) -> Option<f64> {
        self.seen.iter().rev().find(|(seen, _)| !seen.differs(load)).map(|&(_, io)| io)
    }

    /// Doubles the delay until the next trial in this direction. Returns it, in periods.
    pub(super) fn double_delay(&mut self, direction: Direction) -> u32 {
        let patience = self.patience.entry(direction).or_default();
        patience.next = (patience.next * 2).clamp(*PATIENCE.start(), *PATIENCE.end());
        patience.left = patience.next;
        patience.next
    }

    /// Sets how much longer a request takes without a dedicated core, if a trial has shown it.
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

/// The first and the longest delay, in periods.
const PATIENCE: std::ops::RangeInclusive<u32> = 8..=256;
/// A core that is needed again within this many periods should not have been given back.
const SOON: u32 = 20;
