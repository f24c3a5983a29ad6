//! A load that runs in guests, on the host, or between them, by a real tool whose real output is parsed.

mod adapter;
mod command;
mod description;
mod fio;
mod http;
mod iozone;
mod mqtt;
mod netperf;
mod plan;
mod probe;
mod shell;
mod sysbench;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod work;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

pub use command::{Command, CommandMetric};
pub use description::MetricDescription;
pub use fio::{Fio, FioPattern};
pub use http::{Client, Generator, Http, HttpServer};
pub use iozone::{Iozone, IozoneTest};
pub use mqtt::{Mqtt, QualityOfService};
pub use netperf::{Netperf, NetperfOutput, NetperfTest, Server};
pub use plan::{BadWorkload, Tool, WorkloadPlan};
pub use probe::Probe;
pub use sysbench::{Sysbench, SysbenchTest};
pub use work::WorkUnit;

pub(super) use shell::quoted;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Metric;
use super::factor::Switch;

/// One load as a plan names it, with its settings.
pub trait Workload: Send + Sync {
    /// Programs that it needs, and where.
    fn needs(&self) -> Vec<Program>;

    /// The figures that [`Self::parse`] gives, before there are any: for stop rules, and for the titles of charts.
    fn metrics(&self) -> Vec<MetricDescription>;

    /// What is run for it with these guests.
    fn steps(&self, scene: &Scene) -> Steps;

    /// The figures in the outputs of one guest's steps and of the host's.
    ///
    /// # Errors
    /// Where an output is not what this tool is known to print; the run has failed then, and the text is kept.
    fn parse(&self, outputs: &Outputs) -> Result<Vec<Metric>, NotUnderstood>;
}

/// A program that a workload needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Program {
    /// Where it must be.
    pub place: Place,
    /// Its name on the search path.
    pub name: &'static str,
    /// The Debian package that has it.
    pub package: &'static str,
}

/// Where a step runs.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// In each guest.
    #[default]
    Guest,
    /// On the host, once for each guest.
    Host,
}

/// What a workload is told about the guests it runs in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scene {
    /// The guest that the steps are for, counted from 0.
    pub guest: u32,
    /// Guests that run at once.
    pub guests: u32,
    /// vCPUs of this guest.
    pub vcpus: u32,
    /// Where the host reaches this guest.
    pub address: Option<IpAddr>,
    /// Where this guest reaches the host.
    pub host_address: Option<IpAddr>,
    /// The arm of a workload that makes its own VM, by the level's `interrupt_virtualization`; `None` where no level
    /// names it.
    pub interrupt_virtualization: Option<Switch>,
}

/// What is run for a workload, in this order, for each guest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Steps {
    /// Once after the guest has started: files to be made.
    pub prepare: Vec<Step>,
    /// Servers that stay while `run` runs, and are ended after it.
    pub serve: Vec<Step>,
    /// The measured one: all guests' are released at the same moment, and it must print what is parsed.
    pub run: Vec<Step>,
}

/// One shell script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Name of its output in [`Outputs`] and of its files in the run's folder.
    pub name: &'static str,
    /// Where it runs.
    pub place: Place,
    /// For `sh -c`.
    pub script: String,
    /// It is ended, and the run has failed, when it takes longer.
    pub limit: Duration,
}

/// What the steps of one guest printed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outputs {
    /// By the step's name.
    pub steps: BTreeMap<String, Output>,
}

/// What one step left.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Output {
    /// Its exit status; 128 and the signal's number where it was ended by one.
    pub status: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

/// An output is not what the tool is known to print.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Could not read what {tool} printed in step {step:?}: expected {expected}, found {found:?}")]
pub struct NotUnderstood {
    /// The tool.
    pub tool: &'static str,
    /// The step whose output it is.
    pub step: String,
    /// What was looked for.
    pub expected: String,
    /// The line, or the beginning of the text.
    pub found: String,
}
