//! The method of a study: its runs, hosts and guests.

use std::collections::BTreeMap;

use host::Fingerprint;
use serde::Serialize;

use super::facts::{Arm, Collected, StoredRun};
use super::fingerprints::ArmFact;
use crate::Run;
use stats::median;

/// The method of a study.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Method {
    /// Start of the first run, in seconds since 1970.
    pub started: u64,
    /// Start of the last run, in seconds since 1970.
    pub last_started: u64,
    /// The total duration of all valid runs, in seconds.
    pub measured: f64,
    /// The valid runs, in the order in which they ran.
    pub runs: Vec<OrderedRun>,
    /// The attempts that failed.
    pub failed: Vec<FailedRun>,
    /// The number of runs that the plan asks for.
    pub planned: usize,
    /// The differences between the start times of guests.
    pub skew: Option<Skew>,
    /// The host at the first run.
    pub fingerprint: Fingerprint,
    /// Facts of host and guests that differ with the arm.
    pub arm_facts: Vec<ArmFact>,
    /// The guests of the first run, a table of facts for each.
    pub guests: Vec<BTreeMap<String, String>>,
}

/// A run among all runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OrderedRun {
    /// Its position in the plan's order.
    pub position: u32,
    /// Its block.
    pub block: u32,
    /// The arm's index in the list of arms.
    pub arm: usize,
    /// The number of guests that ran at once.
    pub guests: u32,
    /// The workload.
    pub workload: String,
    /// Its start, in seconds since 1970.
    pub started: u64,
    /// Its duration in seconds.
    pub took: f64,
    /// The number of failed attempts before it.
    pub attempt: u32,
    /// Its folder in the result folder.
    pub folder: String,
}

/// An attempt that failed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FailedRun {
    /// Its block.
    pub block: u32,
    /// The arm's full name.
    pub arm: String,
    /// The number of guests that ran at once.
    pub guests: u32,
    /// The workload.
    pub workload: String,
    /// 0 for the first attempt.
    pub attempt: u32,
    /// The reason.
    pub why: String,
    /// Its folder in the result folder.
    pub folder: String,
    /// A later attempt succeeded.
    pub was_repeated: bool,
}

/// The differences between the guests' start times, in seconds, over all runs with several guests.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Skew {
    /// The median.
    pub median: f64,
    /// The largest.
    pub largest: f64,
    /// The number of runs in which the difference was more than a hundredth of the run.
    pub large_in: usize,
}

pub(super) fn method(collected: &Collected, arms: &[Arm], arm_facts: Vec<ArmFact>) -> Method {
    let place = |stored: &StoredRun| arms.iter().position(|arm| arm.levels == stored.run.cell.arm);
    let mut runs: Vec<OrderedRun> = collected
        .runs
        .iter()
        .filter_map(|stored| {
            let run = &stored.run;
            Some(OrderedRun {
                position: run.position,
                block: run.cell.block,
                arm: place(stored)?,
                guests: run.cell.guests,
                workload: run.cell.workload.clone(),
                started: run.started,
                took: run.took,
                attempt: run.attempt,
                folder: stored.folder.clone(),
            })
        })
        .collect();
    runs.sort_by_key(|run| (run.position, run.started));
    let first = first(&collected.runs);
    let most_guests =
        collected.runs.iter().map(|stored| &stored.run.guest_facts).max_by_key(|facts| facts.len());
    Method {
        started: runs.iter().map(|run| run.started).min().unwrap_or_default(),
        last_started: runs.iter().map(|run| run.started).max().unwrap_or_default(),
        measured: runs.iter().map(|run| run.took).filter(|took| took.is_finite()).sum(),
        failed: collected.failed.iter().map(|stored| failed(stored, collected)).collect(),
        planned: collected.planned,
        skew: skew(&collected.runs),
        fingerprint: first.map(|run| run.fingerprint.clone()).unwrap_or_default(),
        arm_facts,
        guests: most_guests.cloned().unwrap_or_default(),
        runs,
    }
}

/// The first run of the order.
pub(super) fn first(runs: &[StoredRun]) -> Option<&Run> {
    runs.iter().min_by_key(|stored| stored.run.position).map(|stored| &stored.run)
}

fn failed(stored: &StoredRun, collected: &Collected) -> FailedRun {
    let run = &stored.run;
    let arm = run.cell.arm.iter().map(|(factor, level)| format!("{factor} {level}"));
    FailedRun {
        block: run.cell.block,
        arm: arm.collect::<Vec<_>>().join(", "),
        guests: run.cell.guests,
        workload: run.cell.workload.clone(),
        attempt: run.attempt,
        why: run.failure.clone().unwrap_or_else(|| "no reason was written down".to_owned()),
        folder: stored.folder.clone(),
        was_repeated: collected.runs.iter().any(|one| one.run.cell == run.cell),
    }
}

pub(super) fn skew(runs: &[StoredRun]) -> Option<Skew> {
    let several = || {
        let all = runs.iter().filter(|stored| stored.run.cell.guests > 1);
        all.filter_map(|stored| {
            Some((stored.run.start_skew.filter(|skew| skew.is_finite())?, stored.run.took))
        })
    };
    let skews: Vec<f64> = several().map(|(skew, _)| skew).collect();
    Some(Skew {
        median: median(&skews)?,
        largest: skews.iter().copied().fold(0.0, f64::max),
        large_in: several().filter(|(skew, took)| *skew > took / 100.0).count(),
    })
}
