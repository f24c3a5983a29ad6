//! How many I/O cores there should be: a decision from figures alone, without a clock and without touching anything.
//!
//! What workers spend on requests says how many cores they need, as long as none of them is full. A full one hides what
//! is wanted of it; then, and when vCPUs are short of CPUs, only a try tells. So every change of the number of cores is
//! a try: what was served before and after is compared, and a change that did not pay is taken back. After each that was
//! taken back the next is made later, until the load itself changes.

use super::cores::choose;
use super::trial::{LoadProfile, Trial, TrialResult};
use super::wanted::{Bounds, Wanted};
use super::{Decision, Direction, Layout, PolicyState, Reason, Settings, View, balance};

/// Periods in a row in which fewer cores must do before one is given back.
pub(super) const SPARE_PERIODS: u32 = 3;

/// Decides by what was seen in the last period, and remembers.
#[must_use]
pub fn decide(settings: &Settings, memory: &mut PolicyState, view: &View) -> Decision {
    let now = Layout::of(view);
    let load = LoadProfile::of(view);
    memory.pass(load, now.cores(), view.useful());
    let tried = memory.trial.clone();
    let (cores, reason) = count(settings, memory, view, now.cores(), load);
    // What was given back is taken again as it was. More cores showed what each queue wants, which full workers hide, so
    // that those that remain are balanced by that.
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
    // A core is always left to the vCPUs.
    let room = view.cores.len().saturating_sub(1);
    let most = settings.most_cores.map_or(room, |most| most.min(room));
    let least = settings.least_cores.min(most);

    let mut kept = None;
    if let Some(trial) = memory.trial.take() {
        let seen = Wanted::of(settings, memory, None, view, before);
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
                memory.trust(trial.direction);
            }
            TrialResult::Harmed(ratio) => {
                // It went too far, and showed how much is wanted: what lies between is tried before all is taken back.
                let between = seen.cores(Bounds::adding(settings), least..=most);
                if !seen.hidden {
                    memory.learn(load, seen.io);
                }
                if !seen.hidden && between > trial.before && between < before {
                    memory.trial = Some(Trial { left: settings.settle, ..trial });
                    return (between, Reason::Spare { useful, before, after: between });
                }
                let patience = memory.hesitate(trial.direction);
                let (direction, cores) = (trial.direction, trial.before.clamp(least, most));
                return (cores, Reason::Regret { direction, ratio, cores, patience });
            }
        }
    }

    let known = memory.known(&load);
    let wanted = Wanted::of(settings, memory, known, view, before);
    if !wanted.hidden {
        memory.learn(load, wanted.io);
    }
    let mut more = wanted.cores(Bounds::adding(settings), least..=most);
    if wanted.hidden && more <= before && (before > 0 || known.is_none()) {
        // By what is known it would not pay; but full workers do not show what their queues could do elsewhere.
        more = (before + 1).min(most);
    }
    let fewer = wanted.cores(Bounds::giving_back(settings), least..=most);
    let start = |memory: &mut PolicyState, direction| {
        memory.trial = Some(Trial::begin(direction, before, settings.settle, view, load));
        memory.spare = 0;
    };
    if more > before && !memory.is_patient(Direction::More) {
        if memory.since_fewer.take().is_some() {
            // What was given back is wanted again.
            memory.hesitate(Direction::Fewer);
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

#[cfg(test)]
#[path = "policy_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "policy_cases_tests.rs"]
mod cases;
