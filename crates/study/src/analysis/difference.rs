//! Differences between results of one plan, from two kernels or two hosts.
//!
//! Blocks of different studies have nothing in common, so the comparison is not paired. The effects of factors are
//! compared too: those in the blocks of one study against those in the blocks of the other.
//!
//! What differs from boot to boot is constant within a result, so its blocks are no repeats of that. With
//! [`FEWEST_RESULTS`] or more on each side, the repeats are the means of the results.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use stats::contrast::{Count, MINIMUM_REPEATS, between_counted, counted, paired, unpaired};
use stats::{Contrast, Scale, mean, noise};

use super::compare::{Rules, in_both};
use super::doubts::doubts;
use super::facts::{Arm, Collected, StoredRun, StudyFacts, arms};
use super::finding::{Finding, Source};
use super::fingerprints::{self, Unlike, likeness};
use super::gates::Gates;
use super::multiplicity::{Multiplicity, is_of_its_own};
use super::values::{Repeat, Repeats, Series, runs_of_all, series, series_of_both};
use super::warning::Warning;
use super::{baselines, counts, has_baseline, other_baselines};
use crate::store::json;
use crate::{Better, Unit};

/// Format version of [`StudyDifference`].
pub const DIFFERENCE_FORMAT: u32 = 1;

/// The minimum number of results on each side for results as repeats, whose intervals include the variation between them.
pub const FEWEST_RESULTS: usize = MINIMUM_REPEATS;

/// The differences between results of one plan.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StudyDifference {
    /// [`DIFFERENCE_FORMAT`].
    pub format: u32,
    /// Both studies, before and after; with several results on a side, that of the first.
    pub studies: [StudyFacts; 2],
    /// The number of results on each side. With [`FEWEST_RESULTS`] or more on both, they are the repeats; otherwise the
    /// blocks are.
    pub results: [usize; 2],
    /// The number of valid runs on each side.
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
    /// Cells that only one side has, and figures that only one side has in common cells, as text.
    pub only_one: Vec<String>,
    /// Doubts about the runs of each side, before and after.
    pub warnings: [Vec<Warning>; 2],
    /// Doubts about the comparison of the two.
    pub doubts: Vec<Warning>,
}

/// A figure of one arm in both studies.
#[derive(Debug, Clone, PartialEq, Serialize)]
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
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EffectRow {
    /// The figure.
    #[serde(flatten)]
    pub figure: ComparedFigure,
    /// The arm's index in the list of arms.
    pub arm: usize,
    /// The index of the arm that it is compared with, as in [`Comparison`](super::Comparison).
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
#[derive(Debug, Clone, PartialEq, Serialize)]
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
    /// One side has no result.
    #[error("There is no result {side}; a comparison needs one or more on each side")]
    NoResult {
        /// The side: before or after.
        side: &'static str,
    },
    /// The results are of different plans.
    #[error(
        "The results are of different plans, the first and {which}: {differs}; a comparison needs results of the \
         same plan"
    )]
    DifferentPlans {
        /// The result that is of another plan than the first.
        which: String,
        /// The difference between the plans.
        differs: String,
    },
    /// One result has no runs.
    #[error(
        "The study {name:?} on {target} ({which}) has no valid run; make them with `exitless experiment run`"
    )]
    NoRuns {
        /// The study.
        name: String,
        /// The target on which it ran.
        target: String,
        /// The result.
        which: String,
    },
    /// The runs of one arm of a side are from different hosts or guests, or were measured in different ways.
    #[error(
        "Runs of one arm of the study {name:?} on {target} ({side}) are not repeats of each other: they differ in {}; \
         --allow-unlike compares them anyway",
        fields.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    )]
    Unlike {
        /// The study.
        name: String,
        /// The target on which it ran.
        target: String,
        /// The side: before or after.
        side: &'static str,
        /// The facts that differ.
        fields: Vec<Unlike>,
    },
}

/// One side of the comparison.
struct Side<'a> {
    /// `before` or `after`.
    name: &'static str,
    results: &'a [Collected],
    /// The facts of the first result.
    facts: &'a StudyFacts,
    /// The runs of all results, in the order of these.
    runs: &'a [StoredRun],
}

const SIDES: [&str; 2] = ["before", "after"];

/// Compares each figure of the results `before` with that of the results `after`. The hosts of the two sides may differ,
/// which is listed. All runs of an arm of one side must be from one host and measured in one way, unless `allow_unlike` is
/// set; the result then contains a warning.
///
/// # Errors
/// [`NotCompared`].
pub fn difference(
    before: &[Collected],
    after: &[Collected],
    allow_unlike: bool,
) -> Result<StudyDifference, NotCompared> {
    let results = [before, after];
    check(results)?;
    let (all, firsts) = runs_of_all(results.into_iter().flatten().map(|result| result.runs.as_slice()));
    let (of_before, of_after) = all.split_at(before.iter().map(|result| result.runs.len()).sum());
    let runs = [of_before, of_after];
    let sides = [0, 1].map(|at: usize| Side {
        name: SIDES[at],
        results: results[at],
        facts: &results[at][0].facts,
        runs: runs[at],
    });
    let facts = sides[0].facts;
    let arms = arms(facts, &all);
    let counts = counts(&all);
    let baselines = match has_baseline(facts, &arms) {
        true => baselines(facts, &arms, &counts, &all),
        false => BTreeMap::new(),
    };
    let workloads: Vec<String> = facts.workloads.iter().map(|workload| workload.name.clone()).collect();
    let warnings_of = |side| warnings(side, &arms, &workloads, allow_unlike);
    let mut warnings = [warnings_of(&sides[0])?, warnings_of(&sides[1])?];
    warnings.iter_mut().for_each(|of_side| of_side.extend(other_baselines(&baselines, &arms)));
    let both = series_of_both(&all, firsts[before.len()], &arms, &workloads);
    let gates = Gates::default();
    let rules = Rules { arms: &arms, counts: &counts, baselines: &baselines, gates, seed: facts.seed };
    let (repeats, doubts) = if before.len().min(after.len()) < FEWEST_RESULTS {
        (Repeats::Blocks, vec![Warning::BetweenSessions])
    } else {
        (Repeats::Results(&firsts), Vec::new())
    };
    let (mut rows, mut effects) = (Vec::new(), Vec::new());
    for both in &both {
        let pair = Pair { both, scale: scale_of_both(both), are_few: are_few(both), repeats };
        rows.extend(pair.rows(&rules));
        effects.extend(pair.effects(&rules));
    }
    let only_one = only_one(runs, &arms, &both);
    let of_effects =
        effects.iter().filter(|row: &&EffectRow| !arms[row.arm].is_like_baseline).map(EffectRow::judged);
    let judged: Vec<_> = rows.iter().map(DifferenceRow::judged).chain(of_effects).collect();
    Ok(StudyDifference {
        format: DIFFERENCE_FORMAT,
        studies: sides.each_ref().map(|side| side.facts.clone()),
        results: results.map(<[Collected]>::len),
        runs: runs.map(<[StoredRun]>::len),
        unlike: unlike(&sides[0], &sides[1]),
        multiplicity: count(&judged, gates.level),
        arms,
        rows,
        effects,
        gates,
        only_one,
        warnings,
        doubts,
    })
}

/// Checks that each side has results, and that all are of one plan and have runs.
fn check(results: [&[Collected]; 2]) -> Result<(), NotCompared> {
    for (side, results) in SIDES.into_iter().zip(results) {
        if results.is_empty() {
            return Err(NotCompared::NoResult { side });
        }
    }
    let first = &results[0][0].facts;
    for (side, results) in SIDES.into_iter().zip(results) {
        for (at, result) in results.iter().enumerate() {
            let which = || match results {
                [_] => format!("the one {side}"),
                _ => format!("number {} {side}", at + 1),
            };
            if let Some(differs) = differing_plan(first, &result.facts) {
                return Err(NotCompared::DifferentPlans { which: which(), differs });
            }
            if result.runs.is_empty() {
                let (name, target) = (result.facts.name.clone(), result.facts.target.clone());
                return Err(NotCompared::NoRuns { name, target, which: which() });
            }
        }
    }
    Ok(())
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

/// The settings of the plans' guests or samples that differ.
fn differing(before: &str, after: &str) -> Vec<host::Difference> {
    let settings = |text: &str| serde_json::from_str::<serde_json::Value>(text).ok();
    let both = settings(before).zip(settings(after));
    both.map(|(before, after)| json::unlike(&before, &after)).unwrap_or_default()
}

/// The differences between the hosts and guests, and in how both were measured.
fn unlike(before: &Side<'_>, after: &Side<'_>) -> Vec<Unlike> {
    let mut unlike = fingerprints::between(before.runs, after.runs);
    unlike.extend(measured_unlike(before.facts, after.facts));
    unlike
}

/// The differences in how two results were measured, and between the names of machines, files and CPUs.
fn measured_unlike(one: &StudyFacts, other: &StudyFacts) -> Vec<Unlike> {
    let warm_up = [one.warm_up, other.warm_up].map(|runs| runs.to_string());
    let plain = [("exitless", [one.version.clone(), other.version.clone()]), ("order.warm_up", warm_up)];
    let plain = plain.into_iter().filter_map(|(field, values)| of_values(field, values));
    let of_table = |table: &'static str, before: &str, after: &str| {
        differing(before, after).into_iter().map(move |(field, before, after)| Unlike {
            field: format!("{table}.{field}"),
            values: vec![before, after],
        })
    };
    plain
        .chain(of_table("samples", &one.samples, &other.samples))
        .chain(of_table("guests", &one.guests, &other.guests))
        .collect()
}

/// A field whose values differ.
fn of_values(field: &str, values: [String; 2]) -> Option<Unlike> {
    (values[0] != values[1]).then(|| Unlike { field: field.to_owned(), values: values.map(Some).to_vec() })
}

/// Differences between the results of one side, which are repeats of each other: each field once.
fn unlike_within(side: &Side<'_>, both: &[Arm]) -> Vec<Unlike> {
    let mut fields = likeness(side.runs, both).unlike;
    for other in side.results.iter().skip(1).map(|result| &result.facts) {
        let target = of_values("target", [side.facts.target.clone(), other.target.clone()]);
        for unlike in target.into_iter().chain(measured_unlike(side.facts, other)) {
            if fields.iter().all(|known| known.field != unlike.field) {
                fields.push(unlike);
            }
        }
    }
    fields
}

/// The doubts about the runs of a side, with the arms of both.
///
/// # Errors
/// [`NotCompared::Unlike`], unless `allow_unlike` is set.
fn warnings(
    side: &Side<'_>,
    both: &[Arm],
    workloads: &[String],
    allow_unlike: bool,
) -> Result<Vec<Warning>, NotCompared> {
    let fields = unlike_within(side, both);
    let mut warnings = Vec::new();
    if !fields.is_empty() {
        if !allow_unlike {
            let (name, target) = (side.facts.name.clone(), side.facts.target.clone());
            return Err(NotCompared::Unlike { name, target, side: side.name, fields });
        }
        warnings.push(Warning::Unlike { fields });
    }
    if !has_baseline(side.facts, &arms(side.facts, side.runs)) {
        warnings.push(Warning::NoBaseline);
    }
    let (series, unused) = series(side.runs, both, workloads);
    warnings.extend(doubts(side.facts, side.runs, &series, unused));
    Ok(warnings)
}

/// A figure on both sides.
#[derive(Clone, Copy)]
struct Pair<'a> {
    both: &'a [Series; 2],
    scale: Scale,
    are_few: bool,
    repeats: Repeats<'a>,
}

fn are_few(both: &[Series; 2]) -> bool {
    both.iter().any(|series| series.is_of_few)
}

fn scale_of_both(both: &[Series; 2]) -> Scale {
    let all = both.iter().flat_map(|series| series.values.values());
    let all = all.flat_map(|blocks| blocks.values().copied());
    if are_few(both) { Scale::Difference } else { super::values::scale_of(both[0].unit, all) }
}

impl Pair<'_> {
    fn figure(&self, guests: u32) -> ComparedFigure {
        let one = &self.both[0];
        ComparedFigure {
            workload: one.workload.clone(),
            metric: one.metric.clone(),
            source: one.source,
            unit: one.unit,
            better: one.better,
            guests,
        }
    }

    /// The figure in each arm, before and after.
    fn rows(self, rules: &Rules<'_>) -> Vec<DifferenceRow> {
        let places =
            rules.counts.iter().flat_map(|&guests| (0..rules.arms.len()).map(move |arm| (guests, arm)));
        places.filter_map(|(guests, arm)| self.row(guests, arm, rules)).collect()
    }

    fn row(self, guests: u32, arm: usize, rules: &Rules<'_>) -> Option<DifferenceRow> {
        let [one, other] = self.both;
        let values = [one.of(guests, arm)?, other.of(guests, arm)?].map(|values| self.repeats.of(values));
        let entered = values.each_ref().map(|side| means(side, |value| self.scale.enter(value)));
        let plain = values.each_ref().map(|side| mean(&means(side, |value| value)));
        let counts = |series: &Series| Some(self.sums(&series.counts(guests, arm).filter(|_| self.are_few)?));
        let (change, levels) = match counts(one).zip(counts(other)) {
            Some((before, after)) => {
                let levels = [&before, &after]
                    .map(|side| mean(&side.iter().map(|count| count.rate()).collect::<Vec<_>>()));
                (counted(&before, &after, false, rules.seed), levels)
            }
            None => (
                unpaired(&entered[0], &entered[1], self.scale, rules.seed),
                entered.each_ref().map(|side| self.scale.leave(mean(side))),
            ),
        };
        let repeats = entered[0].len().min(entered[1].len());
        let noise = noise::floor([&entered[0], &entered[1]], repeats, self.scale);
        let finding = rules.gates.judge(change, one.unit, plain, noise);
        Some(DifferenceRow { figure: self.figure(guests), arm, means: plain, levels, change, finding })
    }

    /// The effects of the arms on the figure, before and after.
    fn effects(self, rules: &Rules<'_>) -> Vec<EffectRow> {
        let places = rules.baselines.iter().flat_map(|(&guests, &baseline)| {
            let arms = (1..rules.arms.len()).filter(move |&arm| arm != baseline);
            arms.map(move |arm| (guests, baseline, arm))
        });
        places.filter_map(|(guests, baseline, arm)| self.effect(guests, [baseline, arm], rules)).collect()
    }

    fn effect(self, guests: u32, [baseline, arm]: [usize; 2], rules: &Rules<'_>) -> Option<EffectRow> {
        let (scale, seed) = (self.scale, rules.seed);
        let [one, other] = self.both;
        let steps = |series: &Series| {
            let both = in_both(series.of(guests, baseline)?, series.of(guests, arm)?);
            let step = |[before, after]: [f64; 2]| scale.enter(after) - scale.enter(before);
            let steps: BTreeMap<Repeat, f64> =
                both.into_iter().map(|(block, pair)| (block, step(pair))).collect();
            Some(means(&self.repeats.of(&steps), |step| step)).filter(|steps| !steps.is_empty())
        };
        let (before, after) = (steps(one)?, steps(other)?);
        let of_few = |series: &Series| {
            let of = |arm: usize| series.counts(guests, arm).filter(|_| self.are_few);
            let both = in_both(&of(baseline)?, &of(arm)?);
            let [before, after] = [0, 1].map(|side: usize| {
                self.sums(&both.iter().map(|(&block, pair)| (block, pair[side])).collect())
            });
            counted(&before, &after, true, seed)
        };
        let (effects, change) = match of_few(one).zip(of_few(other)) {
            Some((first, second)) => ([Some(first), Some(second)], Some(between_counted(&first, &second))),
            None => (
                [&before, &after].map(|steps| paired(steps, scale, seed)),
                unpaired(&before, &after, scale, seed),
            ),
        };
        let level = one
            .of(guests, baseline)
            .map_or(0.0, |values| mean(&means(&self.repeats.of(values), |value| value)));
        let noise = noise::floor([&before, &after], before.len().min(after.len()), scale);
        Some(EffectRow {
            figure: self.figure(guests),
            arm,
            baseline,
            effects,
            change,
            finding: rules.gates.judge(change, one.unit, [level; 2], noise),
        })
    }

    /// The events of each repeat.
    fn sums(self, counts: &BTreeMap<Repeat, Count>) -> Vec<Count> {
        self.repeats.of(counts).iter().map(|counts| Count::sum(counts)).collect()
    }
}

/// The mean of each repeat's values, each entered by `enter`.
fn means(repeats: &[Vec<f64>], enter: impl Fn(f64) -> f64) -> Vec<f64> {
    let mean_of = |values: &Vec<f64>| mean(&values.iter().map(|&value| enter(value)).collect::<Vec<_>>());
    repeats.iter().map(mean_of).collect()
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

/// Cells that only one side has ("apicv on, 4 guests, pread (before only)"), and figures that only one side has in
/// common cells ("VM exits in all during pread (before only)").
fn only_one([before, after]: [&[StoredRun]; 2], arms: &[Arm], both: &[[Series; 2]]) -> Vec<String> {
    let points = |runs: &[StoredRun]| -> BTreeSet<Point> {
        let cells = runs.iter().map(|stored| &stored.run.cell);
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
