//! What a proof came to: the result file, and what pages and tables are made of.

use exits::{Change, ExitReason, HandlingTime, Virtualized};
use host::Fingerprint;
use probe::Arms;
use probe::measure::Measure;
use probe::run::Arm;
use serde::{Deserialize, Serialize};
use stats::{Interval, Summary};

use super::difference::Difference;
use super::evidence::Evidence;
use super::{ArmPair, Plan, Warning};

/// The version of the form in which outcomes are written.
pub const OUTCOME_FORMAT: u32 = 1;

/// The result of a proof. Field names are stable within one `format`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// [`OUTCOME_FORMAT`] of the writer.
    pub format: u32,
    /// The version of the command that recorded it.
    pub version: String,
    /// When collection began, in seconds since 1970-01-01 UTC by the host's clock.
    pub started: u64,
    /// How long collection took, in milliseconds by the host's clock.
    pub took_ms: u64,
    /// The answer in one sentence.
    pub verdict: String,
    /// The answer in one word.
    pub judgement: Judgement,
    /// The measure whose figure the verdict gives first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headline: Option<Measure>,
    /// The machine.
    pub fingerprint: Fingerprint,
    /// The emulator under which the host ran: cycles are then no time on hardware.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emulated: Option<String>,
    /// Cycles that the emulator charged for each VM exit with the entry after it; none on hardware, which takes its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch_cycles: Option<u32>,
    /// Frequency of the guest's TSC in kilohertz.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tsc_khz: Option<u32>,
    /// What was asked for.
    pub plan: Plan,
    /// Which arms there are.
    pub arms: Arms,
    /// What shows that the arms were what they are called.
    pub evidence: Evidence,
    /// Each measure that gave samples, in the order of the plan.
    pub measures: Vec<MeasureOutcome>,
    /// Measures at other costs of a switch, from the cheapest on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub at_other_costs: Vec<AtCost>,
    /// Exits over all measures.
    pub exits: ExitTotals,
    /// Doubts about the figures.
    pub warnings: Vec<Warning>,
    /// How the figures were made.
    pub method: Method,
}

/// Measures at one cost of a switch between guest and host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AtCost {
    /// Cycles charged for each VM exit with the entry after it.
    pub switch_cycles: u32,
    /// Those of the outcome that were measured at this cost too.
    pub measures: Vec<MeasureOutcome>,
}

/// The answer in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Judgement {
    /// At least one measure got cheaper and none dearer.
    WorthIt,
    /// Some got cheaper and some dearer.
    Mixed,
    /// None got cheaper, some dearer.
    Worse,
    /// No difference could be told from none.
    NoDifference,
    /// There are too few runs to tell.
    TooFewRuns,
    /// The host has one arm only.
    OneArm,
    /// The evidence contradicts the arms.
    Contradicted,
    /// What was measured in both arms has nothing to do with interrupts.
    Nothing,
}

/// One measure in both arms.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MeasureOutcome {
    /// What was measured.
    pub measure: Measure,
    /// What it costs in each arm.
    pub cost: ArmPair<Option<Cost>>,
    /// Of the medians of runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub difference: Option<Difference>,
    /// Of the means of runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_difference: Option<Difference>,
    /// Of the 99th percentiles of runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_difference: Option<Difference>,
    /// How often dealing the arms' names by chance gives a difference of the medians as large as this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p_value: Option<f64>,
    /// What the difference of the medians amounts to.
    pub effect: Effect,
    /// Exits for each operation, where they were counted.
    pub exits: PerOperation,
}

/// What one operation cost in one arm, in cycles of the guest's TSC.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Timed runs.
    pub runs: usize,
    /// The median of the medians of the runs.
    pub median: f64,
    /// All samples of all runs together.
    pub pooled: Summary,
}

/// What a difference amounts to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// Fewer cycles with interrupt virtualization: the interval lies below zero.
    Fewer,
    /// More cycles with interrupt virtualization: the interval lies above zero.
    More,
    /// The interval leaves zero out, but the difference is too small to mean anything.
    Negligible,
    /// The interval holds zero.
    Indistinguishable,
    /// There is no interval, or only one arm.
    Unknown,
}

/// Exits for each operation of one measure.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct PerOperation {
    /// By reason, largest change first; empty where no tracepoints were used.
    pub reasons: Vec<ReasonRow>,
    /// All reasons together, by the tracepoints.
    pub traced: ArmPair<Option<f64>>,
    /// KVM's own count (`exits`).
    pub statistics: ArmPair<Option<f64>>,
}

/// One exit reason in both arms.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReasonRow {
    /// The reason.
    pub reason: ExitReason,
    /// Exits counted.
    pub count: ArmPair<Option<u64>>,
    /// Exits for each operation.
    pub per_operation: ArmPair<Option<f64>>,
    /// Time from exit to the next entry.
    pub handling: ArmPair<Option<HandlingTime>>,
    /// From off to on, of the exits for each operation; none without both arms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<Change>,
    /// Of the change, by the number of exits alone: each arm's were counted in one run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<Interval>,
    /// What interrupt virtualization does to such exits by the hardware's rules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<Virtualized>,
}

/// Exits over all measures that both arms gave.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ExitTotals {
    /// By reason, largest change first; empty where no tracepoints were used.
    pub reasons: Vec<ReasonRow>,
    /// All reasons together, by the tracepoints.
    pub traced: ArmPair<Option<u64>>,
    /// KVM's own count (`exits`) over the same runs.
    pub statistics: ArmPair<Option<u64>>,
    /// Operations of the guest meanwhile.
    pub operations: ArmPair<u64>,
    /// Events that the kernel had to drop.
    pub lost: ArmPair<u64>,
    /// From off to on for each operation: by the tracepoints, else by KVM's own count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<Change>,
}

impl ExitTotals {
    /// All exits of one arm: by the tracepoints, else by KVM's own count.
    pub fn total(&self, arm: Arm) -> Option<u64> {
        self.traced.of(arm).or(*self.statistics.of(arm))
    }
}

/// How the figures were made, for whoever wants to make them again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Method {
    /// How often such an interval holds the truth, 0 to 1.
    pub confidence: f64,
    /// How the interval is made, in words.
    pub interval: String,
    /// How the p value is made, in words.
    pub p_value: String,
    /// The seed of whatever was drawn at random.
    pub seed: u64,
    /// A difference smaller than this is called negligible, in percent.
    pub negligible_percent: f64,
}

impl Outcome {
    /// A measure's result at each cost of a switch at which it was measured, the outcome's own among them, from the
    /// cheapest on. Empty where only one cost was measured.
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
