//! From runs to figures: one value for each workload, metric, number of guests, arm and block.

use std::collections::{BTreeMap, BTreeSet};

use super::facts::{Arm, StoredRun};
use super::findings::Source;
use crate::study::{Better, Cell, Metric, Run, Unit};

/// Values by block.
pub(super) type ByBlock = BTreeMap<u32, f64>;

/// A figure's values before they are compared.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Series {
    pub(super) workload: String,
    pub(super) metric: String,
    pub(super) source: Source,
    pub(super) unit: Unit,
    pub(super) better: Better,
    /// By number of guests and arm.
    pub(super) values: BTreeMap<(u32, usize), ByBlock>,
}

impl Series {
    /// The values of an arm with so many guests.
    pub(super) fn of(&self, guests: u32, arm: usize) -> Option<&ByBlock> {
        self.values.get(&(guests, arm)).filter(|values| !values.is_empty())
    }
}

/// What could not be used.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Unused {
    /// Figures that were no number in some run.
    pub(super) not_numbers: BTreeSet<String>,
    /// Runs beside a later one of the same cell.
    pub(super) repeated: usize,
}

/// The figures of `runs`, those of workloads first, each workload's in the order in which its first run has them.
pub(super) fn series(runs: &[StoredRun], arms: &[Arm], workloads: &[String]) -> (Vec<Series>, Unused) {
    let mut unused = Unused::default();
    let mut last: BTreeMap<&Cell, &Run> = BTreeMap::new();
    for stored in runs {
        let run = &stored.run;
        match last.get(&run.cell) {
            Some(known) if known.attempt >= run.attempt => unused.repeated += 1,
            Some(_) => {
                unused.repeated += 1;
                last.insert(&run.cell, run);
            }
            None => {
                last.insert(&run.cell, run);
            }
        }
    }
    let mut found: Vec<Series> = Vec::new();
    let mut places: BTreeMap<(Source, String, String), usize> = BTreeMap::new();
    let mut in_order: Vec<&Run> = last.into_values().collect();
    let place =
        |run: &Run| workloads.iter().position(|name| *name == run.cell.workload).unwrap_or(usize::MAX);
    in_order.sort_by_key(|run| (place(run), run.position));
    for run in &in_order {
        let Some(arm) = arms.iter().position(|arm| arm.levels == run.cell.arm) else { continue };
        let host = run.host.iter().cloned().map(|metric| (Source::Host, metric));
        for (source, metric) in
            of_guests(run).into_iter().map(|metric| (Source::Workload, metric)).chain(host)
        {
            if !metric.value.is_finite() {
                unused.not_numbers.insert(format!("{} of {}", metric.name, run.cell.workload));
                continue;
            }
            let key = (source, run.cell.workload.clone(), metric.name.clone());
            let at = *places.entry(key).or_insert_with(|| {
                found.push(Series {
                    workload: run.cell.workload.clone(),
                    metric: metric.name.clone(),
                    source,
                    unit: metric.unit,
                    better: metric.better,
                    values: BTreeMap::new(),
                });
                found.len() - 1
            });
            found[at].values.entry((run.cell.guests, arm)).or_default().insert(run.cell.block, metric.value);
        }
    }
    fill_unseen(&mut found);
    found.sort_by_key(|series| series.source);
    (found, unused)
}

/// The guests' figures as those of the run, in the order of the first guest that has them.
fn of_guests(run: &Run) -> Vec<Metric> {
    let mut names: Vec<&Metric> = Vec::new();
    for metric in run.guests.iter().flatten() {
        if !names.iter().any(|known| known.name == metric.name) {
            names.push(metric);
        }
    }
    let combined = names.into_iter().filter_map(|first| {
        let values: Vec<f64> = run
            .guests
            .iter()
            .filter_map(|guest| guest.iter().find(|metric| metric.name == first.name))
            .map(|metric| metric.value)
            .collect();
        // A guest that lacks the figure would make a sum too small.
        if values.len() != run.guests.len() {
            return None;
        }
        Some(Metric { value: first.combine.apply(&values)?, ..first.clone() })
    });
    combined.collect()
}

/// A reason, port or address that was not seen in a run in which exits were counted was seen 0 times.
fn fill_unseen(found: &mut [Series]) {
    let is_count = |series: &Series| {
        series.source == Source::Host
            && (super::wording::exit_reason(&series.metric).is_some()
                || super::wording::accessed(&series.metric).is_some())
            && matches!(series.unit, Unit::PerSecond | Unit::Count | Unit::PerOperation | Unit::Percent)
    };
    let mut counted: BTreeMap<String, BTreeSet<(u32, usize, u32)>> = BTreeMap::new();
    for series in found.iter().filter(|series| is_count(series)) {
        let cells = counted.entry(series.workload.clone()).or_default();
        for (&(guests, arm), blocks) in &series.values {
            cells.extend(blocks.keys().map(|&block| (guests, arm, block)));
        }
    }
    for series in found.iter_mut().filter(|series| is_count(series)) {
        for &(guests, arm, block) in counted.get(&series.workload).into_iter().flatten() {
            series.values.entry((guests, arm)).or_default().entry(block).or_insert(0.0);
        }
    }
}
