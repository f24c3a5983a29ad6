//! What a study leaves: one folder a run, written whole or not at all.
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
//!   failed/NAME-ATTEMPT/  the same of runs that failed, with the reason in run.json
//! ```

use std::collections::BTreeMap;

use host::Fingerprint;
use serde::{Deserialize, Serialize};

use super::{Metric, Plan};

/// Version of the result's format.
pub const STUDY_FORMAT: u32 = 1;

/// The profile of VM exits among the files of a run.
pub(super) const PROFILE: &str = "exits.json";

/// Characters of the arm's name in a folder's name.
const LONGEST_ARM: usize = 100;

/// `study.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Study {
    /// [`STUDY_FORMAT`].
    pub format: u32,
    /// The version of exitless that began it.
    pub version: String,
    /// What the random orders come from.
    pub seed: u64,
    /// The plan in full, with every default.
    pub plan: Plan,
    /// Where it ran: `local`, `ssh://HOST`, `lab:NAME`.
    pub target: String,
    /// The target's host when the study began.
    pub fingerprint: Fingerprint,
    /// What the target's processors are, where they are emulated: figures of time mean nothing then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emulated: Option<String>,
    /// Seconds since 1970 when it began.
    pub started: u64,
    /// When it went on after an interruption.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resumed: Vec<Resumption>,
}

/// A study went on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Resumption {
    /// Seconds since 1970.
    pub at: u64,
    /// In which fields the host differed from [`Study::fingerprint`]: name, then, now. Not empty only where that was
    /// allowed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unlike: Vec<(String, Option<String>, Option<String>)>,
}

/// Where a run stands among the others.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Cell {
    /// The repeat, counted from 0. Runs of one block that differ in the arm alone are a pair.
    pub block: u32,
    /// The level of each factor, by the factor's name.
    pub arm: BTreeMap<String, String>,
    /// Guests that run at once.
    pub guests: u32,
    /// The workload's name in the plan.
    pub workload: String,
}

/// `run.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Where it stands.
    pub cell: Cell,
    /// Its place in the order of all runs.
    pub position: u32,
    /// 0 for the first attempt.
    pub attempt: u32,
    /// Seconds since 1970 at its start.
    pub started: u64,
    /// Seconds that the study had taken when it ended, pauses between sessions not counted.
    #[serde(default)]
    pub spent: f64,
    /// How long it took, from the guests' release to the last one's end, in seconds.
    pub took: f64,
    /// From the first guest's start to the last one's, in seconds.
    pub start_skew: Option<f64>,
    /// What each guest's workload came to, in the order of guests.
    pub guests: Vec<Vec<Metric>>,
    /// What was sampled on the host, over the run.
    pub host: Vec<Metric>,
    /// The host when it ran; what must be equal for runs to be compared.
    pub fingerprint: Fingerprint,
    /// The guests, a line of facts each (kernel, CPU model, tool versions).
    pub guest_facts: Vec<BTreeMap<String, String>>,
    /// Why it failed, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// What does not spoil it but should be known: lost events, samples that are missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

impl Cell {
    /// The name of its run's folder, when the run has this place in the order: the place first, so that names sort as
    /// runs were made.
    pub fn folder_name(&self, position: u32) -> String {
        // File names end at 255 bytes; the place alone makes them unlike.
        let arm = self.arm.values().map(String::as_str).collect::<Vec<_>>().join("+");
        let arm: String = arm.chars().take(LONGEST_ARM).collect();
        format!("{position:06}-b{}-{arm}-g{}-{}", self.block, self.guests, self.workload)
    }
}
