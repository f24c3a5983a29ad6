//! A policy in the model, decision by decision.

use super::arrangement::{best_of, each, fixed, search, shared, steps};
use super::host::SimulatedHost;
use super::{BadTrace, Outcome, Phase, PhaseOutcome, StaticChoice, Trace};
use crate::monitor::{Action, Decision, Layout, PolicyState, Settings, View, decide};
use std::collections::BTreeMap;

/// A queue that moves is not served for so long, in seconds.
const PAUSE: f64 = 1e-3;
/// The monitor's arrangement has converged when it stays above this share of the best.
const CONVERGED: f64 = 0.95;

/// How a replay is done.
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

/// One period of a replay, for whoever watches.
#[derive(Debug, Clone, Copy)]
pub struct Period<'a> {
    /// Its end, in seconds from the beginning of the replay.
    pub time: f64,
    /// The phase's place among all.
    pub phase: usize,
    /// What was served of all that was offered: 0 to 1.
    pub attained: f64,
    /// What the monitor saw.
    pub view: &'a View,
    /// What it decided.
    pub decision: &'a Decision,
}

/// Replays a trace; `watch` is told of each period.
///
/// # Errors
/// [`BadTrace`].
pub fn replay(trace: &Trace, how: &Replay, watch: &mut dyn FnMut(Period<'_>)) -> Result<Outcome, BadTrace> {
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
            // Those around one phase's best were not tried in the others.
            if cores % step == 0 {
                *sums.entry(cores).or_default() += phase.seconds * attained;
            }
        }
        let best = best_of(&tried);
        phases.push(one_phase(&host, phase, best, how, &mut course, watch));
    }
    Ok(Outcome {
        queues: host.queues.len(),
        cores: host.cores.len(),
        period: how.period,
        phases,
        best_single: best_single(&sums, trace),
    })
}

/// What one phase leaves to the next.
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

/// The period from which on so much is served on average, tries that are taken back included.
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
