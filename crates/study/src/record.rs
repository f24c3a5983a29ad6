//! The results of a study: a folder for each run, written completely or not at all.
//!
//! ```text
//! RESULT/
//!   plan.toml           as it was given
//!   study.json          [`Study`]: version, seed, the plan in full, the target's fingerprint
//!   runs/NAME/          one [`Run`]: renamed to this name when it is whole
//!     run.json
//!     guest-0/STEP.out, STEP.err   what the tools printed
//!     host.parquet      samples of the host
//!     exits.json        the profile of VM exits
//!     counted/          the same files of the repetition in which exits were counted, if that was apart
//!   failed/NAME-ATTEMPT/  the same of runs that failed, with the reason in run.json
//!   failed/NAME-replaced/  a whole run whose block a later session made again
//! ```

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use host::Fingerprint;
use serde::{Deserialize, Serialize};

use super::sampling::is_of_exits;
use super::{Metric, Plan};

/// Format version of the result.
pub const STUDY_FORMAT: u32 = 1;

/// The most characters of the arm's name in a folder's name.
const LONGEST_ARM: usize = 100;

/// The content of `study.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Study {
    /// [`STUDY_FORMAT`].
    pub format: u32,
    /// The version of exitless that started it.
    pub version: String,
    /// The seed of the random orders.
    pub seed: u64,
    /// The plan in full, with every default.
    pub plan: Plan,
    /// The target: `local`, `ssh://HOST`, `lab:NAME`.
    pub target: String,
    /// The target's host when the study began.
    pub fingerprint: Fingerprint,
    /// The emulator of the target's CPUs, if they are emulated: times are then meaningless.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emulated: Option<String>,
    /// Start of the study, in seconds since 1970.
    pub started: u64,
    /// Resumptions after interruptions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resumed: Vec<Resumption>,
}

/// A resumption of the study.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Resumption {
    /// Seconds since 1970.
    pub at: u64,
    /// Fields in which the host differed from [`Study::fingerprint`], and `exitless` if its version differed from
    /// [`Study::version`]: name, earlier value, value at the resumption. Empty unless --allow-unlike was given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unlike: Vec<(String, Option<String>, Option<String>)>,
}

/// The position of a run in the design of the study.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Cell {
    /// The repeat, counted from 0. Runs of one block and one session that differ only in the arm are a pair.
    pub block: u32,
    /// The level of each factor, by the factor's name.
    pub arm: BTreeMap<String, String>,
    /// The number of guests that run at once.
    pub guests: u32,
    /// The workload's name in the plan.
    pub workload: String,
}

/// The content of `run.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Its cell.
    pub cell: Cell,
    /// Its position in the order of all runs.
    pub position: u32,
    /// The attempt, counted from 0.
    pub attempt: u32,
    /// The session of the study that made it, counted from 0: each resumption begins another. 0 in results of versions
    /// that did not store it.
    #[serde(default)]
    pub session: u32,
    /// Its start, in seconds since 1970.
    pub started: u64,
    /// The seconds that the study had taken when the run ended, without pauses between sessions.
    #[serde(default)]
    pub spent: f64,
    /// Its duration in seconds, from the first guest's start to the last one's end.
    pub took: f64,
    /// The seconds for which the host was sampled. Longer than [`Self::took`] by the release of the guests, and by the
    /// time until their end is noticed. `None` if the host was not sampled, and in results of versions that did not
    /// store it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampled: Option<f64>,
    /// The seconds for which exits were counted: longer than [`Self::sampled`] by the last reading, which takes long on
    /// a large or emulated host. `None` if it is the same time, and in results of versions that did not store it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exits_counted: Option<f64>,
    /// The time from the first guest's start to the last one's, in seconds.
    pub start_skew: Option<f64>,
    /// The figures of each guest's workload, in the order of guests.
    pub guests: Vec<Vec<Metric>>,
    /// The figures sampled on the host, over the run. Those of exits are from [`Self::counted`], if there is one.
    pub host: Vec<Metric>,
    /// The repetition in which exits were counted, if they were counted apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted: Option<Repetition>,
    /// The host at the time of the run, to check that runs are comparable.
    pub fingerprint: Fingerprint,
    /// The facts of each guest (kernel, CPU model, tool versions).
    pub guest_facts: Vec<BTreeMap<String, String>>,
    /// The reason of its failure, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Problems that do not invalidate the run: lost events, missing samples.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// A repetition of a run's workload in the same guests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Repetition {
    /// Its duration in seconds, from the first guest's start to the last one's end.
    pub took: f64,
    /// The figures of each guest's workload. They contain the cost of counting, so only the work is used, for exits for
    /// each unit of it.
    pub guests: Vec<Vec<Metric>>,
}

impl Run {
    /// A new attempt at a run that starts now, without figures.
    pub(crate) fn begun(cell: Cell, position: u32, attempt: u32) -> Self {
        Self {
            cell,
            position,
            attempt,
            session: 0,
            started: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            spent: 0.0,
            took: 0.0,
            sampled: None,
            exits_counted: None,
            start_skew: None,
            guests: Vec::new(),
            host: Vec::new(),
            counted: None,
            fingerprint: Fingerprint::default(),
            guest_facts: Vec::new(),
            failure: None,
            warnings: Vec::new(),
        }
    }

    /// The combined figures of all guests, in the order of the first guest that has them.
    pub(crate) fn of_guests(&self) -> Vec<Metric> {
        combined(&self.guests)
    }

    /// As [`Self::of_guests`], of the time in which exits were counted.
    pub(crate) fn of_guests_counted(&self) -> Vec<Metric> {
        combined(self.counted.as_ref().map_or(&self.guests, |counted| &counted.guests))
    }

    /// The duration in seconds over which a rate of [`Self::host`] was taken.
    pub(crate) fn host_seconds(&self, metric: &str) -> f64 {
        self.exits_counted.filter(|_| is_of_exits(metric)).or(self.sampled).unwrap_or(self.took)
    }
}

/// The combined figures of all guests, in the order of the first guest that has them.
fn combined(guests: &[Vec<Metric>]) -> Vec<Metric> {
    let mut names: Vec<&Metric> = Vec::new();
    for metric in guests.iter().flatten() {
        if !names.iter().any(|known| known.name == metric.name) {
            names.push(metric);
        }
    }
    let combined = names.into_iter().filter_map(|first| {
        let of_each = guests.iter();
        let values: Vec<f64> = of_each
            .filter_map(|guest| guest.iter().find(|metric| metric.name == first.name))
            .map(|metric| metric.value)
            .collect();
        // Drop figures that some guest lacks: a sum would be too small.
        if values.len() != guests.len() {
            return None;
        }
        Some(Metric { value: first.combine.apply(&values)?, ..first.clone() })
    });
    combined.collect()
}

impl Cell {
    /// Tests whether the two differ in nothing but the block.
    pub(crate) fn is_repeat_of(&self, other: &Self) -> bool {
        self.arm == other.arm && self.guests == other.guests && self.workload == other.workload
    }

    /// The name of the run's folder at this position in the order. It begins with the position, so that names sort in
    /// the order of runs.
    pub fn folder_name(&self, position: u32) -> String {
        // File names have at most 255 bytes; the position alone makes them unique.
        let arm = self.arm.values().map(String::as_str).collect::<Vec<_>>().join("+");
        let arm: String = arm.chars().take(LONGEST_ARM).collect();
        format!("{position:06}-b{}-{arm}-g{}-{}", self.block, self.guests, self.workload)
    }
}
