//! The result of a tuning, as data.

use serde::Serialize;

use super::advised::{AdvisedFor, Left};
use super::carried::Carried;
use super::step::TUNED;
use stats::Contrast;

use crate::analysis::Finding;
use crate::{Better, Unit};
use guests::GuestPlan;

/// Format version of [`Tuning`].
pub const TUNING_FORMAT: u32 = 1;

/// The result of a tuning, which may still be running.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Tuning {
    /// Version of this format.
    pub format: u32,
    /// The plan's name.
    pub name: String,
    /// The plan's title.
    pub title: String,
    /// The plan's question.
    pub question: String,
    /// The target on which it ran.
    pub target: String,
    /// Every change was tried.
    pub complete: bool,
    /// The changes in the order in which they were tried; the confirmation, if any, is last.
    pub steps: Vec<Step>,
    /// Names of the kept changes.
    pub kept: Vec<String>,
    /// Advice for the remaining exits that a tuning cannot follow.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<Left>,
    /// Further notes: the reason why no more changes were advised.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The guest's definition before, an option on each line, after the settings of the host.
    pub before: Vec<String>,
    /// The definition with the kept changes.
    pub after: Vec<String>,
    /// The plan's table of guests with the kept changes.
    pub guests: Option<GuestPlan>,
    /// The definition of the VM that the guests represent, with the kept changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub definition: Option<TunedDefinition>,
}

impl Tuning {
    /// Tests whether kept changes should be measured a second time: they were selected from several, or by several figures,
    /// so that those are favoured whose measurements are too good by chance.
    pub fn needs_confirmation(&self) -> bool {
        let deciding = self.steps.iter().flat_map(|step| &step.judged).filter(|judged| judged.decides);
        !self.kept.is_empty() && deciding.count() > 1
    }
}

/// The definition of a VM before and after.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TunedDefinition {
    /// The name of its source.
    pub name: String,
    /// Its text before.
    pub before: String,
    /// Its properties that the guests lack.
    pub unlike: Vec<String>,
    /// The definition after.
    #[serde(flatten)]
    pub carried: Carried,
}

/// One change that was tried.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Step {
    /// The change's name.
    pub name: String,
    /// The reason to try it.
    pub why: String,
    /// The advice; `None` if the plan lists the change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advised: Option<AdvisedFor>,
    /// The ruling.
    pub ruling: Ruling,
    /// The study's verdict, or the reason why it has none.
    pub sentence: String,
    /// The study's folder below the result's; `None` if nothing was measured.
    pub folder: Option<String>,
    /// The figures.
    pub judged: Vec<Judged>,
}

impl Step {
    /// Tests whether it is not a change, but the comparison of all kept changes with the baseline.
    pub fn is_confirmation(&self) -> bool {
        self.name == TUNED
    }
}

/// The ruling on a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ruling {
    /// At least one figure improved and none got worse: the change is kept.
    Kept,
    /// At least one got worse and none improved.
    Worse,
    /// Some improved and some got worse.
    Mixed,
    /// At least one improved and none got worse, but that may be chance among all figures of all changes.
    Uncertain,
    /// No significant difference.
    NoDifference,
    /// There are too few repeats for intervals.
    TooFew,
    /// Runs failed for good, so that there is no result.
    Failed,
    /// It conflicts with the changes kept before it.
    Impossible,
    /// All kept changes together improve on the baseline.
    Confirmed,
    /// All kept changes together do not improve on the baseline. If they are worse, or better and worse, or if the runs
    /// failed, the ruling on them is the same as on a change.
    NotConfirmed,
}

/// A figure, with and without the change.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Judged {
    /// The figure in words.
    pub figure: String,
    /// The metric.
    pub metric: String,
    /// The workload.
    pub workload: String,
    /// The unit.
    pub unit: Unit,
    /// The better direction.
    pub better: Better,
    /// The ruling depends on this figure. Others are only reported, except that main figures must not get worse.
    pub decides: bool,
    /// The level without the change: the mean, or the geometric mean if figures are compared by ratio.
    pub before: Option<f64>,
    /// The level with it.
    pub after: Option<f64>,
    /// The change and its certainty.
    pub change: Option<Contrast>,
    /// The finding.
    pub finding: Finding,
}
