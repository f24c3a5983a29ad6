//! A policy in the model, decision by decision.

use super::arrangement::{each, fixed, search, shared};
use super::host::Host;
use super::{BadTrace, Outcome, Phase, PhaseOutcome, StaticChoice, Trace};
use crate::monitor::{Action, Decision, Layout, Memory, Settings, View, decide};

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

/// Replays a trace; `watch` is told the time, what the monitor saw and what it decided.
///
/// # Errors
/// [`BadTrace`].
pub fn replay(
    trace: &Trace,
    how: &Replay,
    watch: &mut dyn FnMut(f64, &View, &Decision),
) -> Result<Outcome, BadTrace> {
    trace.check()?;
    let mut host = Host::of(trace);
    let mut layout = fixed(&host, 0);
    let mut memory = Memory::default();
    let mut phases = Vec::new();
    let mut time = 0.0;
    for phase in &trace.phases {
        host.enter(trace, phase);
        phases.push(one_phase(&host, phase, how, &mut layout, &mut memory, &mut time, watch));
    }
    Ok(Outcome {
        queues: host.queues.len(),
        cores: host.cores.len(),
        period: how.period,
        phases,
        best_single: best_single(trace, &mut host),
    })
}

fn one_phase(
    host: &Host,
    phase: &Phase,
    how: &Replay,
    layout: &mut Layout,
    memory: &mut Memory,
    time: &mut f64,
    watch: &mut dyn FnMut(f64, &View, &Decision),
) -> PhaseOutcome {
    let (best_cores, best) = search(host);
    let periods = (phase.seconds / how.period).ceil().max(1.0) as u32;
    let (mut sum, mut changes, mut moves, mut paused) = (0.0, 0, 0, 0.0);
    let mut course = Vec::new();
    let mut last = 0.0;
    for _ in 0..periods {
        let served = shared(host, layout);
        let attained = served.attained * (1.0 - paused);
        sum += attained;
        course.push(attained);
        last = served.worst_p99;
        let view = served.view(host, layout);
        let decision = decide(&how.settings, memory, &view);
        *time += how.period;
        watch(*time, &view, &decision);
        let moved = layout.actions_to(&decision.layout);
        let queues = moved.iter().filter(|action| matches!(action, Action::Move { .. })).count();
        moves += queues as u64;
        paused = queues as f64 / host.queues.len() as f64 * PAUSE / how.period;
        changes += u32::from(decision.layout.cores() != layout.cores());
        *layout = decision.layout;
    }
    let below = course.iter().rposition(|&attained| attained < CONVERGED * best.attained);
    let converged = match below {
        None => Some(0),
        Some(at) if at + 1 < course.len() => Some(at + 1),
        Some(_) => None,
    };
    let settled = &course[converged.unwrap_or(course.len() / 2)..];
    PhaseOutcome {
        name: phase.name.clone(),
        seconds: phase.seconds,
        attained: sum / f64::from(periods),
        settled: settled.iter().sum::<f64>() / settled.len() as f64,
        best: StaticChoice { cores: best_cores, attained: best.attained },
        each: each(host).attained,
        converged: converged.map(|periods| periods as f64 * how.period),
        cores: layout.cores(),
        changes,
        moves,
        worst_p99: last,
    }
}

fn best_single(trace: &Trace, host: &mut Host) -> StaticChoice {
    let mut sums = vec![0.0; host.cores.len()];
    let mut seconds = 0.0;
    for phase in &trace.phases {
        host.enter(trace, phase);
        seconds += phase.seconds;
        for (cores, sum) in sums.iter_mut().enumerate() {
            *sum += phase.seconds * shared(host, &fixed(host, cores)).attained;
        }
    }
    let best = sums.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(&a.0)));
    let (cores, sum) = best.map_or((0, 0.0), |(cores, &sum)| (cores, sum));
    StaticChoice { cores, attained: if seconds > 0.0 { sum / seconds } else { 0.0 } }
}
