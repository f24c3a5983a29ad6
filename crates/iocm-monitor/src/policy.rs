//! The policy: the number of I/O cores, decided from figures alone, without a clock and without side effects.
//!
//! As long as no worker is full, the time that workers spend on requests shows how many cores they need. Full workers
//! hide the demand, and so do vCPUs that are short of CPUs: then only a trial shows it. So every change of the number
//! of cores is a trial: the throughput before and after is compared, and a change that did not pay is reverted. Each
//! reverted change doubles the delay until the next trial; a change of the load resets it.

use super::demand::{Bounds, Demand};
use super::trial::{Direction, LoadProfile, SPARE_PERIODS, Trial, TrialResult};
use super::{Core, Layout, PolicyState, QueueView, Settings, View, WorkerCore, balance};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Decides from the figures of the last period, and updates the state of the policy.
#[must_use]
pub fn decide(settings: &Settings, memory: &mut PolicyState, view: &View) -> Decision {
    let now = Layout::of(view);
    let load = LoadProfile::of(view);
    memory.pass(load, now.cores(), view.useful());
    let tried = memory.trial.clone();
    let (cores, reason) = count(settings, memory, view, now.cores(), load);
    // A reverted removal restores the earlier layout. A reverted addition has shown each queue's demand, which full
    // workers hide, so the queues are balanced by that over the remaining cores.
    let undone = match reason {
        Reason::Regret { direction: Direction::Fewer, .. } => tried.and_then(|trial| trial.undone(view)),
        _ => None,
    };
    let undone = undone.filter(|layout| layout.cores() == cores);
    let layout = undone.unwrap_or_else(|| balance(&view.queues, &choose(view, &now, cores), &now));
    let reason = match reason {
        Reason::Fine { .. } | Reason::Kept { .. } if layout != now => {
            let (most, least) = now.extremes(&view.queues);
            Reason::Uneven { most, least }
        }
        reason => reason,
    };
    Decision { layout, reason }
}

fn count(
    settings: &Settings,
    memory: &mut PolicyState,
    view: &View,
    before: usize,
    load: LoadProfile,
) -> (usize, Reason) {
    let useful = view.useful();
    // At least one core is left to the vCPUs.
    let room = view.cores.len().saturating_sub(1);
    let most = settings.most_cores.map_or(room, |most| most.min(room));
    let least = settings.least_cores.min(most);

    if memory.trial.as_ref().is_some_and(|trial| trial.was_refused(before)) {
        // No core was added, so there is nothing to compare.
        memory.trial = None;
        memory.double_delay(Direction::More);
    }
    let mut kept = None;
    if let Some(trial) = memory.trial.take() {
        let seen = Demand::of(settings, memory, None, view, before);
        let hidden = trial.direction == Direction::More && seen.hidden;
        if trial.left > 0 && !hidden {
            memory.trial = Some(Trial { left: trial.left - 1, ..trial });
            return (before, Reason::Fine { useful, cores: before });
        }
        memory.learn_alone(trial.longer_alone(before, &load));
        match trial.judge(settings, view, &load) {
            TrialResult::Another => {}
            TrialResult::Paid(ratio) => {
                kept = Some(Reason::Kept { direction: trial.direction, ratio, cores: before });
                memory.reset_delay(trial.direction);
            }
            TrialResult::Harmed(ratio) => {
                // Too many cores were added, but they showed the demand: try a number in between before reverting.
                let between = seen.cores(Bounds::adding(settings), least..=most);
                if !seen.hidden {
                    memory.learn(load, seen.io);
                }
                if !seen.hidden && between > trial.before && between < before {
                    memory.trial = Some(Trial { left: settings.settle, ..trial });
                    return (between, Reason::Spare { useful, before, after: between });
                }
                let patience = memory.double_delay(trial.direction);
                let (direction, cores) = (trial.direction, trial.before.clamp(least, most));
                return (cores, Reason::Regret { direction, ratio, cores, patience });
            }
        }
    }

    let known = memory.known(&load);
    let demand = Demand::of(settings, memory, known, view, before);
    if !demand.hidden {
        memory.learn(load, demand.io);
    }
    let mut more = demand.cores(Bounds::adding(settings), least..=most);
    if demand.hidden && more <= before && (before > 0 || known.is_none()) {
        // The known demand does not justify more cores, but full workers may hide more.
        more = (before + 1).min(most);
    }
    let fewer = demand.cores(Bounds::giving_back(settings), least..=most);
    let start = |memory: &mut PolicyState, direction| {
        memory.trial = Some(Trial::begin(direction, before, settings.settle, view, load));
        memory.spare = 0;
    };
    if more > before && !memory.is_patient(Direction::More) {
        if memory.since_fewer.take().is_some() {
            // The cores that were given back are needed again.
            memory.double_delay(Direction::Fewer);
        }
        start(memory, Direction::More);
        return (more, Reason::Busy { useful, before, after: more });
    }
    let short = view.waiting >= settings.short;
    memory.spare = if fewer < before { memory.spare + 1 } else { 0 };
    if (memory.spare >= SPARE_PERIODS || memory.spare > 0 && short) && !memory.is_patient(Direction::Fewer) {
        start(memory, Direction::Fewer);
        memory.since_fewer = Some(0);
        let reason = if short {
            Reason::Short { waiting: view.waiting, before, after: fewer }
        } else {
            Reason::Spare { useful, before, after: fewer }
        };
        return (fewer, reason);
    }
    (before.clamp(least, most), kept.unwrap_or(Reason::Fine { useful, cores: before }))
}

/// A decision of the policy.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// The layout from now on.
    pub layout: Layout,
    /// The reason.
    pub reason: Reason,
}

/// The reason for a decision, with the figures that led to it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "reason")]
pub enum Reason {
    /// Nothing needs to change.
    Fine {
        /// CPUs' worth of time spent on requests.
        useful: f64,
        /// I/O cores.
        cores: usize,
    },
    /// The workers would be too busy with the cores that they have.
    Busy {
        /// CPUs' worth of time spent on requests.
        useful: f64,
        /// I/O cores before.
        before: usize,
        /// I/O cores after.
        after: usize,
    },
    /// Fewer cores are enough.
    Spare {
        /// CPUs' worth of time spent on requests.
        useful: f64,
        /// I/O cores before.
        before: usize,
        /// I/O cores after.
        after: usize,
    },
    /// vCPUs wait for CPUs that the workers can spare.
    Short {
        /// CPUs' worth of waiting vCPUs.
        waiting: f64,
        /// I/O cores before.
        before: usize,
        /// I/O cores after.
        after: usize,
    },
    /// The last change did not pay and was reverted.
    Regret {
        /// The direction of the change.
        direction: Direction,
        /// The throughput after it, as a share of that before.
        ratio: f64,
        /// I/O cores after the reversal.
        cores: usize,
        /// Periods until it is tried again.
        patience: u32,
    },
    /// The last change paid, or did no harm.
    Kept {
        /// The direction of the change.
        direction: Direction,
        /// The throughput after it, as a share of that before.
        ratio: f64,
        /// I/O cores.
        cores: usize,
    },
    /// The number of cores is right, but the queues were not spread evenly.
    Uneven {
        /// The busiest worker's load, as a share of its core.
        most: f64,
        /// The least busy worker's.
        least: f64,
    },
}

/// Chooses the cores of the workers: the present ones, plus or minus some, by the I/O load of each node.
fn choose(view: &View, now: &Layout, wanted: usize) -> Vec<Core> {
    let mut chosen: Vec<Core> =
        view.cores.iter().copied().filter(|core| now.0.contains_key(&Some(core.number))).collect();
    let load_of = |node: u32| {
        let there = |queue: &&QueueView| queue.node.is_none_or(|of| of == node);
        view.queues.iter().filter(there).map(|queue| queue.useful).sum::<f64>()
    };
    let crowd = |chosen: &[Core], node: u32| chosen.iter().filter(|core| core.node == node).count() as f64;
    while chosen.len() < wanted {
        let free = view.cores.iter().filter(|core| !chosen.contains(core));
        // The next core is on the node with the most load per core. Of its cores the last is farthest from CPU 0.
        let need = |core: &Core| load_of(core.node) / (crowd(&chosen, core.node) + 1.0);
        let Some(&next) = free.max_by(|a, b| need(a).total_cmp(&need(b)).then(a.number.cmp(&b.number)))
        else {
            break;
        };
        chosen.push(next);
    }
    while chosen.len() > wanted {
        let need = |core: &Core| load_of(core.node) / crowd(&chosen, core.node).max(1.0);
        let Some((at, _)) = chosen
            .iter()
            .enumerate()
            .min_by(|(_, a), (_, b)| need(a).total_cmp(&need(b)).then(a.number.cmp(&b.number)))
        else {
            break;
        };
        chosen.remove(at);
    }
    chosen
}

/// A worker starts to poll when it spends this share of its time on requests. Polling saves kicks and wake-ups.
const POLL_FROM: f64 = 0.3;
/// The share below which a polling worker stops polling.
const POLL_UNTIL: f64 = 0.15;

/// The workers that should poll, by core; `now` is the present state.
///
/// Polling uses the whole core. That costs nothing if the core is dedicated, busy anyway, and no vCPU waits for a CPU.
/// A worker without a dedicated core would take the time from vCPUs.
#[must_use]
pub fn polling(
    settings: &Settings,
    view: &View,
    now: &BTreeMap<WorkerCore, bool>,
) -> BTreeMap<WorkerCore, bool> {
    let mut wanted = BTreeMap::new();
    for worker in &view.workers {
        let polls = now.get(&worker.core).copied().unwrap_or(false);
        let bound = if polls { POLL_UNTIL } else { POLL_FROM };
        let pays = worker.core.is_some() && worker.useful >= bound && view.waiting < settings.short;
        wanted.insert(worker.core, pays);
    }
    wanted
}

#[cfg(test)]
#[path = "policy_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "policy_cases_tests.rs"]
mod cases;

#[cfg(test)]
mod polling_tests {
    use super::*;
    use crate::WorkerView;

    fn decided(core: Option<u32>, useful: f64, waiting: f64, now: bool) -> bool {
        let view = View { workers: vec![WorkerView { number: 0, core, useful }], waiting, ..View::default() };
        polling(&Settings::default(), &view, &[(core, now)].into())[&core]
    }

    #[test]
    fn polling_pays_on_a_busy_core_of_its_own_that_nobody_misses() {
        let cases = [
            ("busy", Some(3), 0.5, 0.0, false, true),
            ("hardly busy", Some(3), 0.2, 0.0, false, false),
            ("hardly busy, and polls already", Some(3), 0.2, 0.0, true, true),
            ("idle, and polls still", Some(3), 0.1, 0.0, true, false),
            ("vCPUs wait", Some(3), 0.9, 1.0, true, false),
            ("no core of its own", None, 0.9, 0.0, false, false),
        ];
        for (name, core, useful, waiting, now, wanted) in cases {
            assert_eq!(decided(core, useful, waiting, now), wanted, "{name}");
        }
    }
}
