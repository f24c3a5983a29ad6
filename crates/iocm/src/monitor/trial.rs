//! A change of the number of cores on trial, and what tells one load from another.

use super::{Direction, Layout, QueueView, Settings, View};
use std::collections::{BTreeMap, BTreeSet};

/// A load that changed by this factor is another one.
const ANOTHER: f64 = 1.3;
/// Cores that went to I/O do not make vCPUs want so much less, and those that were given back not so much more.
const MUCH_ANOTHER: f64 = 1.5;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Trial {
    pub(super) direction: Direction,
    /// The number of cores to go back to.
    pub(super) before: usize,
    /// Who was where.
    pub(super) layout: Layout,
    /// What each queue did: requests per second and its part of the load.
    pub(super) served: BTreeMap<u32, (f64, f64)>,
    pub(super) load: LoadProfile,
    pub(super) left: u32,
}

/// What tells one phase of a load from another.
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
