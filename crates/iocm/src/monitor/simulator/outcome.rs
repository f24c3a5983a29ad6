//! What a replay came to.

use serde::Serialize;

/// A replay, phase by phase.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    /// Virtqueues.
    pub queues: usize,
    /// Cores of the machine.
    pub cores: usize,
    /// Seconds between two decisions.
    pub period: f64,
    /// The phases, in order.
    pub phases: Vec<PhaseOutcome>,
    /// The number of I/O cores that serves most over all phases when it may never change. On machines of more than 128
    /// cores not every number was tried.
    pub best_single: StaticChoice,
}

/// One phase.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PhaseOutcome {
    /// Its name.
    pub name: String,
    /// How long it lasts.
    pub seconds: f64,
    /// What the monitor's arrangements served of all that was offered, each request weighted by its cost: 0 to 1.
    pub attained: f64,
    /// The same in the second half of the phase.
    pub settled: f64,
    /// The number of I/O cores that serves most in this phase, if it were known before, and what it serves.
    pub best: StaticChoice,
    /// What a thread for each device serves.
    pub each: f64,
    /// Seconds from the phase's start from which on it serves at least 95 % of the best, tries that are taken back
    /// included; `None` when it never does.
    pub converged: Option<f64>,
    /// I/O cores at the end.
    pub cores: usize,
    /// How often the number of I/O cores changed.
    pub changes: u32,
    /// Queues that were moved.
    pub moves: u64,
    /// The 99th percentile of the worst queue's latency at the end, in seconds.
    pub worst_p99: f64,
}

/// A number of I/O cores that never changes, and what it serves.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct StaticChoice {
    /// I/O cores.
    pub cores: usize,
    /// What is served of all that is offered: 0 to 1.
    pub attained: f64,
}

impl Outcome {
    /// What the monitor served of all that was offered over all phases: 0 to 1.
    #[must_use]
    pub fn attained(&self) -> f64 {
        self.mean(|phase| phase.attained)
    }

    /// The same for the best number of I/O cores of each phase, if they were known before.
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
    /// What the monitor serves in the second half of the phase, as a share of the best fixed number of cores.
    #[must_use]
    pub fn of_best(&self) -> f64 {
        if self.best.attained > 0.0 { self.settled / self.best.attained } else { 1.0 }
    }
}
