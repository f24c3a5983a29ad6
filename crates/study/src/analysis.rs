//! Analysis of a result folder: which figures differ between arms, by how much, and how certain that is.

mod compare;
mod counting;
mod difference;
mod doubts;
mod facts;
mod figure;
mod finding;
mod findings;
mod fingerprints;
mod folder;
mod gates;
mod method;
mod multiplicity;
pub mod synthetic;
mod values;
mod verdict;
mod warning;
mod wording;

pub use crate::workload::exits_of_which_work;
pub use difference::{
    ComparedFigure, DIFFERENCE_FORMAT, DifferenceRow, EffectRow, FEWEST_RESULTS, NotCompared,
    StudyDifference, difference,
};
pub use doubts::ATTAINED;
pub use facts::{Arm, Collected, FactorFacts, LevelFacts, StoredRun, StudyFacts, WorkloadFacts};
pub use figure::{ArmValues, Comparison, Figure, Point, largest};
pub use finding::{Finding, Source};
pub use findings::{FINDINGS_FORMAT, Findings, Judgement, Verdict};
pub use fingerprints::{ArmFact, Unlike};
pub use gates::Gates;
pub use method::{FailedRun, Method, OrderedRun, Skew};
pub use multiplicity::{FalseAlarms, Multiplicity};
pub(crate) use values::scale_of;
pub use warning::Warning;
pub use wording::{accessed, counted_reason, exit_reason};

use std::collections::{BTreeMap, BTreeSet};

use compare::Rules;
use stats::Test;

/// The reason why a study has no findings.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAnalysed {
    /// No run is valid.
    #[error(
        "The study {name:?} has no valid run ({failed} failed); make them with `exitless experiment run`"
    )]
    NoRuns {
        /// The study.
        name: String,
        /// Attempts that failed.
        failed: usize,
    },
    /// The runs of one arm are from different hosts or guests.
    #[error(
        "Runs of one arm are not repeats of each other: they differ in {}; --allow-unlike compares them anyway",
        fields.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    )]
    Unlike {
        /// The facts that differ.
        fields: Vec<Unlike>,
    },
}

/// Compares every arm with the baseline.
///
/// # Errors
/// [`NotAnalysed`]. Runs of different hosts are compared only if `allow_unlike` is set, and the findings then contain a
/// warning.
pub fn analyse(collected: &Collected, allow_unlike: bool) -> Result<Findings, NotAnalysed> {
    let study = &collected.facts;
    if collected.runs.is_empty() {
        return Err(NotAnalysed::NoRuns { name: study.name.clone(), failed: collected.failed.len() });
    }
    let arms = facts::arms(study, &collected.runs);
    let likeness = fingerprints::likeness(&collected.runs, &arms);
    if !likeness.unlike.is_empty() && !allow_unlike {
        return Err(NotAnalysed::Unlike { fields: likeness.unlike });
    }
    let counts = counts(&collected.runs);
    let has_baseline = has_baseline(study, &arms);
    let gates = Gates::default();
    let workloads: Vec<String> = study.workloads.iter().map(|workload| workload.name.clone()).collect();
    let (series, unused) = values::series(&collected.runs, &arms, &workloads);
    // Without runs of the baseline nothing is compared: no other arm replaces it.
    let baselines = baselines(study, &arms, &counts, &collected.runs);
    let rules = Rules { arms: &arms, counts: &counts, baselines: &baselines, gates, seed: study.seed };
    let mut figures: Vec<Figure> = series.iter().map(|series| compare::figure(series, &rules)).collect();
    if !has_baseline {
        for figure in &mut figures {
            figure.overall.clear();
            figure.points.iter_mut().for_each(|point| point.comparisons.clear());
        }
    }
    multiplicity::adjust(&mut figures);
    let (multiplicity, false_alarms) = multiplicity::count(&figures, gates.level);
    let method = method::method(collected, &arms, likeness.of_arms);
    let mut findings = Findings {
        format: FINDINGS_FORMAT,
        verdict: Verdict::default(),
        study: study.clone(),
        arms,
        counts,
        figures,
        multiplicity,
        false_alarms,
        gates,
        warnings: Vec::new(),
        method,
    };
    findings.warnings = warnings(collected, &findings, likeness.unlike, has_baseline);
    findings.warnings.extend(doubts::doubts(study, &collected.runs, &series, unused));
    let of_counting = counting::warnings(&findings);
    findings.warnings.extend(of_counting);
    if has_baseline {
        findings.warnings.extend(other_baselines(&baselines, &findings.arms));
    }
    findings.verdict = verdict::verdict(&findings);
    Ok(findings)
}

/// The arm that the others are compared with, for each number of guests. It is the baseline, except where levels set
/// the number of guests and the baseline has another one: there it is the arm that shares the most levels with the
/// baseline, if only one does.
fn baselines(study: &StudyFacts, arms: &[Arm], counts: &[u32], runs: &[StoredRun]) -> BTreeMap<u32, usize> {
    let of_baseline = |arm: &Arm| {
        let levels = study.factors.iter();
        levels.filter(|factor| arm.levels.get(&factor.name) == Some(&factor.baseline)).count()
    };
    let each = counts.iter().filter_map(|&guests| {
        let ran = |arm: &&(usize, &Arm)| {
            runs.iter().any(|stored| stored.run.cell.guests == guests && stored.run.cell.arm == arm.1.levels)
        };
        let there: Vec<(usize, &Arm)> = arms.iter().enumerate().filter(|arm| ran(&arm)).collect();
        let most = there.iter().map(|(_, arm)| of_baseline(arm)).max()?;
        let mut best = there.iter().filter(|(_, arm)| of_baseline(arm) == most);
        let only = best.next()?.0;
        Some((guests, if most > 0 && best.next().is_none() { only } else { 0 }))
    });
    each.collect()
}

/// The numbers of guests that runs have, ascending.
fn counts(runs: &[StoredRun]) -> Vec<u32> {
    let counts: BTreeSet<u32> = runs.iter().map(|stored| stored.run.cell.guests).collect();
    counts.into_iter().collect()
}

/// Warnings of numbers of guests at which another arm replaces the baseline.
fn other_baselines(baselines: &BTreeMap<u32, usize>, arms: &[Arm]) -> Vec<Warning> {
    let others = baselines.iter().filter(|(_, arm)| **arm != 0);
    let warning = |(&guests, &arm): (&u32, &usize)| {
        Some(Warning::OtherBaseline { guests, arm: arms.get(arm)?.full_name.clone() })
    };
    others.filter_map(warning).collect()
}

/// Tests whether the baseline ran: it is then the first arm.
fn has_baseline(study: &StudyFacts, arms: &[Arm]) -> bool {
    let is_baseline =
        |arm: &Arm| study.factors.iter().all(|factor| arm.levels.get(&factor.name) == Some(&factor.baseline));
    arms.first().is_some_and(is_baseline)
}

fn warnings(
    collected: &Collected,
    findings: &Findings,
    unlike: Vec<Unlike>,
    has_baseline: bool,
) -> Vec<Warning> {
    let mut warnings = Vec::new();
    if !unlike.is_empty() {
        warnings.push(Warning::Unlike { fields: unlike });
    }
    if !has_baseline {
        warnings.push(Warning::NoBaseline);
    }
    let runs = collected.runs.len();
    if runs < collected.planned {
        warnings.push(Warning::Incomplete { runs, planned: collected.planned });
    }
    warnings.extend(collected.damage.iter().map(|what| Warning::Damaged { what: what.clone() }));
    let failed = &findings.method.failed;
    if !failed.is_empty() {
        let lost: BTreeSet<_> = collected
            .failed
            .iter()
            .map(|stored| &stored.run.cell)
            .filter(|cell| !collected.runs.iter().any(|stored| stored.run.cell == **cell))
            .collect();
        warnings.push(Warning::Failed { attempts: failed.len(), lost: lost.len() });
    }
    let (whole, broken) = blocks(findings, &doubts::split(&collected.runs));
    if broken > 0 {
        warnings.push(Warning::BrokenBlocks { blocks: broken });
    }
    if has_baseline && findings.arms.len() > 1 {
        let tests =
            || multiplicity::all(&findings.figures).filter_map(|one| one.change).map(|change| change.test);
        if tests().next().is_some() && tests().all(|test| test.is_none()) {
            warnings.push(Warning::TooFewRepeats { blocks: whole });
        } else if tests().any(|test| test == Some(Test::Student)) {
            warnings.push(Warning::NoPermutation { blocks: whole });
        }
    }
    warnings
}

/// The numbers of whole and incomplete blocks. A complete block has a run of every cell, that is, of each combination of
/// arm, number of guests and workload that ran anywhere. A whole one is not `split` between sessions either.
fn blocks(findings: &Findings, split: &BTreeSet<u32>) -> (usize, usize) {
    let runs = &findings.method.runs;
    let cells: BTreeSet<_> = runs.iter().map(|run| (run.arm, run.guests, &run.workload)).collect();
    let mut by_block: BTreeMap<u32, BTreeSet<_>> = BTreeMap::new();
    for run in runs {
        by_block.entry(run.block).or_default().insert((run.arm, run.guests, &run.workload));
    }
    let complete = || by_block.iter().filter(|(_, block)| **block == cells);
    let whole = complete().filter(|(block, _)| !split.contains(*block)).count();
    (whole, by_block.len() - complete().count())
}

#[cfg(test)]
#[path = "analysis/analysis_tests.rs"]
mod tests;
