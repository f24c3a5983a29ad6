//! What a study found, as data.

use serde::{Deserialize, Serialize};

use super::facts::{Arm, StudyFacts};
use super::gates::Gates;
use super::multiplicity::{FalseAlarms, Multiplicity};
use super::verdict::Verdict;
use super::warning::Warning;
use crate::study::{Better, Unit};
use stats::{Contrast, Interval};

/// Version of the form of [`Findings`].
pub const FINDINGS_FORMAT: u32 = 1;

/// What a study found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Findings {
    /// Version of this form.
    pub format: u32,
    /// The answer.
    pub verdict: Verdict,
    /// The study as it was planned.
    pub study: StudyFacts,
    /// The arms that ran, the baseline first. Other parts name an arm by its place here.
    pub arms: Vec<Arm>,
    /// Numbers of guests with runs, ascending.
    pub counts: Vec<u32>,
    /// Every figure of every workload, those that the load itself measured first.
    pub figures: Vec<Figure>,
    /// How many comparisons were made, and how many of them noise alone makes.
    pub multiplicity: Multiplicity,
    /// How often arms that are alike were told apart, where there are such.
    pub false_alarms: Option<FalseAlarms>,
    /// What a difference has to pass.
    pub gates: Gates,
    /// Doubts.
    pub warnings: Vec<Warning>,
    /// How it was run.
    pub method: super::method::Method,
}

impl Findings {
    /// The figures that the loads themselves measured, and that are good to have more or less of.
    pub fn telling(&self) -> impl Iterator<Item = &Figure> {
        self.figures.iter().filter(|figure| figure.is_telling())
    }

    /// The first telling figure of each workload: throughput before latency.
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

    /// The main figures and those of the same kind beside them: the throughput of each test of a workload.
    pub fn main_and_alike(&self) -> Vec<&Figure> {
        let alike = |main: &Figure, other: &Figure| {
            main.workload == other.workload && main.unit == other.unit && main.better == other.better
        };
        let main = self.main();
        self.telling().filter(|figure| main.iter().any(|main| alike(main, figure))).collect()
    }
}

/// Where a figure comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// The load measured it.
    Workload,
    /// It was sampled on the host.
    Host,
}

/// One figure of one workload, for each number of guests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// The workload.
    pub workload: String,
    /// The metric.
    pub metric: String,
    /// Who measured it.
    pub source: Source,
    /// What it is counted in.
    pub unit: Unit,
    /// Which way is the good one.
    pub better: Better,
    /// For each number of guests, ascending.
    pub points: Vec<Point>,
    /// Each arm against the baseline over all numbers of guests, where there are several: a block gives one value, the
    /// mean of its changes.
    pub overall: Vec<Comparison>,
}

impl Figure {
    /// Whether a load measured it, and it is good to have more or less of it.
    pub fn is_telling(&self) -> bool {
        self.source == Source::Workload && self.better != Better::Neither
    }

    /// Whether it counts the VM exits of all reasons.
    pub fn is_exit_total(&self) -> bool {
        self.source == Source::Host && self.metric == super::wording::EXIT_TOTAL
    }

    /// Whether it counts the VM exits of all reasons for each unit of the workload's work.
    pub fn is_exit_total_of_work(&self) -> bool {
        self.source == Source::Host
            && super::wording::exits_of_which_work(&self.metric).is_some_and(|(_, of)| of == "total")
    }

    /// Each arm against the baseline in the fewest words: over all numbers of guests, or with the only one there is.
    pub fn summary(&self) -> &[Comparison] {
        match &self.points[..] {
            [only] => &only.comparisons,
            _ => &self.overall,
        }
    }

    /// The metric's name, with the workload's before it unless it begins so.
    pub fn name(&self) -> String {
        super::wording::figure(&self.workload, &self.metric, self.source)
    }
}

/// A figure with one number of guests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Guests that run at once.
    pub guests: u32,
    /// What each arm came to, in the order of arms; `None` where it did not run.
    pub arms: Vec<Option<ArmValues>>,
    /// Each arm but the baseline against the baseline.
    pub comparisons: Vec<Comparison>,
}

impl Point {
    /// The level of an arm, in the blocks that were compared where those are the same for all arms, else in all of its own.
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

/// A figure in one arm, with one number of guests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ArmValues {
    /// One value a block, as block and value, in the figure's unit.
    pub values: Vec<(u32, f64)>,
    /// Their mean.
    pub mean: f64,
    /// Their median.
    pub median: f64,
    /// The 95 % interval of the mean, by Student's t; none with fewer than three values.
    pub interval: Option<Interval>,
    /// What changes are between: the geometric mean where figures are compared by their ratio, else the mean.
    pub level: f64,
    /// The 95 % interval of the level; none with fewer than three values.
    pub level_interval: Option<Interval>,
}

/// An arm against the baseline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The arm's place in [`Findings::arms`].
    pub arm: usize,
    /// How much, and how sure; `None` where no block has both.
    pub change: Option<Contrast>,
    /// Between which levels, of the baseline and the arm, in the blocks that have both: the estimate is their ratio, or
    /// their difference. `None` without a change.
    pub levels: Option<[f64; 2]>,
    /// The change in percent of the baseline's level, where that is positive.
    pub percent: Option<f64>,
    /// What averages of so many repeats of one and the same arm differ by, as root of the mean square; on the scale of
    /// the change.
    pub noise: Option<f64>,
    /// What may be said.
    pub finding: Finding,
    /// The p value times what Holm's method asks for over all comparisons of this source.
    pub p_holm: Option<f64>,
    /// Whether the arms are alike, so that what was found is a false alarm.
    pub is_aa: bool,
}

/// What may be said of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Finding {
    /// All gates hold: the arm has more.
    Raised,
    /// All gates hold: the arm has less.
    Lowered,
    /// There is a difference, but too small to matter or to stand out of the repeats' scatter.
    Small,
    /// No difference was seen; the interval bounds what may be there.
    NotSeen,
    /// Fewer than three repeats.
    TooFew,
}

impl Finding {
    /// Whether all gates hold.
    pub fn is_found(self) -> bool {
        matches!(self, Self::Raised | Self::Lowered)
    }

    /// Whether it is for the better; `None` where nothing was found or neither way is good.
    pub fn is_good(self, better: Better) -> Option<bool> {
        match (self, better) {
            (Self::Raised, Better::Higher) | (Self::Lowered, Better::Lower) => Some(true),
            (Self::Raised, Better::Lower) | (Self::Lowered, Better::Higher) => Some(false),
            _ => None,
        }
    }
}
