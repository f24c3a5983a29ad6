//! What of a plan and its target the analysis must know, apart from how either is written down.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::study::Run;

/// A study as it was planned, and where it ran.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StudyFacts {
    /// The plan's name.
    pub name: String,
    /// For the head of a page.
    pub title: String,
    /// What the study is to answer.
    pub question: String,
    /// What is varied.
    pub factors: Vec<FactorFacts>,
    /// Numbers of guests that run at once, ascending.
    pub counts: Vec<u32>,
    /// Whether the guests are VMs.
    pub are_vms: bool,
    /// The loads, in the order in which they run.
    pub workloads: Vec<WorkloadFacts>,
    /// Blocks that were planned.
    pub repeats: u32,
    /// Runs thrown away before each one that counts.
    pub warm_up: u32,
    /// Decides the order of arms within blocks.
    pub seed: u64,
    /// Where it ran, as it was named: `local`, `ssh://HOST`, `lab:NAME`.
    pub target: String,
    /// What the target's processors are, where they are emulated: times mean nothing then.
    pub emulated: Option<String>,
    /// The version of exitless that ran it.
    pub version: String,
    /// Whether all levels are alike by intent, to see how often noise alone makes a difference.
    pub is_aa: bool,
}

/// A factor of a study.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FactorFacts {
    /// Its name.
    pub name: String,
    /// The level that the others are compared with.
    pub baseline: String,
    /// Its levels, in the plan's order.
    pub levels: Vec<LevelFacts>,
}

/// A level of a factor.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LevelFacts {
    /// Its name.
    pub name: String,
    /// What it sets, in one form for equal settings: levels with equal settings are one and the same arm.
    pub settings: String,
}

/// A load of a study.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkloadFacts {
    /// Its name in the plan.
    pub name: String,
    /// The program that makes it.
    pub tool: String,
    /// What it is told, in one form for equal settings.
    pub settings: String,
}

/// A run, and where it lies.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredRun {
    /// Its folder below that of the result, as `runs/NAME`.
    pub folder: String,
    /// What is in it.
    pub run: Run,
}

/// What lies in a result's folder.
#[derive(Debug, Clone, PartialEq)]
pub struct Collected {
    /// The plan and the target.
    pub facts: StudyFacts,
    /// Runs that count.
    pub runs: Vec<StoredRun>,
    /// Attempts that failed, whether or not a later one did not.
    pub failed: Vec<StoredRun>,
    /// Runs that the plan asks for; fewer are there where a study was ended early.
    pub planned: usize,
    /// What is damaged, or does not belong there, and was left out.
    pub damage: Vec<String>,
}

/// An arm of a study.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arm {
    /// The level of each factor.
    pub levels: BTreeMap<String, String>,
    /// Its level where there is one factor, else `FACTOR LEVEL` of each.
    pub name: String,
    /// With the names of all factors: `apicv on`.
    pub full_name: String,
    /// Whether it sets the same as the baseline: a difference from it is then noise.
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
        && (facts.is_aa
            || facts.factors.iter().all(|factor| {
                let of = |arm: &BTreeMap<String, String>| {
                    let level = arm.get(&factor.name);
                    factor
                        .levels
                        .iter()
                        .find(|known| Some(&known.name) == level)
                        .map(|known| known.settings.clone())
                };
                of(levels).is_some() && of(levels) == of(baseline)
            }));
    Arm { levels: levels.clone(), name, full_name, is_like_baseline }
}
