//! The replay of a trace in the model: the policy decides once a period.

use super::arrangement::{SimulatedHost, StaticChoice, best_of, each, fixed, search, shared, steps};
use super::{BadTrace, Phase, Trace};
use crate::{Action, Decision, Layout, PolicyState, Settings, View, decide};
use serde::Serialize;
use std::collections::BTreeMap;

/// The pause in the service of a queue that moves, in seconds.
const PAUSE: f64 = 1e-3;
/// The monitor's arrangement has converged when its throughput stays above this share of the best.
const CONVERGED: f64 = 0.95;

/// The options of a replay.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Replay {
    /// Seconds between two decisions.
    pub period: f64,
    /// The policy's bounds.
    pub settings: Settings,
}

impl Default for Replay {
    fn default() -> Self {
        Self { period: 0.1, settings: Settings::default() }
    }
}

/// One period of a replay, for the observer.
#[derive(Debug, Clone, Copy)]
pub struct Period<'a> {
    /// Its end, in seconds from the beginning of the replay.
    pub time: f64,
    /// The index of the phase.
    pub phase: usize,
    /// The served share of the offered load: 0 to 1.
    pub attained: f64,
    /// The monitor's view.
    pub view: &'a View,
    /// The policy's decision.
    pub decision: &'a Decision,
}

/// Replays a trace; calls `watch` for each period.
///
/// # Errors
/// [`BadTrace`].
pub fn replay(trace: &Trace, how: &Replay, watch: &mut dyn FnMut(Period<'_>)) -> Result<Replayed, BadTrace> {
    trace.check()?;
    let mut host = SimulatedHost::of(trace);
    let mut course = Course { layout: fixed(&host, 0), memory: PolicyState::default(), time: 0.0, phase: 0 };
    let mut phases = Vec::new();
    let step = steps(host.cores.len());
    let mut sums: BTreeMap<usize, f64> = BTreeMap::new();
    for (number, phase) in trace.phases.iter().enumerate() {
        course.phase = number;
        host.enter(trace, phase);
        let tried = search(&host, None);
        for (&cores, attained) in &tried {
            // Numbers of cores between the steps were tried in some phases only; a sum over all phases needs the same ones.
            if cores % step == 0 {
                *sums.entry(cores).or_default() += phase.seconds * attained;
            }
        }
        let best = best_of(&tried);
        phases.push(one_phase(&host, phase, best, how, &mut course, watch));
    }
    Ok(Replayed {
        queues: host.queues.len(),
        cores: host.cores.len(),
        period: how.period,
        phases,
        best_single: best_single(&sums, trace),
    })
}

/// The state that carries over from one phase to the next.
struct Course {
    layout: Layout,
    memory: PolicyState,
    time: f64,
    phase: usize,
}

fn one_phase(
    host: &SimulatedHost,
    phase: &Phase,
    best: StaticChoice,
    how: &Replay,
    so_far: &mut Course,
    watch: &mut dyn FnMut(Period<'_>),
) -> PhaseOutcome {
    let periods = (phase.seconds / how.period).ceil().max(1.0) as u32;
    let (mut sum, mut changes, mut moves, mut paused) = (0.0, 0, 0, 0.0);
    let mut course = Vec::new();
    let mut last = 0.0;
    for _ in 0..periods {
        let served = shared(host, &so_far.layout);
        let attained = served.attained * (1.0 - paused);
        sum += attained;
        course.push(attained);
        last = served.worst_p99;
        let view = served.view(host, &so_far.layout);
        let decision = decide(&how.settings, &mut so_far.memory, &view);
        so_far.time += how.period;
        let (time, phase) = (so_far.time, so_far.phase);
        watch(Period { time, phase, attained, view: &view, decision: &decision });
        let moved = so_far.layout.actions_to(&decision.layout);
        let queues = moved.iter().filter(|action| matches!(action, Action::Move { .. })).count();
        moves += queues as u64;
        paused = queues as f64 / host.queues.len() as f64 * PAUSE / how.period;
        changes += u32::from(decision.layout.cores() != so_far.layout.cores());
        so_far.layout = decision.layout;
    }
    let converged = converged(&course, CONVERGED * best.attained);
    let settled = &course[course.len() / 2..];
    PhaseOutcome {
        name: phase.name.clone(),
        seconds: phase.seconds,
        attained: sum / f64::from(periods),
        settled: settled.iter().sum::<f64>() / settled.len() as f64,
        best,
        each: each(host).attained,
        converged: converged.map(|periods| periods as f64 * how.period),
        cores: so_far.layout.cores(),
        changes,
        moves,
        worst_p99: last,
    }
}

/// The period from which on the average is at least `wanted`, including trials that were reverted.
fn converged(course: &[f64], wanted: f64) -> Option<usize> {
    let (mut sum, mut from) = (0.0, None);
    for (behind, &attained) in course.iter().rev().enumerate() {
        sum += attained;
        if attained >= wanted && sum >= wanted * (behind + 1) as f64 {
            from = Some(course.len() - 1 - behind);
        }
    }
    from
}

fn best_single(sums: &BTreeMap<usize, f64>, trace: &Trace) -> StaticChoice {
    let seconds: f64 = trace.phases.iter().map(|phase| phase.seconds).sum();
    let best = best_of(sums);
    StaticChoice { attained: if seconds > 0.0 { best.attained / seconds } else { 0.0 }, ..best }
}

/// A replay, phase by phase.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Replayed {
    /// Virtqueues.
    pub queues: usize,
    /// Cores of the machine.
    pub cores: usize,
    /// Seconds between two decisions.
    pub period: f64,
    /// The phases, in order.
    pub phases: Vec<PhaseOutcome>,
    /// The number of I/O cores with the highest throughput over all phases if it may not change. On machines of more
    /// than 128 cores not every number was tried.
    pub best_single: StaticChoice,
}

/// One phase.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PhaseOutcome {
    /// Its name.
    pub name: String,
    /// The duration, seconds.
    pub seconds: f64,
    /// The share of the offered load that the monitor's arrangements served, each request weighted by its cost: 0 to 1.
    pub attained: f64,
    /// The same in the second half of the phase.
    pub settled: f64,
    /// The number of I/O cores with the highest throughput in this phase, and that throughput.
    pub best: StaticChoice,
    /// The same for a thread for each device.
    pub each: f64,
    /// Seconds from the phase's start after which the monitor serves at least 95 % of the best on average, including
    /// trials that were reverted; `None` if it never does.
    pub converged: Option<f64>,
    /// I/O cores at the end.
    pub cores: usize,
    /// The number of changes of the number of I/O cores.
    pub changes: u32,
    /// Queues that were moved.
    pub moves: u64,
    /// The 99th percentile of the worst queue's latency at the end, in seconds.
    pub worst_p99: f64,
}

impl Replayed {
    /// The share of the offered load that the monitor served over all phases: 0 to 1.
    #[must_use]
    pub fn attained(&self) -> f64 {
        self.mean(|phase| phase.attained)
    }

    /// The same for the best number of I/O cores of each phase.
    #[must_use]
    pub fn best_by_phase(&self) -> f64 {
        self.mean(|phase| phase.best.attained)
    }

    /// The same for a thread for each device.
    #[must_use]
    pub fn each(&self) -> f64 {
        self.mean(|phase| phase.each)
    }

    fn mean(&self, of: impl Fn(&PhaseOutcome) -> f64) -> f64 {
        let seconds: f64 = self.phases.iter().map(|phase| phase.seconds).sum();
        let sum: f64 = self.phases.iter().map(|phase| of(phase) * phase.seconds).sum();
        if seconds > 0.0 { sum / seconds } else { 0.0 }
    }
}

impl PhaseOutcome {
    /// The monitor's throughput in the second half of the phase, as a share of the best fixed number of cores.
    #[must_use]
    pub fn of_best(&self) -> f64 {
        if self.best.attained > 0.0 { self.settled / self.best.attained } else { 1.0 }
    }
}
