//! Which worker has which core and which queues, and what it takes to get there.

use super::{QueueView, View};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The core of a worker by the kernel's number. `None`: it has no core of its own, because there is too little I/O for
/// one, and runs wherever the kernel finds room.
pub type WorkerCore = Option<u32>;

/// One thing that is done to the workers. A worker is called by its place: no two have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "action")]
pub enum Action {
    /// A worker is made there.
    Add {
        /// Its place.
        at: WorkerCore,
    },
    /// A queue goes to the worker there.
    Move {
        /// The queue's number.
        queue: u32,
        /// The worker's place.
        to: WorkerCore,
    },
    /// The worker there is ended; it has no queues any more.
    Remove {
        /// Its place.
        at: WorkerCore,
    },
}

/// A way to serve all queues: by place, the queues that its worker has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Layout(pub BTreeMap<WorkerCore, BTreeSet<u32>>);

impl Layout {
    /// The one that is there now.
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

    /// Cores that a worker has for itself.
    #[must_use]
    pub fn cores(&self) -> usize {
        self.0.keys().flatten().count()
    }

    /// The place that each queue is served at.
    #[must_use]
    pub fn cores_by_queue(&self) -> BTreeMap<u32, WorkerCore> {
        let each = |(&core, queues): (&WorkerCore, &BTreeSet<u32>)| {
            queues.iter().map(move |&queue| (queue, core)).collect::<Vec<_>>()
        };
        self.0.iter().flat_map(each).collect()
    }

    /// A place as it is told: `anywhere`, or the core's number.
    #[must_use]
    pub fn core_name(core: WorkerCore) -> String {
        core.map_or_else(|| "anywhere".to_owned(), |core| core.to_string())
    }

    /// The queues at each place, with their names.
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

    /// The load of the busiest worker and of the idlest one, as shares of a core.
    #[must_use]
    pub fn extremes(&self, queues: &[QueueView]) -> (f64, f64) {
        let useful: BTreeMap<u32, f64> = queues.iter().map(|queue| (queue.number, queue.useful)).collect();
        let load = |queues: &BTreeSet<u32>| queues.iter().filter_map(|queue| useful.get(queue)).sum::<f64>();
        let loads = || self.0.values().map(load);
        (loads().fold(0.0, f64::max), loads().fold(f64::INFINITY, f64::min))
    }
}
