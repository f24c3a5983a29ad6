//! `[[workloads]]` of a plan.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::adapter::{Adapter, Printed, Setting, Unfit};
use super::{
    Command, Fio, Http, Iozone, MetricDescription, Mqtt, Netperf, NotUnderstood, Outputs, Probe, Program,
    Scene, Steps, Sysbench,
};
use crate::{Metric, Span};

/// The longest name, in characters: it becomes a part of file names.
const LONGEST_NAME: usize = 48;

/// One workload: a tool with its settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkloadPlan {
    /// Its name in results and charts: small letters, digits and hyphens, at most 48.
    pub name: String,
    /// The time limit of its measured step, after which the run has failed. By default each tool sets one
    /// from its duration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Span>,
    /// The tool, and its settings.
    #[serde(flatten)]
    pub tool: Tool,
}

/// A tool and its settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "tool", rename_all = "kebab-case")]
pub enum Tool {
    /// IOzone on a file in the guest.
    Iozone(Iozone),
    /// netperf between the guest and the host.
    Netperf(Netperf),
    /// sysbench in the guest.
    Sysbench(Sysbench),
    /// fio in the guest.
    Fio(Fio),
    /// A web server in the guest, and a client on the host or in the guest.
    Http(Http),
    /// The MQTT broker mosquitto in the guest, and many clients on the host.
    Mqtt(Mqtt),
    /// The micro VM on the host: one operation in one arm, timed, and with its exits counted.
    Probe(Probe),
    /// Any shell script, with figures parsed from its output.
    Command(Command),
}

/// A workload that is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Workload {name:?}: {field} {why}")]
pub struct BadWorkload {
    /// Its name.
    pub name: String,
    /// The field of the plan.
    pub field: &'static str,
    /// The fault, and the correction.
    pub why: String,
}

impl WorkloadPlan {
    /// Checks the settings beyond their types.
    ///
    /// # Errors
    /// The first setting that is not valid.
    pub fn check(&self) -> Result<(), BadWorkload> {
        let letters = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let fits = self.name.chars().all(letters)
            && (1..=LONGEST_NAME).contains(&self.name.len())
            && !self.name.starts_with('-');
        let named = || {
            let why = "must be of small letters, digits and hyphens, not begin with a hyphen, and be at most \
                       48 long";
            Unfit { field: "name", why: why.to_owned() }
        };
        fits.then_some(())
            .ok_or_else(named)
            .and_then(|()| self.tool.adapter().check())
            .map_err(|Unfit { field, why }| BadWorkload { name: self.name.clone(), field, why })
    }

    /// The approximate duration of its measured step on hardware.
    pub fn typical(&self) -> Duration {
        self.tool.adapter().typical().min(self.limit())
    }

    /// The programs that the workload needs, with the machines that need them.
    pub fn needs(&self) -> Vec<Program> {
        self.tool.adapter().needs()
    }

    /// Descriptions of the figures that [`Self::parse`] returns, known before a run: for stop rules and titles of
    /// charts.
    pub fn metrics(&self) -> Vec<MetricDescription> {
        let mut described = self.tool.adapter().metrics();
        described.extend(self.tool.adapter().work_unit().map(MetricDescription::work));
        described
    }

    /// A warning about the runs' figures, if the settings cause one.
    pub fn warning(&self) -> Option<String> {
        let why = self.tool.adapter().why_no_work()?;
        Some(format!("VM exits are not given for each unit of work: {why}"))
    }

    /// The steps of the workload with these guests.
    pub fn steps(&self, scene: &Scene) -> Steps {
        self.tool.adapter().steps(&Setting { name: &self.name, limit: self.limit(), scene })
    }

    /// Parses the figures from the outputs of one guest's steps and of the host's.
    ///
    /// # Errors
    /// If an output does not have the tool's known format; the run has then failed, and the outputs are kept.
    pub fn parse(&self, outputs: &Outputs) -> Result<Vec<Metric>, NotUnderstood> {
        let adapter = self.tool.adapter();
        // Ignore the status of servers: a signal ended them after the measured step.
        let served: Vec<&str> = self.steps(&Scene::default()).serve.iter().map(|step| step.name).collect();
        for (step, output) in &outputs.steps {
            if output.status != 0 && !served.contains(&step.as_str()) {
                let said = [&output.stderr, &output.stdout];
                let why =
                    said.iter().find_map(|text| programs::last_lines(text, 1).pop()).unwrap_or_default();
                let found = format!("status {}: {why}", output.status);
                let expected = "status 0".to_owned();
                return Err(NotUnderstood { tool: adapter.tool(), step: step.clone(), expected, found });
            }
        }
        let printed = Printed { tool: adapter.tool(), outputs };
        let mut metrics = adapter.parse(&printed)?;
        if let Some(unit) = adapter.work_unit() {
            let described = MetricDescription::work(unit);
            metrics.push(described.metric(&described.name, adapter.work(&printed)?));
        }
        Ok(metrics)
    }

    fn limit(&self) -> Duration {
        self.limit.map_or_else(|| self.tool.adapter().limit(), Span::duration)
    }
}

impl Tool {
    fn adapter(&self) -> &dyn Adapter {
        match self {
            Self::Iozone(tool) => tool,
            Self::Netperf(tool) => tool,
            Self::Sysbench(tool) => tool,
            Self::Fio(tool) => tool,
            Self::Http(tool) => tool,
            Self::Mqtt(tool) => tool,
            Self::Probe(tool) => tool,
            Self::Command(tool) => tool,
        }
    }
}
