//! The stop rule of a study.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use stats::contrast::interval_of_changes;
use stats::{Interval, Scale};

use crate::analysis::{Source, scale_of};
use crate::plan::{Arm, LEAST_FOR_WIDTH};
use crate::workload::{of_work, work};
use crate::{Cell, Metric, Plan, Run, Unit};

/// The reason why no further block is begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Enough {
    /// The plan's repeats are done.
    Repeats,
    /// Every interval is as narrow as the plan asks for.
    Narrow,
    /// The time budget is used up.
    Budget,
    /// The largest number of blocks is reached: the plan's, or that of any study.
    Blocks,
}

/// The reason to stop after the first `blocks`, if any; `spent` is the time since the start of the study, without
/// pauses. Runs of later blocks are ignored.
///
/// The number of blocks in `order.repeats` is always run.
pub fn enough(plan: &Plan, blocks: u32, spent: Duration, runs: &[Run]) -> Option<Enough> {
    if blocks < plan.order.repeats {
        return None;
    }
    let Some(until) = &plan.order.until else { return Some(Enough::Repeats) };
    if until.budget.is_some_and(|budget| spent >= budget.duration()) {
        return Some(Enough::Budget);
    }
    if blocks >= plan.most_blocks() {
        return Some(Enough::Blocks);
    }
    let narrow = until.interval_percent.filter(|_| blocks >= LEAST_FOR_WIDTH);
    let runs = || runs.iter().filter(|run| run.cell.block < blocks);
    let narrow = narrow.is_some_and(|percent| all_narrow(plan, &until.metrics, percent, runs()));
    narrow.then_some(Enough::Narrow)
}

/// A figure's source, name and unit: a workload and the host may have figures of one name.
type Key = (Source, String, Unit);

/// The figures of a run.
type Figures = BTreeMap<Key, f64>;

/// Tests whether the interval of each figure is narrow enough in every arm of the plan, even if all runs of one failed.
fn all_narrow<'a>(plan: &Plan, names: &[String], percent: f64, runs: impl Iterator<Item = &'a Run>) -> bool {
    let figures: BTreeMap<&Cell, Figures> = runs.map(|run| (&run.cell, figures(run, names))).collect();
    let counts = |arm: &Arm| plan.counts_of(arm);
    let (baseline, others): (Vec<Arm>, Vec<Arm>) =
        plan.arms().into_iter().partition(|arm| plan.is_baseline(arm));
    let of_baseline: Vec<u32> = baseline.iter().flat_map(counts).collect();
    // The figures that occur, by number of guests and workload.
    let mut seen: BTreeMap<(u32, &str), BTreeSet<&Key>> = BTreeMap::new();
    for (cell, figures) in &figures {
        seen.entry((cell.guests, &cell.workload)).or_default().extend(figures.keys());
    }
    // The figures that were compared: otherwise a name that no run has would satisfy the rule at once.
    let mut compared = BTreeSet::new();
    for arm in &others {
        let planned = counts(arm);
        let are_compared = |guests: &u32| planned.contains(guests) && of_baseline.contains(guests);
        for (&(guests, workload), metrics) in seen.iter().filter(|((guests, _), _)| are_compared(guests)) {
            let place = |cell: &Cell| cell.guests == guests && cell.workload == workload;
            let blocks = blocks(plan, arm, figures.iter().filter(|(cell, _)| place(cell)));
            for &metric in metrics {
                // Without values: those that have no ratio are left out of the pairs.
                let scale = scale_of(metric.2, []);
                let pairs = pairs(&blocks, metric, scale);
                if !pairs.is_empty() {
                    compared.insert(metric.1.as_str());
                }
                // A figure that is always 0 in one arm has no relative change, and more blocks would not help.
                let has_none = pairs.is_empty() && is_enough(blocks.len());
                let is_narrow = || width(&pairs, scale).is_some_and(|width| width <= percent);
                if !(has_none || is_enough(pairs.len()) && is_narrow()) {
                    return false;
                }
            }
        }
    }
    !compared.is_empty() && names.iter().all(|name| compared.contains(name.as_str()))
}

fn is_enough(blocks: usize) -> bool {
    blocks >= LEAST_FOR_WIDTH as usize
}

/// The width of the interval from end to end in percentage points, as in the report.
fn width(pairs: &[[f64; 2]], scale: Scale) -> Option<f64> {
    interval_of_changes(pairs, scale).map(Interval::width)
}

/// The figures of the baseline and of the arm in each block that has both.
fn blocks<'a>(
    plan: &Plan,
    arm: &Arm,
    figures: impl Iterator<Item = (&'a &'a Cell, &'a Figures)>,
) -> Vec<[&'a Figures; 2]> {
    let arm = plan.arm_names(arm);
    let is_of_baseline =
        |cell: &Cell| plan.factors.iter().all(|factor| cell.arm.get(&factor.name) == Some(&factor.baseline));
    let mut by_block: BTreeMap<u32, [Option<&Figures>; 2]> = BTreeMap::new();
    for (cell, figures) in figures {
        let sides = by_block.entry(cell.block).or_default();
        if is_of_baseline(cell) {
            sides[0] = Some(figures);
        } else if cell.arm == arm {
            sides[1] = Some(figures);
        }
    }
    by_block.into_values().filter_map(|[baseline, arm]| Some([baseline?, arm?])).collect()
}

/// The values of the baseline and of the arm, for ratios in blocks in which both are positive.
fn pairs(blocks: &[[&Figures; 2]], metric: &Key, scale: Scale) -> Vec<[f64; 2]> {
    let both = blocks.iter().filter_map(|[baseline, arm]| Some([*baseline.get(metric)?, *arm.get(metric)?]));
    let counts = |value: f64| value.is_finite() && (scale == Scale::Difference || value > 0.0);
    both.filter(|pair| pair.iter().all(|&value| counts(value))).collect()
}

/// The figures of a run that the rule considers: the named ones, otherwise the throughputs and latencies of guests.
fn figures(run: &Run, names: &[String]) -> Figures {
    let wanted = |metric: &Metric, source: Source| match names {
        [] => source == Source::Workload && metric.unit.is_of_speed(metric.better),
        names => names.contains(&metric.name),
    };
    let guests = run.of_guests();
    let of_work = of_work(run, work(&run.of_guests_counted()));
    let host = run.host.iter().chain(&of_work).map(|metric| (Source::Host, metric));
    let all = guests.iter().map(|metric| (Source::Workload, metric)).chain(host);
    all.filter(|(source, metric)| wanted(metric, *source))
        .map(|(source, metric)| ((source, metric.name.clone(), metric.unit), metric.value))
        .collect()
}

#[cfg(test)]
#[path = "enough_tests.rs"]
mod tests;
