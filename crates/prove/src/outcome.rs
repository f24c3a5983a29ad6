//! The outcome of a proof: the result file, and the source of pages and tables.

use conclusions::RelativeChange;
use exits::{ExitReason, HandlingTime, Virtualized};
use host::Fingerprint;
use probe::Arms;
use probe::measure::Measure;
use probe::run::Arm;
use serde::Serialize;
use stats::{Interval, Summary};

use super::difference::Difference;
use super::evidence::Evidence;
use super::{ArmPair, Plan, Warning};

/// The format version of outcomes.
pub const OUTCOME_FORMAT: u32 = 1;

/// The result of a proof. Field names are stable within one `format`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Proof {
    /// [`OUTCOME_FORMAT`] of the writer.
    pub format: u32,
    /// The version of the command that recorded it.
    pub version: String,
    /// When collection began, in seconds since 1970-01-01 UTC by the host's clock.
    pub started: u64,
    /// The duration of the collection, in milliseconds by the host's clock.
    pub took_ms: u64,
    /// The answer in one sentence.
    pub verdict: String,
    /// The answer in one word.
    pub judgement: Judgement,
    /// The measure whose figure comes first in the verdict.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub headline: Option<Measure>,
    /// The machine.
    pub fingerprint: Fingerprint,
    /// The emulator under which the host ran; cycles are then not time on hardware.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub emulated: Option<String>,
    /// Cycles that the emulator charged for each VM exit with the entry after it; `None` on hardware.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub switch_cycles: Option<u32>,
    /// Frequency of the guest's TSC in kilohertz.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tsc_khz: Option<u32>,
    /// The plan.
    pub plan: Plan,
    /// The available arms.
    pub arms: Arms,
    /// Evidence that interrupt virtualization was in fact on and off in the arms.
    pub evidence: Evidence,
    /// Each measure that has samples, in the order of the plan.
    pub measures: Vec<MeasureOutcome>,
    /// Measures at other costs of a switch, cheapest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub at_other_costs: Vec<AtCost>,
    /// Exits over all measures.
    pub exits: ExitTotals,
    /// Doubts about the figures.
    pub warnings: Vec<Warning>,
    /// The method of the figures.
    pub method: Method,
}

/// Measures at one cost of a switch between guest and host.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AtCost {
    /// Cycles charged for each VM exit with the entry after it.
    pub switch_cycles: u32,
    /// The outcome's measures that were also measured at this cost.
    pub measures: Vec<MeasureOutcome>,
}

/// The answer in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Judgement {
    /// At least one measure got cheaper and none more expensive.
    WorthIt,
    /// Some measures got cheaper and some more expensive.
    Mixed,
    /// No measure got cheaper, and some got more expensive.
    Worse,
    /// No significant difference.
    NoDifference,
    /// There are too few runs for intervals.
    TooFewRuns,
    /// The host has only one arm.
    OneArm,
    /// The evidence contradicts the arms.
    Contradicted,
    /// None of the measures that have samples depends on interrupt virtualization.
    Nothing,
}

/// One measure in both arms.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MeasureOutcome {
    /// The measure.
    pub measure: Measure,
    /// The cost in each arm.
    pub cost: ArmPair<Option<Cost>>,
    /// Difference of the medians of runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub difference: Option<Difference>,
    /// Difference of the means of runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean_difference: Option<Difference>,
    /// Difference of the 99th percentiles of runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_difference: Option<Difference>,
    /// The p value of the difference of the medians, by a permutation test.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p_value: Option<f64>,
    /// The interpretation of the difference of the medians.
    pub effect: Effect,
    /// Exits for each operation, if counted.
    pub exits: PerOperation,
}

/// The cost of one operation in one arm, in cycles of the guest's TSC.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Cost {
    /// The number of timed runs.
    pub runs: usize,
    /// The median of the medians of the runs.
    pub median: f64,
    /// All samples of all runs together.
    pub pooled: Summary,
}

/// The interpretation of a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// Fewer cycles with interrupt virtualization: the whole interval is below zero.
    Fewer,
    /// More cycles with interrupt virtualization: the whole interval is above zero.
    More,
    /// The interval excludes zero, but the difference is too small to matter.
    Negligible,
    /// The interval includes zero.
    Indistinguishable,
    /// There is no interval, or only one arm.
    Unknown,
}

/// Exits for each operation of one measure.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct PerOperation {
    /// By reason, largest change first; empty without tracepoints.
    pub reasons: Vec<ReasonRow>,
    /// All reasons together, counted by the tracepoints.
    pub traced: ArmPair<Option<f64>>,
    /// KVM's own count (`exits`).
    pub statistics: ArmPair<Option<f64>>,
}

/// One exit reason in both arms.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ReasonRow {
    /// The reason.
    pub reason: ExitReason,
    /// Exits counted.
    pub count: ArmPair<Option<u64>>,
    /// Exits for each operation.
    pub per_operation: ArmPair<Option<f64>>,
    /// Time from exit to the next entry.
    pub handling: ArmPair<Option<HandlingTime>>,
    /// Change of the exits for each operation from off to on; `None` without both arms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change: Option<RelativeChange>,
    /// Interval of the change, from the number of exits only: each arm was counted in one run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<Interval>,
    /// The effect that the hardware's interrupt virtualization should have on exits of this reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<Virtualized>,
}

/// Exits over all measures that both arms have.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct ExitTotals {
    /// By reason, largest change first; empty without tracepoints.
    pub reasons: Vec<ReasonRow>,
    /// All reasons together, counted by the tracepoints.
    pub traced: ArmPair<Option<u64>>,
    /// KVM's own count (`exits`) over the same runs.
    pub statistics: ArmPair<Option<u64>>,
    /// Operations of the guest during those runs.
    pub operations: ArmPair<u64>,
    /// Events that the kernel dropped.
    pub lost: ArmPair<u64>,
    /// Change of the exits for each operation from off to on: by the tracepoints, else by KVM's own count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change: Option<RelativeChange>,
}

impl ExitTotals {
    /// All exits of one arm: by the tracepoints, else by KVM's own count.
    pub fn total(&self, arm: Arm) -> Option<u64> {
        self.traced.of(arm).or(*self.statistics.of(arm))
    }
}

/// The method of the figures, for those who want to reproduce them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Method {
    /// The confidence level of the intervals, 0 to 1.
    pub confidence: f64,
    /// The method of the intervals, in words.
    pub interval: String,
    /// The method of the p values, in words.
    pub p_value: String,
    /// The seed of the random numbers.
    pub seed: u64,
    /// The difference in percent below which an effect is called negligible.
    pub negligible_percent: f64,
}

impl Proof {
    /// A measure's result at each measured cost of a switch, including the outcome's own, cheapest first. Empty if only one
    /// cost was measured.
    pub fn over_costs(&self, measure: Measure) -> Vec<(u32, &MeasureOutcome)> {
        let own = self.switch_cycles.filter(|_| !self.at_other_costs.is_empty());
        let own = own.map(|cycles| (cycles, &self.measures));
        let others = self.at_other_costs.iter().map(|at| (at.switch_cycles, &at.measures));
        let mut found: Vec<(u32, &MeasureOutcome)> = own
            .into_iter()
            .chain(others)
            .filter_map(|(cycles, measures)| {
                measures.iter().find(|outcome| outcome.measure == measure).map(|outcome| (cycles, outcome))
            })
            .collect();
        found.sort_by_key(|(cycles, _)| *cycles);
        found
    }
}
