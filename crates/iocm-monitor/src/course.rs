//! The loop of the monitor: read figures, decide, act, report. The caller has the clock.

use super::actuator::{Actuator, Seen};
use super::view::total;
use super::{Action, ExitsSeen, Layout, PolicyState, Reason, Settings, VmExits, decide, polling};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The format number of the output. Within one number fields are added, never changed.
pub const MONITOR_FORMAT: u32 = 1;

/// A monitor over one actuator.
#[derive(Debug)]
pub struct Monitor<A: Actuator> {
    actuator: A,
    settings: Settings,
    memory: PolicyState,
    dry_run: bool,
    /// VM exits, if they are counted.
    exits: Option<ExitsSeen>,
    /// The last message, to avoid repeating it.
    said: Said,
}

#[derive(Debug, Default, PartialEq)]
struct Said {
    trouble: Option<String>,
    notes: Vec<String>,
    would: Option<usize>,
    /// Actions and their failures, since actions last succeeded in full. Several, because the reason of a refusal can
    /// alternate.
    failed: BTreeSet<(Vec<Action>, Vec<String>)>,
}

/// The number of failures that are remembered.
const MOST_FAILED: usize = 16;

/// The result of one period.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Step {
    /// The figures of the period; `None` in trouble.
    pub seen: Option<Seen>,
    /// The layout at the end of the period. In a dry run, and where actions failed, it is the one before the decision.
    pub layout: Layout,
    /// The message, if there is one: a decision, or the reason why none could be made.
    pub said: Option<Decided>,
}

/// A decision, with the figures that led to it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Decided {
    /// [`MONITOR_FORMAT`].
    pub format: u32,
    /// The time, in seconds since 1970.
    pub time: f64,
    /// A dry run: nothing was changed.
    pub dry_run: bool,
    /// The figures of the period; `None` in trouble.
    pub figures: Option<Figures>,
    /// The reason, with its own figures; `None` in trouble.
    pub reason: Option<Reason>,
    /// I/O cores before.
    pub cores_before: Vec<u32>,
    /// I/O cores decided on.
    pub cores: Vec<u32>,
    /// The queues by core: its number, or `anywhere`.
    pub queues: BTreeMap<String, Vec<String>>,
    /// The actions, in order; in a dry run those that would be carried out.
    pub actions: Vec<Action>,
    /// Workers, by core, that start or stop polling.
    #[serde(default)]
    pub polling: BTreeMap<String, bool>,
    /// The actions that failed.
    pub left_out: Vec<String>,
    /// The VMs that are left alone, with the reason.
    pub notes: Vec<String>,
    /// The reason why nothing is done.
    pub trouble: Option<String>,
}

/// The figures that a decision rests on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// CPUs' worth of time spent on requests.
    pub useful: f64,
    /// The busiest worker's share of its time on requests, 0 to 1.
    pub busiest: f64,
    /// Requests per second.
    pub requests_per_second: f64,
    /// Bytes per second.
    pub bytes_per_second: f64,
    /// CPUs' worth of time that vCPUs ran.
    pub computing: f64,
    /// CPUs' worth of time that vCPUs waited for a CPU.
    pub waiting: f64,
    /// Share of all CPUs' time that was not idle, 0 to 1; `None` where that is unknown.
    pub host_busy: Option<f64>,
    /// Queues.
    pub queues: usize,
    /// CPUs that workers and vCPUs share.
    pub cpus: usize,
    /// VM exits of all VMs together; `None` where they are not counted.
    #[serde(default)]
    pub exits: Option<VmExits>,
}

impl Figures {
    pub(super) fn of(seen: &Seen) -> Self {
        let view = &seen.view;
        Self {
            useful: view.useful(),
            busiest: view.workers.iter().map(|worker| worker.useful).fold(0.0, f64::max),
            requests_per_second: view.requests(),
            bytes_per_second: total(view.queues.iter().map(|queue| queue.bytes)),
            computing: view.computing,
            waiting: view.waiting,
            host_busy: seen.host_busy,
            queues: view.queues.len(),
            cpus: view.cores.len(),
            exits: seen.vms.iter().filter_map(|vm| vm.exits).reduce(VmExits::and),
        }
    }
}

impl<A: Actuator> Monitor<A> {
    /// A monitor without earlier figures.
    #[must_use]
    pub fn new(actuator: A, settings: Settings, dry_run: bool) -> Self {
        Self {
            actuator,
            settings,
            memory: PolicyState::default(),
            dry_run,
            exits: None,
            said: Said::default(),
        }
    }

    /// Sets the counts of VM exits, which are reported with the figures from now on and do not affect decisions.
    pub fn take_exits(&mut self, exits: ExitsSeen) {
        self.exits = Some(exits);
    }

    fn add_exits(&self, seen: &mut Seen) {
        match &self.exits {
            None => {}
            Some(Err(why)) => seen.exits_missing = Some(why.clone()),
            Some(Ok(counted)) => {
                for vm in &mut seen.vms {
                    vm.exits = Some(counted.get(&vm.pid).copied().unwrap_or_default());
                }
            }
        }
    }

    /// Its actuator.
    #[must_use]
    pub fn actuator(&self) -> &A {
        &self.actuator
    }

    /// Runs one period: reads figures, decides, and acts unless it is a dry run. `time` is now, in seconds since 1970.
    pub fn step(&mut self, time: f64) -> Step {
        let mut seen = match self.actuator.look() {
            Ok(seen) => seen,
            Err(trouble) => return self.in_trouble(time, trouble.told()),
        };
        self.add_exits(&mut seen);
        let now = Layout::of(&seen.view);
        let decision = decide(&self.settings, &mut self.memory, &seen.view);
        if self.dry_run {
            // A change that is not made has no effect to judge.
            self.memory.only_said();
        }
        let actions = now.actions_to(&decision.layout);
        let mut decided = Decided {
            format: MONITOR_FORMAT,
            time,
            dry_run: self.dry_run,
            figures: Some(Figures::of(&seen)),
            reason: Some(decision.reason),
            cores_before: cores(&now),
            cores: cores(&decision.layout),
            queues: decision.layout.named(|queue| self.actuator.name_of(queue)),
            actions,
            notes: seen.notes.clone(),
            ..Decided::default()
        };
        let polled = self.actuator.polled();
        let mut polls = polling(&self.settings, &seen.view, &polled);
        polls.retain(|core, polls| polled.get(core).is_some_and(|now| now != polls));
        let mut layout = decision.layout;
        if !polls.is_empty() {
            decided.polling = polls.iter().map(|(&core, &polls)| (Layout::core_name(core), polls)).collect();
        }
        if self.dry_run {
            layout = now.clone();
        } else if !decided.actions.is_empty() {
            match self.actuator.act(&decided.actions, &layout) {
                Ok(left_out) => decided.left_out = left_out,
                Err(trouble) => return self.in_trouble(time, trouble.told()),
            }
        }
        if !self.dry_run && !polls.is_empty() {
            match self.actuator.poll(&polls) {
                Ok(left_out) => decided.left_out.extend(left_out),
                Err(trouble) => return self.in_trouble(time, trouble.told()),
            }
        }
        if !decided.left_out.is_empty() {
            // The next period shows which of the other actions took effect.
            layout = now;
        }
        let mut failed = std::mem::take(&mut self.said.failed);
        if failed.len() >= MOST_FAILED || decided.left_out.is_empty() && !decided.actions.is_empty() {
            failed.clear();
        }
        let fails_again = !decided.left_out.is_empty()
            && !failed.insert((decided.actions.clone(), decided.left_out.clone()));
        let would = self.dry_run.then_some(decided.cores.len());
        let recovered = self.said.trouble.is_some();
        let is_new = recovered
            || self.said.notes != decided.notes
            || match (self.dry_run, decided.reason) {
                // A dry run decides the same in every period: report only a new number of cores.
                (true, _) => would != self.said.would,
                // The decision repeats until the refused action succeeds: report it once.
                (false, _) if fails_again => false,
                (false, Some(Reason::Fine { .. })) => {
                    !decided.actions.is_empty() || !decided.polling.is_empty()
                }
                (false, _) => true,
            };
        self.said = Said { trouble: None, notes: decided.notes.clone(), would, failed };
        Step { seen: Some(seen), layout, said: is_new.then_some(decided) }
    }

    /// Reports the trouble, and forgets what the policy has learnt, because the host may have changed.
    fn in_trouble(&mut self, time: f64, trouble: String) -> Step {
        self.memory = PolicyState::default();
        if self.said.trouble.as_ref() == Some(&trouble) {
            return Step::default();
        }
        self.said = Said { trouble: Some(trouble.clone()), ..Said::default() };
        let decided = Decided {
            format: MONITOR_FORMAT,
            time,
            dry_run: self.dry_run,
            trouble: Some(trouble),
            ..Decided::default()
        };
        Step { said: Some(decided), ..Step::default() }
    }

    /// Restores everything that must not outlast the monitor. Returns what could not be restored.
    pub fn end(mut self) -> Vec<String> {
        self.actuator.give_back()
    }
}

fn cores(layout: &Layout) -> Vec<u32> {
    layout.0.keys().flatten().copied().collect()
}

#[cfg(test)]
#[path = "course_tests.rs"]
mod tests;
