//! The raw data of a proof: everything observed on the host, with its time. Nothing is derived.

use std::collections::BTreeMap;
use std::io::{Read, Write};

use exits::{ExitCounts, ExitReason, HandlingTime};
use host::Fingerprint;
use live::InhibitChange;
use probe::measure::Measure;
use probe::run::{Arm, Run};
use probe::{ArmEvidence, Arms};
use serde::{Deserialize, Serialize};

use super::Plan;

/// The format version of recordings.
pub const FORMAT: u32 = 1;

/// The raw data of one proof: one JSON object; see [`Recording::read`] and [`Recording::write`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Recording {
    /// [`FORMAT`] of the writer.
    pub format: u32,
    /// The version of the command that recorded it.
    pub version: String,
    /// When collection began, in seconds since 1970-01-01 UTC by the host's clock.
    pub started: u64,
    /// The duration of the collection, in milliseconds by the host's clock.
    pub took_ms: u64,
    /// The machine.
    pub fingerprint: Fingerprint,
    /// The emulator under which the machine ran, if the recorder was told of one, such as `Bochs 3.0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emulated: Option<String>,
    /// Cycles that the emulator charged for each VM exit with the entry after it, in addition to the
    /// instructions that handled it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch_cycles: Option<u32>,
    /// The plan.
    pub plan: Plan,
    /// The arms of this host, and the mechanism that switched them.
    pub arms: Arms,
    /// Evidence of short runs of EOIs in each arm, before the first run and after the last.
    #[serde(default)]
    pub arm_checks: Vec<ArmEvidence>,
    /// Frequency of the guest's TSC in kilohertz, if KVM reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tsc_khz: Option<u32>,
    /// The source of exit counts.
    pub tracing: Tracing,
    /// The timed runs, in the order in which they were taken; nothing was traced during them.
    pub timed: Vec<TimedRun>,
    /// The runs whose exits were counted.
    pub counted: Vec<CountedRun>,
    /// Measures that failed.
    #[serde(default)]
    pub failures: Vec<Failure>,
    /// Shorter recordings of the same machine with other costs of a switch between guest and host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub at_other_costs: Vec<Recording>,
}

/// A value for each arm.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArmPair<T> {
    /// With interrupt virtualization off.
    pub off: T,
    /// With interrupt virtualization on.
    pub on: T,
}

impl<T> ArmPair<T> {
    /// One value for each arm.
    pub fn each(mut value: impl FnMut(Arm) -> T) -> Self {
        Self { off: value(Arm::Off), on: value(Arm::On) }
    }

    /// The value of `arm`.
    pub fn of(&self, arm: Arm) -> &T {
        match arm {
            Arm::Off => &self.off,
            Arm::On => &self.on,
        }
    }
}

/// The available arms, in the order of the tables.
pub(super) fn arms_of(arms: &Arms) -> &'static [Arm] {
    match arms {
        Arms::Both { .. } => &[Arm::Off, Arm::On],
        Arms::OnlyOff { .. } => &[Arm::Off],
        Arms::OnlyOn { .. } => &[Arm::On],
    }
}

/// The source of exit counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Tracing {
    /// The tracepoint `kvm_exit`.
    Tracepoints {
        /// True if this kernel also reports changes of inhibit reasons.
        inhibits: bool,
    },
    /// KVM's binary statistics only, without tracepoints.
    Statistics {
        /// The reason why the tracepoints could not be used.
        why: String,
    },
}

/// A run without tracing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimedRun {
    /// The position of this run among all runs, counted runs included.
    pub position: u32,
    /// The block within its measure.
    pub block: u32,
    /// The start of the run, in microseconds after the start of the collection.
    pub began_us: u64,
    /// The duration of the run, in microseconds by the host's clock.
    pub took_us: u64,
    /// The samples.
    pub run: Run,
}

/// A run with the tracepoints enabled, if they can be used. Its operations take more cycles than those of timed runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CountedRun {
    /// The position of this run among all runs, timed runs included.
    pub position: u32,
    /// The run, with KVM's own statistics.
    pub run: Run,
    /// Exits by reason; absent if tracepoints cannot be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exits: Option<ExitCounts>,
    /// Time from exit to the next entry by reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub handling: BTreeMap<ExitReason, HandlingTime>,
    /// Changes of inhibit reasons that the kernel reported during the switch to this arm and the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inhibits: Vec<InhibitChange>,
}

impl CountedRun {
    /// Operations of the guest during the run, warm-up included.
    pub fn operations(&self) -> u64 {
        u64::from(self.run.warm_up) + self.run.cycles.len() as u64
    }
}

/// A measure that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The measure.
    pub measure: Measure,
    /// The arm in which it failed.
    pub arm: Arm,
    /// The error with its causes.
    pub why: String,
    /// It failed in the counted run: the timed ones are complete.
    #[serde(default)]
    pub counted: bool,
}

/// The reason why a recording could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file could not be read.
    #[error("Cannot read the recording")]
    Io(#[source] std::io::Error),
    /// The file ends too early.
    #[error("The recording ends too early, after line {line}: it was cut off while it was written or copied")]
    Truncated {
        /// The last line.
        line: usize,
    },
    /// The file is not JSON, or has other fields.
    #[error("This is not a recording of `exitless prove`")]
    Malformed(#[source] serde_json::Error),
    /// The file was written by a later version.
    #[error(
        "The recording has format {found}, this version reads up to {FORMAT}; use the version that wrote it"
    )]
    Newer {
        /// The format of the file.
        found: u64,
    },
}

impl Recording {
    /// Reads the output of [`Self::write`].
    ///
    /// # Errors
    /// If the bytes cannot be read, end too early, have another form or come from a later version.
    pub fn read(mut from: impl Read) -> Result<Self, ReadError> {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).map_err(ReadError::Io)?;
        let json: serde_json::Value = serde_json::from_slice(&bytes).map_err(|error| {
            if error.is_eof() {
                ReadError::Truncated { line: error.line() }
            } else {
                ReadError::Malformed(error)
            }
        })?;
        // Check the format before the fields, which may differ in a later format.
        match json.get("format").and_then(serde_json::Value::as_u64) {
            Some(found) if found > u64::from(FORMAT) => Err(ReadError::Newer { found }),
            _ => serde_json::from_value(json).map_err(ReadError::Malformed),
        }
    }

    /// Writes the recording as one line of JSON.
    ///
    /// # Errors
    /// If `to` cannot be written.
    pub fn write(&self, mut to: impl Write) -> std::io::Result<()> {
        serde_json::to_writer(&mut to, self)?;
        to.write_all(b"\n")?;
        to.flush()
    }

    /// The timed runs of one measure, in order of time.
    pub fn timed_runs(&self, measure: Measure) -> impl Iterator<Item = &TimedRun> {
        self.timed.iter().filter(move |timed| timed.run.measure == measure)
    }

    /// The counted run of one measure in one arm.
    pub fn counted_run(&self, measure: Measure, arm: Arm) -> Option<&CountedRun> {
        self.counted.iter().find(|counted| counted.run.measure == measure && counted.run.arm == arm)
    }

    /// All timed samples of one measure in one arm, in cycles, in order of time.
    pub fn cycles(&self, measure: Measure, arm: Arm) -> Vec<u64> {
        self.timed_runs(measure)
            .filter(|timed| timed.run.arm == arm)
            .flat_map(|timed| timed.run.cycles.iter().copied())
            .collect()
    }
}
