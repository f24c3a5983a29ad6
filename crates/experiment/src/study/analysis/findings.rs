//! The findings of a study, as data.

use serde::{Deserialize, Serialize};

use super::facts::{Arm, StudyFacts};
use super::gates::Gates;
use super::multiplicity::{FalseAlarms, Multiplicity};
use super::verdict::Verdict;
use super::warning::Warning;
use crate::study::{Better, Unit};
use stats::{Contrast, Interval};

/// Format version of [`Findings`].
pub const FINDINGS_FORMAT: u32 = 1;

/// The findings of a study.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Findings {
    /// Version of this format.
    pub format: u32,
    /// The verdict.
    pub verdict: Verdict,
    /// The study as planned.
    pub study: StudyFacts,
    /// The arms that ran, the baseline first. Other parts refer to an arm by its index here.
    pub arms: Vec<Arm>,
    /// The numbers of guests with runs, ascending.
    pub counts: Vec<u32>,
    /// Every figure of every workload; those measured by the workload itself come first.
    pub figures: Vec<Figure>,
    /// The number of comparisons, and the number expected to look like differences by chance.
    pub multiplicity: Multiplicity,
    /// How many comparisons of equal arms gave a difference, if there are equal arms.
    pub false_alarms: Option<FalseAlarms>,
    /// The gates that a difference has to pass.
    pub gates: Gates,
    /// Warnings.
    pub warnings: Vec<Warning>,
    /// The method of the study.
    pub method: super::method::Method,
}

impl Findings {
    /// The figures measured by the workloads themselves that have a better direction.
    pub fn telling(&self) -> impl Iterator<Item = &Figure> {
        self.figures.iter().filter(|figure| figure.is_telling())
    }

    /// The first such figure of each workload: throughput before latency.
    pub fn main(&self) -> Vec<&Figure> {
        let of = |workload: &str, better| {
            self.telling().find(|figure| figure.workload == workload && figure.better == better)
        };
        let mut workloads: Vec<&str> = Vec::new();
        for figure in &self.figures {
            if !workloads.contains(&figure.workload.as_str()) {
                workloads.push(&figure.workload);
            }
        }
        let of_each = workloads.into_iter();
        of_each.filter_map(|name| of(name, Better::Higher).or_else(|| of(name, Better::Lower))).collect()
    }

    /// The main figures and those of the same kind: the throughput of each test of a workload.
    pub fn main_and_alike(&self) -> Vec<&Figure> {
        let alike = |main: &Figure, other: &Figure| {
            main.workload == other.workload && main.unit == other.unit && main.better == other.better
        };
        let main = self.main();
        self.telling().filter(|figure| main.iter().any(|main| alike(main, figure))).collect()
    }
}

/// The source of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// Measured by the workload.
    Workload,
    /// Sampled on the host.
    Host,
}

/// A figure of a workload, for each number of guests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// The workload.
    pub workload: String,
    /// The metric.
    pub metric: String,
    /// The source of the values.
    pub source: Source,
    /// The unit.
    pub unit: Unit,
    /// The better direction.
    pub better: Better,
    /// The values for each number of guests, ascending.
    pub points: Vec<Point>,
    /// Each arm against the baseline over all numbers of guests, if there are several: each block gives one
    /// value, the mean of its changes.
    pub overall: Vec<Comparison>,
}

impl Figure {
    /// Tests whether the workload measured it and it has a better direction.
    pub fn is_telling(&self) -> bool {
        self.source == Source::Workload && self.better != Better::Neither
    }

    /// Tests whether it counts the VM exits of all reasons.
    pub fn is_exit_total(&self) -> bool {
        self.source == Source::Host && self.metric == super::wording::EXIT_TOTAL
    }

    /// Tests whether it counts the VM exits of all reasons for each unit of the workload's work.
    pub fn is_exit_total_of_work(&self) -> bool {
        self.source == Source::Host
            && super::wording::exits_of_which_work(&self.metric).is_some_and(|(_, of)| of == "total")
    }

    /// The shortest comparison of each arm with the baseline: over all numbers of guests, or for the only
    /// one.
    pub fn summary(&self) -> &[Comparison] {
        match &self.points[..] {
            [only] => &only.comparisons,
            _ => &self.overall,
        }
    }

    /// The metric's name, preceded by the workload's unless it begins with that.
    pub fn name(&self) -> String {
        super::wording::figure(&self.workload, &self.metric, self.source)
    }
}

/// A figure at one number of guests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The number of guests that run at once.
    pub guests: u32,
    /// The values of each arm, in the order of arms; `None` if it did not run.
    pub arms: Vec<Option<ArmValues>>,
    /// The comparison of each other arm with the baseline.
    pub comparisons: Vec<Comparison>,
}

impl Point {
    /// The level of an arm: in the compared blocks if those are the same for all arms, else in all its own
    /// blocks.
    pub fn level(&self, arm: usize) -> Option<f64> {
        let own = self.arms.get(arm)?.as_ref()?.level;
        let is_baseline = self.comparisons.iter().all(|one| one.arm != arm);
        let mut compared = self.comparisons.iter().filter_map(|one| match one.levels? {
            [level, _] if is_baseline => Some(level),
            [_, level] if one.arm == arm => Some(level),
            _ => None,
        });
        let first = compared.next().unwrap_or(own);
        Some(if compared.all(|level| level == first) { first } else { own })
    }
}

/// A figure in one arm, at one number of guests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ArmValues {
    /// One value for each block, as block and value, in the figure's unit.
    pub values: Vec<(u32, f64)>,
    /// Their mean.
    pub mean: f64,
    /// Their median.
    pub median: f64,
    /// The 95 % interval of the mean, by Student's t; `None` with fewer than three values.
    pub interval: Option<Interval>,
    /// The level between which changes are measured: the geometric mean if figures are compared by ratio,
    /// else the mean.
    pub level: f64,
    /// The 95 % interval of the level; `None` with fewer than three values.
    pub level_interval: Option<Interval>,
}

/// The comparison of an arm with the baseline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The arm's index in [`Findings::arms`].
    pub arm: usize,
    /// The change and its certainty; `None` if no block has both arms.
    pub change: Option<Contrast>,
    /// The levels of the baseline and the arm in the blocks that have both: the estimate is their ratio or
    /// their difference. `None` without a change.
    pub levels: Option<[f64; 2]>,
    /// The change in percent of the baseline's level, if that is positive.
    pub percent: Option<f64>,
    /// The noise of averages of so many repeats of the same arm, as root mean square difference, on the scale
    /// of the change.
    pub noise: Option<f64>,
    /// The finding.
    pub finding: Finding,
    /// The p value adjusted over all comparisons of this source by Holm's method.
    pub p_holm: Option<f64>,
    /// The arms are equal, so that a difference is a false alarm.
    pub is_aa: bool,
}

/// The finding of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Finding {
    /// All gates are passed: the arm's value is higher.
    Raised,
    /// All gates are passed: the arm's value is lower.
    Lowered,
    /// There is a difference, but it is too small to matter or to exceed the scatter of the repeats.
    Small,
    /// No significant difference; the interval bounds the possible difference.
    NotSeen,
    /// Fewer than three repeats.
    TooFew,
}

impl Finding {
    /// Tests whether all gates are passed.
    pub fn is_found(self) -> bool {
        matches!(self, Self::Raised | Self::Lowered)
    }

    /// Tests whether it is an improvement; `None` if there is no difference or the figure has no better
    /// direction.
    pub fn is_good(self, better: Better) -> Option<bool> {
        match (self, better) {
            (Self::Raised, Better::Higher) | (Self::Lowered, Better::Lower) => Some(true),
            (Self::Raised, Better::Lower) | (Self::Lowered, Better::Higher) => Some(false),
            _ => None,
        }
    }
}
