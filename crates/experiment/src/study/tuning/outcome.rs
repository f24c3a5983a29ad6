//! What came of a tuning, as data.

use serde::{Deserialize, Serialize};

use super::advised::{AdvisedFor, Left};
use super::carried::Carried;
use stats::Contrast;

use crate::study::analysis::Finding;
use crate::study::guest::GuestPlan;
use crate::study::{Better, Unit};

/// Version of the form of [`Tuning`].
pub const TUNING_FORMAT: u32 = 1;

/// What came of a tuning, so far or at its end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tuning {
    /// Version of this form.
    pub format: u32,
    /// The plan's name.
    pub name: String,
    /// The plan's title.
    pub title: String,
    /// The plan's question.
    pub question: String,
    /// Where it ran.
    pub target: String,
    /// Whether every change was tried.
    pub complete: bool,
    /// The changes in the order in which they were tried; the confirmation last, where there was one.
    pub steps: Vec<Step>,
    /// Names of the kept changes.
    pub kept: Vec<String>,
    /// What is advised for the exits that are left, and is not a tuning's to change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<Left>,
    /// What should be known beside: why nothing more was advised.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The guest's definition before, a line an argument; settings of the host before them.
    pub before: Vec<String>,
    /// The same with the kept changes.
    pub after: Vec<String>,
    /// The plan's table of guests with the kept changes.
    pub guests: Option<GuestPlan>,
    /// The definition of the VM that the guests stand for, with the kept changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub definition: Option<TunedDefinition>,
}

/// The definition of a VM before and after.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TunedDefinition {
    /// What it was read from.
    pub name: String,
    /// Its text before.
    pub before: String,
    /// What the guests have not of it.
    pub unlike: Vec<String>,
    /// What became of it.
    #[serde(flatten)]
    pub carried: Carried,
}

/// One change that was tried.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// The change's name.
    pub name: String,
    /// Why it was tried.
    pub why: String,
    /// What it was advised for; none where the plan lists it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advised: Option<AdvisedFor>,
    /// What became of it.
    pub ruling: Ruling,
    /// What there is to say beside: the study's verdict, or why there is none.
    pub sentence: String,
    /// The study's folder below the result's; none where nothing was measured.
    pub folder: Option<String>,
    /// What it rests on.
    pub judged: Vec<Judged>,
}

/// What became of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ruling {
    /// Some figure got better and none worse: it stays.
    Kept,
    /// Some got worse and none better.
    Worse,
    /// Some got better and some worse.
    Mixed,
    /// None differs.
    NoDifference,
    /// There are too few repeats to tell.
    TooFew,
    /// Runs failed for good, so that there is nothing to judge by.
    Failed,
    /// It does not go with what was kept before it.
    Impossible,
    /// All kept changes together are better than the baseline.
    Confirmed,
    /// All kept changes together are not better than the baseline.
    NotConfirmed,
}

/// A figure, with and without the change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Judged {
    /// In words.
    pub figure: String,
    /// The metric.
    pub metric: String,
    /// The workload.
    pub workload: String,
    /// What it is counted in.
    pub unit: Unit,
    /// Which way is the good one.
    pub better: Better,
    /// Whether the ruling rests on it; others are told beside, and main figures may not get worse.
    pub decides: bool,
    /// The level without the change: the mean, or the geometric mean where figures are compared by their ratio.
    pub before: Option<f64>,
    /// The level with it.
    pub after: Option<f64>,
    /// How much, and how sure.
    pub change: Option<Contrast>,
    /// What may be said of it.
    pub finding: Finding,
}
