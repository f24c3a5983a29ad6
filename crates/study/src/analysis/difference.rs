//! Differences between two results of one plan, from two kernels or two hosts.
//!
//! Blocks of different studies have nothing in common, so the comparison is not paired. The effects of factors are
//! compared too: those in the blocks of one study against those in the blocks of the other.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use stats::contrast::{Count, between_counted, counted, paired, unpaired};
use stats::{Contrast, Scale, mean, noise};

use super::compare::{Rules, in_both};
use super::doubts::doubts;
use super::facts::{Arm, Collected, StudyFacts, arms};
use super::finding::{Finding, Source};
use super::fingerprints::{self, Unlike, likeness};
use super::gates::Gates;
use super::multiplicity::{Multiplicity, is_of_its_own};
use super::values::{ByBlock, Series, runs_of_both, series, series_of_both};
use super::warning::Warning;
use super::{baselines, counts, has_baseline, other_baselines};
use crate::store::json;
use crate::{Better, Unit};

/// Format version of [`StudyDifference`].
pub const DIFFERENCE_FORMAT: u32 = 1;

/// The differences between two results of one plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StudyDifference {
    /// [`DIFFERENCE_FORMAT`].
    pub format: u32,
    /// Both studies, before and after.
    pub studies: [StudyFacts; 2],
    /// The number of valid runs in each study.
    pub runs: [usize; 2],
    /// Differences between the hosts and guests, the subject of the comparison, and in how both were measured:
    /// `exitless` is the version. Names of settings of the plan's guests begin with `guests.`, of its samples with
    /// `samples.`.
    pub unlike: Vec<Unlike>,
    /// The arms of both studies; rows refer to an arm by its index here.
    pub arms: Vec<Arm>,
    /// Each figure in each arm.
    pub rows: Vec<DifferenceRow>,
    /// The effect of each arm on each figure.
    pub effects: Vec<EffectRow>,
    /// The number of comparisons in `rows` and `effects`, which are one family for each source in Holm's adjustment.
    pub multiplicity: Multiplicity,
    /// The gates that a difference has to pass.
    pub gates: Gates,
    /// Cells that only one study has, and figures that only one study has in common cells, as text.
    pub only_one: Vec<String>,
    /// Doubts about each study, before and after.
    #[serde(default)]
    pub warnings: [Vec<Warning>; 2],
    /// Doubts about the comparison of the two.
    #[serde(default)]
    pub doubts: Vec<Warning>,
}

/// A figure of one arm in both studies.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DifferenceRow {
    /// The figure.
    #[serde(flatten)]
    pub figure: ComparedFigure,
    /// The arm's index in the list of arms.
    pub arm: usize,
    /// The means in the figure's unit, before and after.
    pub means: [f64; 2],
    /// The levels that the change compares: geometric means if figures are compared by ratio.
    pub levels: [f64; 2],
    /// The change from before to after.
    pub change: Option<Contrast>,
    /// The finding.
    pub finding: Finding,
}

/// The effect of an arm on a figure in both studies.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EffectRow {
    /// The figure.
    #[serde(flatten)]
    pub figure: ComparedFigure,
    /// The arm's index in the list of arms.
    pub arm: usize,
    /// The index of the arm that it is compared with, as in [`Comparison`](super::Comparison).
    #[serde(default)]
    pub baseline: usize,
    /// The changes from the baseline to the arm, before and after.
    pub effects: [Option<Contrast>; 2],
    /// The change of the effect from before to after.
    pub change: Option<Contrast>,
    /// The finding.
    pub finding: Finding,
}

/// A comparison: its figure, change and finding.
type Judged<'a> = (&'a ComparedFigure, Option<Contrast>, Finding);

impl DifferenceRow {
    fn judged(&self) -> Judged<'_> {
        (&self.figure, self.change, self.finding)
    }
}

impl EffectRow {
    fn judged(&self) -> Judged<'_> {
        (&self.figure, self.change, self.finding)
    }
}

/// A figure at a number of guests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ComparedFigure {
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
    /// The number of guests that ran at once.
    pub guests: u32,
}

impl ComparedFigure {
    /// The name, as by [`super::Figure::name`].
    pub fn name(&self) -> String {
        super::wording::figure(&self.workload, &self.metric, self.source)
    }
}

/// The reason why two studies cannot be compared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotCompared {
    /// The results are of different plans.
    #[error("The results are of different plans: {differs}; a comparison needs two results of the same plan")]
    DifferentPlans {
        /// The difference between the plans.
        differs: String,
    },
    /// One study has no runs.
    #[error("The study {name:?} on {target} has no valid run; make them with `exitless experiment run`")]
    NoRuns {
        /// The study.
        name: String,
        /// The target on which it ran.
        target: String,
    },
    /// The runs of one arm of a study are from different hosts or guests.
    #[error(
        "Runs of one arm of the study {name:?} on {target} are not repeats of each other: they differ in {}; \
         --allow-unlike compares them anyway",
        fields.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    )]
    Unlike {
        /// The study.
        name: String,
        /// The target on which it ran.
        target: String,
        /// The facts that differ.
        fields: Vec<Unlike>,
    },
}

/// Compares each figure of `before` with that of `after`. The hosts of the two may differ, which is listed. All runs of
/// an arm of one study must be from one host, unless `allow_unlike` is set; the result then contains a warning.
///
/// # Errors
/// [`NotCompared`].
pub fn difference(
    before: &Collected,
    after: &Collected,
    allow_unlike: bool,
) -> Result<StudyDifference, NotCompared> {
    if let Some(differs) = differing_plan(&before.facts, &after.facts) {
        return Err(NotCompared::DifferentPlans { differs });
    }
    for side in [before, after] {
        if side.runs.is_empty() {
            let (name, target) = (side.facts.name.clone(), side.facts.target.clone());
            return Err(NotCompared::NoRuns { name, target });
        }
    }
    let (all, own) = runs_of_both([&before.runs, &after.runs]);
    let arms = arms(&before.facts, &all);
    let counts = counts(&all);
    let baselines = match has_baseline(&before.facts, &arms) {
        true => baselines(&before.facts, &arms, &counts, &all),
        false => BTreeMap::new(),
    };
    let workloads: Vec<String> =
        before.facts.workloads.iter().map(|workload| workload.name.clone()).collect();
    let warnings_of = |side| warnings(side, &arms, &workloads, allow_unlike);
    let mut warnings = [warnings_of(before)?, warnings_of(after)?];
    warnings.iter_mut().for_each(|of_side| of_side.extend(other_baselines(&baselines, &arms)));
    let both = series_of_both(&all, own, &arms, &workloads);
    let gates = Gates::default();
    let seed = before.facts.seed;
    let rules = Rules { arms: &arms, counts: &counts, baselines: &baselines, gates, seed };
    let (mut rows, mut effects) = (Vec::new(), Vec::new());
    both.iter().for_each(|both| compare(both, &rules, &mut rows, &mut effects));
    let only_one = only_one(before, after, &arms, &both);
    let of_effects =
        effects.iter().filter(|row: &&EffectRow| !arms[row.arm].is_like_baseline).map(EffectRow::judged);
    let judged: Vec<_> = rows.iter().map(DifferenceRow::judged).chain(of_effects).collect();
    Ok(StudyDifference {
        format: DIFFERENCE_FORMAT,
        studies: [before.facts.clone(), after.facts.clone()],
        runs: [before.runs.len(), after.runs.len()],
        unlike: unlike(before, after),
        multiplicity: count(&judged, gates.level),
        arms,
        rows,
        effects,
        gates,
        only_one,
        warnings,
        doubts: vec![Warning::BetweenSessions],
    })
}

/// The difference between the plans, not counting repeats and order.
fn differing_plan(before: &StudyFacts, after: &StudyFacts) -> Option<String> {
    let names = |texts: Vec<&str>| if texts.is_empty() { "none".to_owned() } else { texts.join(", ") };
    if before.name != after.name {
        return Some(format!("{:?} and {:?}", before.name, after.name));
    }
    if before.factors != after.factors {
        let of =
            |facts: &StudyFacts| names(facts.factors.iter().map(|factor| factor.name.as_str()).collect());
        return Some(format!("their factors or levels ({} and {})", of(before), of(after)));
    }
    if before.workloads != after.workloads {
        let of = |facts: &StudyFacts| {
            names(facts.workloads.iter().map(|workload| workload.name.as_str()).collect())
        };
        return Some(format!("their workloads or the settings of these ({} and {})", of(before), of(after)));
    }
    let guests: Vec<String> = differing(&before.guests, &after.guests)
        .iter()
        .filter(|(field, ..)| !is_of_host(field))
        .map(json::told)
        .collect();
    (!guests.is_empty()).then(|| format!("the settings of their guests: {}", guests.join("; ")))
}

/// Settings of guests that name machines, or files and CPUs of the host: other names on another host are not a
/// difference.
const OF_HOST: [&str; 12] = [
    "addresses",
    "channel",
    "connect",
    "disk.path",
    "domains",
    "kernel",
    "net.bridge",
    "net.socket",
    "pin",
    "program",
    "ssh",
    "start_limit",
];

fn is_of_host(field: &str) -> bool {
    OF_HOST.iter().any(|name| {
        field.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    })
}

/// The settings of the plans' guests or samples that differ; empty if those of one plan are unknown.
fn differing(before: &str, after: &str) -> Vec<host::Difference> {
    let settings = |text: &str| serde_json::from_str::<serde_json::Value>(text).ok();
    let both = settings(before).zip(settings(after));
    both.map(|(before, after)| json::unlike(&before, &after)).unwrap_or_default()
}

/// The differences between the hosts and guests, and in how both were measured.
fn unlike(before: &Collected, after: &Collected) -> Vec<Unlike> {
    let (one, other) = (&before.facts, &after.facts);
    let warm_up = [one.warm_up, other.warm_up].map(|runs| runs.to_string());
    let plain = [("exitless", [one.version.clone(), other.version.clone()]), ("order.warm_up", warm_up)];
    let plain = plain
        .into_iter()
        .filter(|(_, [before, after])| before != after)
        .map(|(field, values)| Unlike { field: field.to_owned(), values: values.map(Some).to_vec() });
    let of_table = |table: &'static str, before: &str, after: &str| {
        differing(before, after).into_iter().map(move |(field, before, after)| Unlike {
            field: format!("{table}.{field}"),
            values: vec![before, after],
        })
    };
    let of_hosts = fingerprints::between(&before.runs, &after.runs).into_iter();
    of_hosts
        .chain(plain)
        .chain(of_table("samples", &one.samples, &other.samples))
        .chain(of_table("guests", &one.guests, &other.guests))
        .collect()
}

/// The doubts about a study, with the arms of both.
///
/// # Errors
/// [`NotCompared::Unlike`], unless `allow_unlike` is set.
fn warnings(
    side: &Collected,
    both: &[Arm],
    workloads: &[String],
    allow_unlike: bool,
) -> Result<Vec<Warning>, NotCompared> {
    let fields = likeness(&side.runs, both).unlike;
    let mut warnings = Vec::new();
    if !fields.is_empty() {
        if !allow_unlike {
            let (name, target) = (side.facts.name.clone(), side.facts.target.clone());
            return Err(NotCompared::Unlike { name, target, fields });
        }
        warnings.push(Warning::Unlike { fields });
    }
    if !has_baseline(&side.facts, &arms(&side.facts, &side.runs)) {
        warnings.push(Warning::NoBaseline);
    }
    let (series, unused) = series(&side.runs, both, workloads);
    warnings.extend(doubts(side, &series, unused));
    Ok(warnings)
}

fn compare(
    [one, other]: &[Series; 2],
    rules: &Rules<'_>,
    rows: &mut Vec<DifferenceRow>,
    effects: &mut Vec<EffectRow>,
) {
    let (arms, gates, seed) = (rules.arms.len(), rules.gates, rules.seed);
    let all = one.values.values().chain(other.values.values()).flat_map(|blocks| blocks.values().copied());
    let are_few = one.is_of_few || other.is_of_few;
    let scale = if are_few { Scale::Difference } else { super::values::scale_of(one.unit, all) };
    for &guests in rules.counts {
        let figure = ComparedFigure {
            workload: one.workload.clone(),
            metric: one.metric.clone(),
            source: one.source,
            unit: one.unit,
            better: one.better,
            guests,
        };
        for arm in 0..arms {
            let (Some(before), Some(after)) = (one.of(guests, arm), other.of(guests, arm)) else { continue };
            let entered = [before, after]
                .map(|values| values.values().map(|&value| scale.enter(value)).collect::<Vec<_>>());
            let means = [before, after].map(|values| mean(&values.values().copied().collect::<Vec<_>>()));
            let counts = |series: &Series| -> Option<Vec<Count>> {
                Some(series.counts(guests, arm).filter(|_| are_few)?.into_values().collect())
            };
            let (change, levels) = match counts(one).zip(counts(other)) {
                Some((before, after)) => (counted(&before, &after, false, seed), means),
                None => (
                    unpaired(&entered[0], &entered[1], scale, seed),
                    entered.each_ref().map(|side| scale.leave(mean(side))),
                ),
            };
            let repeats = entered[0].len().min(entered[1].len());
            let noise = noise::floor([&entered[0], &entered[1]], repeats, scale);
            let finding = gates.judge(change, one.unit, means, noise);
            rows.push(DifferenceRow { figure: figure.clone(), arm, means, levels, change, finding });
        }
        let Some(&baseline) = rules.baselines.get(&guests) else { continue };
        for arm in (1..arms).filter(|arm| *arm != baseline) {
            let of = |series: &Series| {
                let (before, after) = (series.of(guests, baseline)?, series.of(guests, arm)?);
                Some(steps(before, after, scale)).filter(|steps| !steps.is_empty())
            };
            let (Some(before), Some(after)) = (of(one), of(other)) else { continue };
            let of_few = |series: &Series| {
                let of = |arm: usize| series.counts(guests, arm).filter(|_| are_few);
                let [before, after] = in_both(&of(baseline)?, &of(arm)?);
                counted(&before, &after, true, seed)
            };
            let (effects_of_both, change) = match of_few(one).zip(of_few(other)) {
                Some((first, second)) => {
                    ([Some(first), Some(second)], Some(between_counted(&first, &second)))
                }
                None => (
                    [&before, &after].map(|steps| paired(steps, scale, seed)),
                    unpaired(&before, &after, scale, seed),
                ),
            };
            let means = one
                .of(guests, baseline)
                .map_or(0.0, |values| mean(&values.values().copied().collect::<Vec<_>>()));
            let noise = noise::floor([&before, &after], before.len().min(after.len()), scale);
            effects.push(EffectRow {
                figure: figure.clone(),
                arm,
                baseline,
                effects: effects_of_both,
                change,
                finding: gates.judge(change, one.unit, [means; 2], noise),
            });
        }
    }
}

/// The change from the baseline to the arm in each block that has both.
fn steps(baseline: &ByBlock, arm: &ByBlock, scale: Scale) -> Vec<f64> {
    let both = baseline.iter().filter_map(|(block, &before)| Some((before, *arm.get(block)?)));
    both.map(|(before, after)| scale.enter(after) - scale.enter(before)).collect()
}

fn count(judged: &[Judged<'_>], level: f64) -> Multiplicity {
    let mut counted = Multiplicity { level, ..Multiplicity::default() };
    for source in [Source::Workload, Source::Host] {
        let is_of_family = |figure: &ComparedFigure| figure.source == source && is_of_its_own(&figure.metric);
        let (p_values, findings): (Vec<f64>, Vec<Finding>) = judged
            .iter()
            .filter(|(figure, ..)| is_of_family(figure))
            .filter_map(|(_, change, finding)| Some((change.and_then(|change| change.p_value)?, *finding)))
            .unzip();
        counted.made += p_values.len();
        counted.below += p_values.iter().filter(|p_value| **p_value < level).count();
        counted.found += findings.iter().filter(|finding| finding.is_found()).count();
        let adjusted = stats::holm(&p_values).into_iter().zip(&findings);
        counted.found_by_holm +=
            adjusted.filter(|(p_value, finding)| *p_value < level && finding.is_found()).count();
    }
    counted.expected = counted.made as f64 * level;
    counted
}

/// An arm, a number of guests and a workload.
type Point = (BTreeMap<String, String>, u32, String);

/// Cells that only one study has ("apicv on, 4 guests, pread (before only)"), and figures that only one study has in
/// common cells ("VM exits in all during pread (before only)").
fn only_one(before: &Collected, after: &Collected, arms: &[Arm], both: &[[Series; 2]]) -> Vec<String> {
    let points = |side: &Collected| -> BTreeSet<Point> {
        let cells = side.runs.iter().map(|stored| &stored.run.cell);
        cells.map(|cell| (cell.arm.clone(), cell.guests, cell.workload.clone())).collect()
    };
    let (first, second) = (points(before), points(after));
    let at = |arm: &BTreeMap<String, String>, guests: u32| {
        let arm: Vec<String> = arm.iter().map(|(factor, level)| format!("{factor} {level}")).collect();
        format!("{}, {}", arm.join(", "), exits::counted(guests.into(), "guest"))
    };
    let said = |(arm, guests, workload): &Point, side: &str| {
        format!("{}, {workload} ({side} only)", at(arm, *guests))
    };
    let of_first = first.difference(&second).map(|point| said(point, "before"));
    let mut lines: Vec<String> =
        of_first.chain(second.difference(&first).map(|point| said(point, "after"))).collect();
    for [one, other] in both {
        let name = super::wording::figure(&one.workload, &one.metric, one.source);
        for (side, this, that) in [("before", one, other), ("after", other, one)] {
            let is_lacked = |&(guests, arm): &(u32, usize)| {
                let point = (arms[arm].levels.clone(), guests, one.workload.clone());
                that.of(guests, arm).is_none() && first.contains(&point) && second.contains(&point)
            };
            let mut lacked = this.values.keys().copied().filter(is_lacked);
            if that.values.is_empty() {
                lines.extend(lacked.next().map(|_| format!("{name} ({side} only)")));
            } else {
                let said = |(guests, arm): (u32, usize)| {
                    format!("{name}, {} ({side} only)", at(&arms[arm].levels, guests))
                };
                lines.extend(lacked.map(said));
            }
        }
    }
    lines
}

#[cfg(test)]
#[path = "difference_tests.rs"]
mod tests;
