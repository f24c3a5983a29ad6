//! The findings of a study, as data.

use serde::Serialize;

use super::facts::{Arm, StudyFacts};
use super::figure::Figure;
use super::gates::Gates;
use super::multiplicity::{FalseAlarms, Multiplicity};
use super::warning::Warning;
use crate::Better;

/// Format version of [`Findings`].
pub const FINDINGS_FORMAT: u32 = 1;

/// The findings of a study.
#[derive(Debug, Clone, PartialEq, Serialize)]
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
    /// The number of comparisons of equal arms that gave a difference, if there are equal arms.
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

    /// The main figures, and the workloads' other figures with the same unit and direction: the throughput of each
    /// test.
    pub fn main_and_alike(&self) -> Vec<&Figure> {
        let alike = |main: &Figure, other: &Figure| {
            main.workload == other.workload && main.unit == other.unit && main.better == other.better
        };
        let main = self.main();
        self.telling().filter(|figure| main.iter().any(|main| alike(main, figure))).collect()
    }
}

/// The verdict.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// The judgement.
    pub judgement: Judgement,
    /// The verdict in a sentence.
    pub sentence: String,
    /// A sentence for each finding.
    pub sentences: Vec<String>,
}

/// The judgement, from the main figure of each workload in each arm.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Judgement {
    /// At least one improved and none got worse.
    Better,
    /// At least one got worse and none improved.
    Worse,
    /// Some improved and some got worse.
    Mixed,
    /// No significant difference.
    NoDifference,
    /// There are too few repeats for intervals.
    TooFewRepeats,
    /// The arms are equal (an A/A study): differences are counted as false alarms.
    Alike,
    /// Nothing was compared.
    #[default]
    Nothing,
}
