//! The facts of a plan and its target that the analysis needs, independent of their file formats.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::Run;
use crate::sampling::SamplePlan;

/// A study as planned, and its target.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct StudyFacts {
    /// The plan's name.
    pub name: String,
    /// The title of the page.
    pub title: String,
    /// The question that the study answers.
    pub question: String,
    /// The factors.
    pub factors: Vec<FactorFacts>,
    /// The numbers of guests that run at once, ascending.
    pub counts: Vec<u32>,
    /// The guests are VMs.
    pub are_vms: bool,
    /// The guests' settings without the numbers of guests, in a form that is equal for equal settings.
    pub guests: String,
    /// The settings of the samples, in a form that is equal for equal settings.
    pub samples: String,
    /// The workloads, in the order in which they run.
    pub workloads: Vec<WorkloadFacts>,
    /// The number of planned blocks.
    pub repeats: u32,
    /// The number of discarded warm-up runs before each run.
    pub warm_up: u32,
    /// The seed for the order of arms within blocks.
    pub seed: u64,
    /// The target on which it ran, as named by the user: `local`, `ssh://HOST`, `lab:NAME`.
    pub target: String,
    /// The emulator of the target's CPUs, if they are emulated: times are then meaningless.
    pub emulated: Option<String>,
    /// The version of exitless that ran it.
    pub version: String,
}

impl StudyFacts {
    /// Tests whether exits were counted in a repetition of each run.
    pub fn counts_exits_apart(&self) -> bool {
        serde_json::from_str(&self.samples).is_ok_and(|samples: SamplePlan| samples.exits.is_apart())
    }
}

/// A factor of a study.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct FactorFacts {
    /// Its name.
    pub name: String,
    /// The level that the others are compared with.
    pub baseline: String,
    /// Its levels, in the plan's order.
    pub levels: Vec<LevelFacts>,
}

/// A level of a factor.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct LevelFacts {
    /// Its name.
    pub name: String,
    /// Its settings, in a form that is equal for equal settings: levels with equal settings are the same arm.
    pub settings: String,
}

/// A workload of a study.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct WorkloadFacts {
    /// Its name in the plan.
    pub name: String,
    /// The program that generates the load.
    pub tool: String,
    /// Its settings, in a form that is equal for equal settings.
    pub settings: String,
}

/// A run, and its folder.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredRun {
    /// Its folder in the result folder, as `runs/NAME`.
    pub folder: String,
    /// The run.
    pub run: Run,
}

/// The contents of a result folder.
#[derive(Debug, Clone, PartialEq)]
pub struct Collected {
    /// The plan and the target.
    pub facts: StudyFacts,
    /// The valid runs.
    pub runs: Vec<StoredRun>,
    /// Failed attempts, including those that a later attempt replaced.
    pub failed: Vec<StoredRun>,
    /// The number of runs that the plan asks for; a study that was ended early has fewer.
    pub planned: usize,
    /// Files that were ignored because they are damaged or do not belong in the folder.
    pub damage: Vec<String>,
}

/// An arm of a study.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Arm {
    /// The level of each factor.
    pub levels: BTreeMap<String, String>,
    /// The level if there is one factor, else `FACTOR LEVEL` for each factor.
    pub name: String,
    /// The name with the names of all factors: `apicv on`.
    pub full_name: String,
    /// Its settings are those of the baseline: a difference between them is noise.
    pub is_like_baseline: bool,
}

/// The arms that ran, the baseline first, then in the plan's order of levels.
pub(super) fn arms(facts: &StudyFacts, runs: &[StoredRun]) -> Vec<Arm> {
    let mut seen: Vec<&BTreeMap<String, String>> = runs.iter().map(|stored| &stored.run.cell.arm).collect();
    seen.sort();
    seen.dedup();
    let baseline: BTreeMap<String, String> =
        facts.factors.iter().map(|factor| (factor.name.clone(), factor.baseline.clone())).collect();
    let place = |arm: &BTreeMap<String, String>| {
        let levels = facts.factors.iter().map(|factor| {
            let level = arm.get(&factor.name);
            factor.levels.iter().position(|known| Some(&known.name) == level).unwrap_or(usize::MAX)
        });
        (*arm != baseline, levels.collect::<Vec<_>>())
    };
    seen.sort_by_key(|arm| place(arm));
    seen.into_iter().map(|levels| arm(facts, levels, &baseline)).collect()
}

fn arm(facts: &StudyFacts, levels: &BTreeMap<String, String>, baseline: &BTreeMap<String, String>) -> Arm {
    let full_name = match levels.len() {
        0 => "the only arm".to_owned(),
        _ => levels.iter().map(|(factor, level)| format!("{factor} {level}")).collect::<Vec<_>>().join(", "),
    };
    let name = match levels.len() {
        1 => levels.values().next().cloned().unwrap_or_default(),
        _ => full_name.clone(),
    };
    let is_like_baseline = levels != baseline
        && facts.factors.iter().all(|factor| {
            let of = |arm: &BTreeMap<String, String>| {
                let level = arm.get(&factor.name);
                factor
                    .levels
                    .iter()
                    .find(|known| Some(&known.name) == level)
                    .map(|known| known.settings.clone())
            };
            of(levels).is_some() && of(levels) == of(baseline)
        });
    Arm { levels: levels.clone(), name, full_name, is_like_baseline }
}
