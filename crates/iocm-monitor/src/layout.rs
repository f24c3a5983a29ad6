//! The assignment of cores and queues to workers, and the actions that change it.

use super::view::total;
use super::{QueueView, View};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The core of a worker, by the kernel's number. `None`: too little I/O for a dedicated core; the worker runs wherever
/// the scheduler puts it.
pub type WorkerCore = Option<u32>;

/// A change of the workers. A worker is named by its core: no two workers share one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "action")]
pub enum Action {
    /// A worker is created for this core.
    Add {
        /// Its core.
        at: WorkerCore,
    },
    /// A queue moves to the worker of this core.
    Move {
        /// The queue's number.
        queue: u32,
        /// The worker's core.
        to: WorkerCore,
    },
    /// The worker of this core, which has no queues any more, is removed.
    Remove {
        /// Its core.
        at: WorkerCore,
    },
}

/// An assignment of all queues: for each core, the queues of its worker.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Layout(pub BTreeMap<WorkerCore, BTreeSet<u32>>);

impl Layout {
    /// The present layout.
    #[must_use]
    pub fn of(view: &View) -> Self {
        let cores_by_queue: BTreeMap<u32, WorkerCore> =
            view.workers.iter().map(|worker| (worker.number, worker.core)).collect();
        let mut layout = Self(cores_by_queue.values().map(|&core| (core, BTreeSet::new())).collect());
        for queue in &view.queues {
            if let Some(queues) = cores_by_queue.get(&queue.worker).and_then(|core| layout.0.get_mut(core)) {
                queues.insert(queue.number);
            }
        }
        layout
    }

    /// The number of cores that are dedicated to workers.
    #[must_use]
    pub fn cores(&self) -> usize {
        self.0.keys().flatten().count()
    }

    /// The core on which each queue is served.
    #[must_use]
    pub fn cores_by_queue(&self) -> BTreeMap<u32, WorkerCore> {
        let each = |(&core, queues): (&WorkerCore, &BTreeSet<u32>)| {
            queues.iter().map(move |&queue| (queue, core)).collect::<Vec<_>>()
        };
        self.0.iter().flat_map(each).collect()
    }

    /// The name of a core in messages: its number, or `anywhere`.
    #[must_use]
    pub fn core_name(core: WorkerCore) -> String {
        core.map_or_else(|| "anywhere".to_owned(), |core| core.to_string())
    }

    /// The names of the queues on each core.
    #[must_use]
    pub fn named(&self, name_of: impl Fn(u32) -> String) -> BTreeMap<String, Vec<String>> {
        let names = |queues: &BTreeSet<u32>| queues.iter().map(|&queue| name_of(queue)).collect();
        self.0.iter().map(|(&core, queues)| (Self::core_name(core), names(queues))).collect()
    }

    /// The actions that lead from this layout to another, in an order in which every queue always has a worker.
    #[must_use]
    pub fn actions_to(&self, wanted: &Self) -> Vec<Action> {
        let new = wanted.0.keys().filter(|core| !self.0.contains_key(core));
        let mut actions: Vec<Action> = new.map(|&at| Action::Add { at }).collect();
        let cores_by_queue = self.cores_by_queue();
        for (&to, queues) in &wanted.0 {
            let come = queues.iter().filter(|queue| cores_by_queue.get(queue) != Some(&to));
            actions.extend(come.map(|&queue| Action::Move { queue, to }));
        }
        let gone = self.0.keys().filter(|core| !wanted.0.contains_key(core));
        actions.extend(gone.map(|&at| Action::Remove { at }));
        actions
    }

    /// The loads of the busiest and of the least busy worker, as shares of a core; 0 if there is no worker.
    #[must_use]
    pub fn extremes(&self, queues: &[QueueView]) -> (f64, f64) {
        let useful: BTreeMap<u32, f64> = queues.iter().map(|queue| (queue.number, queue.useful)).collect();
        let load =
            |queues: &BTreeSet<u32>| total(queues.iter().filter_map(|queue| useful.get(queue).copied()));
        let loads = || self.0.values().map(load);
        // Not infinity, which JSON cannot represent.
        (loads().fold(0.0, f64::max), loads().reduce(f64::min).unwrap_or(0.0))
    }
}
