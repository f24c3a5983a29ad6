//! The assignment of queues to workers, decided from figures alone.
//!
//! The longest-processing-time rule (Graham, "Bounds on multiprocessing timing anomalies", 1969): the heaviest queue
//! goes first, to the least loaded core. The largest load is at most 4/3 of the optimum. Three preferences modify the
//! rule: a queue stays where it is unless a move is worth it, a queue prefers a core on its VM's NUMA node, and bulk is
//! kept apart from the rest.

use super::{Core, Layout, QueueView, WorkerCore};
use std::collections::{BTreeMap, BTreeSet};

/// A queue moves only if its new core is better by this share of a core.
const STAY: f64 = 0.05;
/// The extra cost of serving a queue from another NUMA node, as a share of its own load.
const FAR: f64 = 0.3;
/// Queues move to their own node if that saves this many CPUs' worth.
const WORTH_FAR: f64 = 0.1;
/// The cost of waiting behind bulk, as a share of a core.
const MIXED: f64 = 0.15;
/// Loads may differ by this share of a core before queues move just to even them out.
const TOLERATED: f64 = 0.15;

/// Bins by class, each class sorted by load. Within a class only the least loaded bin can be the cheapest, so ten
/// thousand queues are assigned to hundreds of cores quickly.
#[derive(Default)]
struct Bins {
    all: Vec<Bin>,
    by_class: BTreeMap<Class, BTreeSet<(u64, usize)>>,
}

struct Bin {
    core: Core,
    load: f64,
    bulk: f64,
    other: f64,
}

/// The NUMA node, whether the bin has bulk, and whether it has other queues.
type Class = (u32, bool, bool);

impl Bin {
    fn class(&self) -> Class {
        (self.core.node, self.bulk > STAY, self.other > STAY)
    }

    /// The sort key of a bin. Loads are not negative, so their bits sort like the numbers.
    fn order(&self, index: usize) -> (u64, usize) {
        (self.load.max(0.0).to_bits(), index)
    }
}

impl Bins {
    fn of(cores: &[Core]) -> Self {
        let mut bins = Self::default();
        for &core in cores {
            bins.all.push(Bin { core, load: 0.0, bulk: 0.0, other: 0.0 });
            bins.sort_in(bins.all.len() - 1);
        }
        bins
    }

    fn sort_in(&mut self, index: usize) {
        if let Some(bin) = self.all.get(index) {
            self.by_class.entry(bin.class()).or_default().insert(bin.order(index));
        }
    }

    /// The cheapest bin for a queue that is in the bin `here` now.
    fn cheapest(&self, queue: &QueueView, here: Option<usize>) -> Option<usize> {
        let least = self.by_class.values().filter_map(|class| class.first().map(|&(_, index)| index));
        let of = |index: usize| self.all.get(index).map(|bin| cost(bin, queue, here == Some(index)));
        let costs = least.chain(here).filter_map(|index| Some((of(index)?, index)));
        costs.min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1))).map(|(_, index)| index)
    }

    fn add(&mut self, index: usize, queue: &QueueView) -> Option<Core> {
        let bin = self.all.get_mut(index)?;
        if let Some(class) = self.by_class.get_mut(&bin.class()) {
            class.remove(&bin.order(index));
        }
        bin.load += queue.useful;
        *(if queue.is_bulk() { &mut bin.bulk } else { &mut bin.other }) += queue.useful;
        let core = bin.core;
        self.sort_in(index);
        Some(core)
    }
}

/// Assigns the queues to one worker on each of these cores, or to a single worker that runs anywhere if there are no
/// cores. `now` is the present layout; queues on cores that are not listed move.
///
/// Nothing moves if the load is even enough already.
#[must_use]
pub fn balance(queues: &[QueueView], cores: &[Core], now: &Layout) -> Layout {
    if cores.is_empty() {
        return Layout([(None, queues.iter().map(|queue| queue.number).collect())].into());
    }
    let cores_by_queue = now.cores_by_queue();
    let same_cores =
        now.0.len() == cores.len() && cores.iter().all(|core| now.0.contains_key(&Some(core.number)));
    let complete = same_cores && cores_by_queue.len() == queues.len();
    let (most, least) = now.extremes(queues);
    let even = most - least <= TOLERATED;
    let far_now = far(now, queues, cores);
    if complete && even && mixed(now, queues) <= 1 && far_now < WORTH_FAR {
        return now.clone();
    }
    let wanted = spread(queues, cores, &cores_by_queue);
    let worth = wanted.extremes(queues).0 <= most - STAY
        || mixed(&wanted, queues) < mixed(now, queues)
        || far(&wanted, queues, cores) <= far_now - WORTH_FAR;
    if complete && !worth { now.clone() } else { wanted }
}

fn spread(queues: &[QueueView], cores: &[Core], cores_by_queue: &BTreeMap<u32, WorkerCore>) -> Layout {
    let mut bins = Bins::of(cores);
    let of_core: BTreeMap<u32, usize> = cores.iter().map(|core| core.number).zip(0..).collect();
    let mut order: Vec<&QueueView> = queues.iter().collect();
    order.sort_by(|a, b| b.useful.total_cmp(&a.useful).then(a.number.cmp(&b.number)));
    let mut wanted = Layout(cores.iter().map(|core| (Some(core.number), BTreeSet::new())).collect());
    for queue in order {
        let here = cores_by_queue.get(&queue.number).copied().flatten();
        let here = here.and_then(|core| of_core.get(&core).copied());
        let Some(core) = bins.cheapest(queue, here).and_then(|index| bins.add(index, queue)) else { break };
        wanted.0.entry(Some(core.number)).or_default().insert(queue.number);
    }
    wanted
}

fn cost(bin: &Bin, queue: &QueueView, is_here: bool) -> f64 {
    let far = queue.node.is_some_and(|node| node != bin.core.node);
    let behind = if queue.is_bulk() { bin.other } else { bin.bulk };
    // Idle queues neither wait for others nor delay them.
    let weight = (queue.useful / STAY).min(1.0);
    bin.load
        + if is_here { 0.0 } else { STAY }
        + if far { FAR * queue.useful } else { 0.0 }
        + if behind > STAY { MIXED * weight } else { 0.0 }
}

/// The cost of serving queues from another node than their VM's, in CPUs' worth.
fn far(layout: &Layout, queues: &[QueueView], cores: &[Core]) -> f64 {
    let nodes: BTreeMap<u32, u32> = cores.iter().map(|core| (core.number, core.node)).collect();
    let cores_by_queue = layout.cores_by_queue();
    let is_far = |queue: &&QueueView| {
        let there = cores_by_queue.get(&queue.number).copied().flatten().and_then(|core| nodes.get(&core));
        queue.node.zip(there).is_some_and(|(own, &there)| own != there)
    };
    queues.iter().filter(is_far).map(|queue| FAR * queue.useful).sum()
}

/// The number of cores with much load of both kinds, bulk and other.
fn mixed(layout: &Layout, queues: &[QueueView]) -> usize {
    let cores_by_queue = layout.cores_by_queue();
    let mut kinds: BTreeMap<WorkerCore, (f64, f64)> = BTreeMap::new();
    for queue in queues {
        if let Some(&core) = cores_by_queue.get(&queue.number) {
            let kind = kinds.entry(core).or_default();
            *(if queue.is_bulk() { &mut kind.0 } else { &mut kind.1 }) += queue.useful;
        }
    }
    kinds.values().filter(|kind| kind.0 > MIXED && kind.1 > MIXED).count()
}

#[cfg(test)]
#[path = "balance_tests.rs"]
mod tests;
