//! Doubts about the runs of one study, whatever they are compared with.

use std::collections::{BTreeMap, BTreeSet};

use stats::mean;

use super::facts::{StoredRun, StudyFacts};
use super::finding::Source;
use super::method;
use super::values::{Series, Unused};
use super::warning::Warning;

/// The metric of workloads with a requested rate: the attained share of it, in percent.
pub const ATTAINED: &str = "attained";
/// The attained share of the requested rate, in percent, from which on the load counts as attained.
const ENOUGH_PERCENT: f64 = 99.0;

/// The doubts about the runs of a study, whose figures are `series` and `unused`.
pub(super) fn doubts(
    facts: &StudyFacts,
    runs: &[StoredRun],
    series: &[Series],
    unused: Unused,
) -> Vec<Warning> {
    let mut doubts = Vec::new();
    if !unused.not_numbers.is_empty() {
        doubts.push(Warning::NotNumbers { figures: unused.not_numbers.into_iter().collect() });
    }
    let split = split(runs).len();
    if split > 0 {
        doubts.push(Warning::SplitBlocks { blocks: split });
    }
    if unused.repeated > 0 {
        doubts.push(Warning::Repeated { runs: unused.repeated });
    }
    if let Some(skew) = method::skew(runs).filter(|skew| skew.large_in > 0) {
        doubts.push(Warning::Skew { runs: skew.large_in, largest: skew.largest });
    }
    doubts.extend(behind(series));
    let below = || method::first(runs)?.fingerprint.virtualization.clone();
    if let Some(emulator) = &facts.emulated {
        doubts.push(Warning::Emulated { emulator: emulator.clone() });
    } else if let Some(below) = below() {
        doubts.push(Warning::Nested { below });
    }
    let mut texts: BTreeMap<&str, usize> = BTreeMap::new();
    for text in runs.iter().flat_map(|stored| &stored.run.warnings) {
        *texts.entry(text).or_default() += 1;
    }
    doubts.extend(texts.into_iter().map(|(text, runs)| Warning::OfRuns { text: text.to_owned(), runs }));
    doubts
}

/// The blocks whose runs are of several sessions.
pub(super) fn split(runs: &[StoredRun]) -> BTreeSet<u32> {
    let mut first = BTreeMap::new();
    let of_another = |stored: &&StoredRun| {
        let run = &stored.run;
        *first.entry(run.cell.block).or_insert(run.session) != run.session
    };
    runs.iter().filter(of_another).map(|stored| stored.run.cell.block).collect()
}

/// Warnings of workloads that did not attain the requested rate.
fn behind(series: &[Series]) -> impl Iterator<Item = Warning> + '_ {
    let attained =
        series.iter().filter(|series| series.source == Source::Workload && series.metric == ATTAINED);
    attained.filter_map(|series| {
        let arms = series.values.values().map(|blocks| mean(&blocks.values().copied().collect::<Vec<_>>()));
        let percent = arms.fold(100.0, f64::min);
        (percent < ENOUGH_PERCENT).then(|| Warning::Behind { workload: series.workload.clone(), percent })
    })
}
