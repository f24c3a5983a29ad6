//! The micro VM on the host: one operation in one arm, timed, and with its exits counted.

use std::time::Duration;

use ::probe::measure::Measure;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::adapter::{Adapter, Figures, Printed, Setting, Unfit, demand, own_program};
use super::{MetricDescription, NotUnderstood, Place, Program, Steps};
use crate::factor::Switch;
use crate::{Better, Combine, Metric, Unit};
use guests::shell;
use prove::Recording;

const RUN: &str = "probe";

/// Settings of the micro VM. Its arm is the level's `interrupt_virtualization`; without one it is the host's,
/// which levels with module parameters need.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Probe {
    /// The operation, by its name for `exitless probe --measure`.
    #[schemars(schema_with = "measures")]
    pub measure: Measure,
    /// Samples of the timed run, and operations of the run whose exits are counted.
    #[serde(default = "two_thousand")]
    pub samples: u32,
    /// Operations before them that are not timed.
    #[serde(default = "two_hundred")]
    pub warm_up: u32,
    /// The number of vCPUs of the micro VM.
    #[serde(default = "two")]
    pub vcpus: u16,
}

const fn two_thousand() -> u32 {
    2000
}

const fn two_hundred() -> u32 {
    200
}

const fn two() -> u16 {
    2
}

fn measures(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": Measure::ALL.map(Measure::name) })
}

impl Adapter for Probe {
    fn tool(&self) -> &'static str {
        "exitless probe"
    }

    fn check(&self) -> Result<(), Unfit> {
        let most = ::probe::MAX_SAMPLES;
        demand((1..=most).contains(&self.samples), "samples", &format!("must be 1 to {most}"))?;
        let most = ::probe::MAX_VCPUS;
        demand((2..=most).contains(&self.vcpus), "vcpus", &format!("must be 2 to {most}"))
    }

    fn limit(&self) -> Duration {
        Duration::from_secs(600)
    }

    fn typical(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn needs(&self) -> Vec<Program> {
        Vec::new()
    }

    fn metrics(&self) -> Vec<MetricDescription> {
        let title = self.measure.title();
        let cycles = |name, what| {
            let meaning = format!("{what}: {title}");
            MetricDescription::new(name, Unit::Cycles, Better::Lower, Combine::Single, meaning)
        };
        let exits = |name, what| {
            let meaning = format!("{what}: {title}");
            MetricDescription::new(name, Unit::PerOperation, Better::Lower, Combine::Single, meaning)
        };
        vec![
            cycles("cycles.median", "Median"),
            cycles("cycles.p99", "99th percentile"),
            exits("exits", "VM exits"),
            exits("exits.*", "VM exits by reason"),
        ]
    }

    fn steps(&self, setting: &Setting<'_>) -> Steps {
        let arm = match setting.scene.interrupt_virtualization {
            Some(Switch::On) => "on",
            Some(Switch::Off) => "off",
            None => "host",
        };
        let (samples, warm_up) = (self.samples.to_string(), self.warm_up.to_string());
        let vcpus = self.vcpus.to_string();
        let arguments = [
            "probe",
            "--arm",
            arm,
            "--measure",
            self.measure.name(),
            "--samples",
            &samples,
            "--warm-up",
            &warm_up,
            "--vcpus",
            &vcpus,
            "--blocks",
            "1",
            "--json",
        ];
        let run = format!("{} {}\n", own_program(), shell::line(arguments));
        Steps { run: vec![setting.step(RUN, Place::Host, run)], ..Steps::default() }
    }

    fn parse(&self, printed: &Printed<'_>) -> Result<Vec<Metric>, NotUnderstood> {
        let text = printed.step(RUN)?;
        let bad = |error: serde_json::Error| {
            text.not_understood(format!("the JSON of `exitless probe` ({error})"), text.stdout())
        };
        let recording: Whole = serde_json::from_str(text.stdout()).map_err(bad)?;
        let recording = recording.recording;
        if let Some(failure) = recording.failures.first() {
            let expected = if failure.counted {
                "a count of exits".to_owned()
            } else {
                format!("samples of {}", self.measure)
            };
            return Err(text.not_understood(expected, &failure.why));
        }
        let mut cycles: Vec<u64> =
            recording.timed_runs(self.measure).flat_map(|timed| timed.run.cycles.iter().copied()).collect();
        cycles.sort_unstable();
        let missing = || text.not_understood(format!("samples of {}", self.measure), "none");
        let mut figures = Figures::new(self.metrics());
        figures.add("cycles.median", stats::quantile(&cycles, 0.5).ok_or_else(missing)?);
        figures.add("cycles.p99", stats::quantile(&cycles, 0.99).ok_or_else(missing)?);
        let counted = recording.counted.iter().find(|counted| counted.run.measure == self.measure);
        let counted = counted.ok_or_else(missing)?;
        let operations = counted.operations() as f64;
        let by_kvm = counted.run.statistics.get("exits").map(|&count| count as f64);
        let by_reason = counted.exits.as_ref().filter(|exits| exits.total() > 0);
        let all = by_reason.map(|exits| exits.total() as f64).or(by_kvm);
        let all = all.ok_or_else(|| text.not_understood("a count of exits", "none"))?;
        figures.add("exits", all / operations);
        for (reason, count) in by_reason.into_iter().flat_map(|exits| exits.by_reason()) {
            figures.add(&format!("exits.{reason}"), count as f64 / operations);
        }
        figures.all(&text)
    }
}

/// The output of `exitless probe --json`, which contains more than the result.
#[derive(Deserialize)]
struct Whole {
    recording: Recording,
}

#[cfg(test)]
#[path = "probe_tests.rs"]
mod tests;
