//! The stop rule of a study.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use stats::Interval;
use stats::contrast::interval_of_ratios;

use crate::plan::LEAST_FOR_WIDTH;
use crate::workload::{of_work, work};
use crate::{Better, Cell, Metric, Plan, Run};

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
    /// The plan's largest number of blocks is reached.
    Blocks,
}

/// The reason to stop after so many complete blocks, if any; `spent` is the time since the start of the study
/// without pauses.
///
/// The plan's repeats are always made.
pub fn enough(plan: &Plan, blocks: u32, spent: Duration, runs: &[Run]) -> Option<Enough> {
    if blocks < plan.order.repeats {
        return None;
    }
    let Some(until) = &plan.order.until else { return Some(Enough::Repeats) };
    if until.budget.is_some_and(|budget| spent >= budget.duration()) {
        return Some(Enough::Budget);
    }
    if until.blocks.is_some_and(|most| blocks >= most) {
        return Some(Enough::Blocks);
    }
    let narrow = until.interval_percent.filter(|_| blocks >= LEAST_FOR_WIDTH);
    let narrow = narrow.is_some_and(|percent| all_narrow(plan, &until.metrics, percent, runs));
    narrow.then_some(Enough::Narrow)
}

/// The subject of an interval: the arm, the guests, the workload, the figure.
type Subject = (BTreeMap<String, String>, u32, String, String);

fn all_narrow(plan: &Plan, names: &[String], percent: f64, runs: &[Run]) -> bool {
    let pairs = pairs(plan, names, runs);
    let named: BTreeSet<&str> = pairs.keys().map(|(_, _, _, metric)| metric.as_str()).collect();
    // Without this check, a name that no run has would satisfy the rule at once.
    !pairs.is_empty()
        && names.iter().all(|name| named.contains(name.as_str()))
        && pairs.values().all(|pairs| width(pairs).is_some_and(|width| width <= percent))
}

/// The width from end to end, in percentage points, as in the report.
fn width(pairs: &[[f64; 2]]) -> Option<f64> {
    interval_of_ratios(pairs).map(Interval::width)
}

/// The values of the baseline and of the arm in each block that has both.
fn pairs(plan: &Plan, names: &[String], runs: &[Run]) -> BTreeMap<Subject, Vec<[f64; 2]>> {
    let baseline: BTreeMap<String, String> =
        plan.factors.iter().map(|factor| (factor.name.clone(), factor.baseline.clone())).collect();
    let figures: BTreeMap<&Cell, BTreeMap<String, f64>> =
        runs.iter().map(|run| (&run.cell, figures(run, names))).collect();
    let mut pairs: BTreeMap<Subject, Vec<[f64; 2]>> = BTreeMap::new();
    for (&cell, own) in figures.iter().filter(|(cell, _)| cell.arm != baseline) {
        let partner = Cell { arm: baseline.clone(), ..cell.clone() };
        let Some(others) = figures.get(&partner) else { continue };
        for (metric, &on) in own {
            // Without events in both arms there is no relative change.
            if let Some(&off) = others.get(metric).filter(|&&off| off > 0.0 && on > 0.0) {
                let subject = (cell.arm.clone(), cell.guests, cell.workload.clone(), metric.clone());
                pairs.entry(subject).or_default().push([off, on]);
            }
        }
    }
    pairs
}

/// The figures of a run that the rule uses: those named, else the guests' that have a better direction.
fn figures(run: &Run, names: &[String]) -> BTreeMap<String, f64> {
    let mut of_guests: BTreeMap<&str, (&Metric, Vec<f64>)> = BTreeMap::new();
    for metric in run.guests.iter().flatten() {
        of_guests.entry(&metric.name).or_insert((metric, Vec::new())).1.push(metric.value);
    }
    let wanted = |metric: &Metric, of_guest: bool| match names {
        [] => of_guest && metric.better != Better::Neither,
        names => names.contains(&metric.name),
    };
    let guests: Vec<Metric> = of_guests
        .into_values()
        .filter_map(|(metric, values)| {
            Some(Metric { value: metric.combine.apply(&values)?, ..metric.clone() })
        })
        .collect();
    let of_work = of_work(run, work(&guests));
    let host = run.host.iter().chain(&of_work).filter(|metric| wanted(metric, false));
    let guests = guests.iter().filter(|metric| wanted(metric, true));
    guests.chain(host).map(|metric| (metric.name.clone(), metric.value)).collect()
}

#[cfg(test)]
#[path = "enough_tests.rs"]
mod tests;
