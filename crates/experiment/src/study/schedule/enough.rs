//! Whether a study has runs enough.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use stats::Interval;
use stats::contrast::interval_of_ratios;

use crate::study::{Better, Cell, Metric, Plan, Run};

/// Why no further block is begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Enough {
    /// The plan's repeats are done.
    Repeats,
    /// Every interval is as narrow as the plan wants it.
    Narrow,
    /// The time is over.
    Budget,
    /// The plan's largest number of blocks is reached.
    Blocks,
}

/// Whether it is enough after so many whole blocks, and why; `spent` is the time since the study's start without
/// pauses.
///
/// The plan's repeats are made in any case: fewer are no study of it.
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
    let narrow =
        until.interval_percent.is_some_and(|percent| all_narrow(plan, &until.metrics, percent, runs));
    narrow.then_some(Enough::Narrow)
}

/// What an interval is about: the arm, the guests, the workload, the figure.
type Subject = (BTreeMap<String, String>, u32, String, String);

fn all_narrow(plan: &Plan, names: &[String], percent: f64, runs: &[Run]) -> bool {
    let pairs = pairs(plan, names, runs);
    let named: BTreeSet<&str> = pairs.keys().map(|(_, _, _, metric)| metric.as_str()).collect();
    // A name that no run has would otherwise be sure at once.
    !pairs.is_empty()
        && names.iter().all(|name| named.contains(name.as_str()))
        && pairs.values().all(|pairs| width(pairs).is_some_and(|width| width <= percent))
}

/// From end to end, in percentage points, as the report has it.
fn width(pairs: &[[f64; 2]]) -> Option<f64> {
    interval_of_ratios(pairs).map(Interval::width)
}

/// The baseline's value and the arm's of each block that has both.
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
            // Where nothing happened in either arm there is no relative change to be sure of.
            if let Some(&off) = others.get(metric).filter(|&&off| off > 0.0 && on > 0.0) {
                let subject = (cell.arm.clone(), cell.guests, cell.workload.clone(), metric.clone());
                pairs.entry(subject).or_default().push([off, on]);
            }
        }
    }
    pairs
}

/// The figures of a run that count: those named, else the guests' with a good direction.
fn figures(run: &Run, names: &[String]) -> BTreeMap<String, f64> {
    let mut of_guests: BTreeMap<&str, (&Metric, Vec<f64>)> = BTreeMap::new();
    for metric in run.guests.iter().flatten() {
        of_guests.entry(&metric.name).or_insert((metric, Vec::new())).1.push(metric.value);
    }
    let wanted = |metric: &Metric, of_guest: bool| match names {
        [] => of_guest && metric.better != Better::Neither,
        names => names.contains(&metric.name),
    };
    let guests = of_guests
        .into_values()
        .filter(|(metric, _)| wanted(metric, true))
        .filter_map(|(metric, values)| Some((metric.name.clone(), metric.combine.apply(&values)?)));
    let host = run.host.iter().filter(|metric| wanted(metric, false));
    guests.chain(host.map(|metric| (metric.name.clone(), metric.value))).collect()
}

#[cfg(test)]
#[path = "enough_tests.rs"]
mod tests;
