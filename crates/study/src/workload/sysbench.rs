//! sysbench in the guest.

mod output;

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::adapter::{Adapter, Printed, Setting, Unfit, demand};
use super::{MetricDescription, NotUnderstood, Place, Program, Steps, WorkUnit};
use crate::{Metric, Span, Unit};
use guests::shell;

const PREPARE: &str = "sysbench-prepare";
const RUN: &str = "sysbench";

/// Settings of sysbench 1.0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sysbench {
    /// The test.
    pub test: SysbenchTest,
    /// Threads (--threads).
    #[serde(default = "one")]
    pub threads: u32,
    /// The duration (--time), in whole seconds.
    #[serde(default = "ten_seconds")]
    pub duration: Span,
    /// The number of events after which it ends; 0, the default, sets no such limit (--events).
    #[serde(default)]
    pub events: u64,
    /// The percentile of latencies that is printed (--percentile).
    #[serde(default = "ninety_five")]
    pub percentile: u8,
    /// The number of mutexes that the threads share, for `threads` (--thread-locks).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_locks: Option<u32>,
    /// The number of yields in each event, for `threads` (--thread-yields).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_yields: Option<u32>,
    /// Other options of the test by their names without leading hyphens: `cpu-max-prime = "10000"`,
    /// `memory-block-size = "1K"`, `file-total-size = "128M"`, `file-test-mode = "rndrw"`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub options: BTreeMap<String, String>,
}

/// A built-in test of sysbench.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SysbenchTest {
    /// Threads that lock shared mutexes, yield, and unlock them: the scheduler.
    Threads,
    /// Prime numbers.
    Cpu,
    /// Threads that lock and unlock mutexes.
    Mutex,
    /// Reads or writes of memory.
    Memory,
    /// Reads and writes of files; options need `file-test-mode`.
    Fileio,
}

const fn one() -> u32 {
    1
}

const fn ten_seconds() -> Span {
    Span::seconds(10)
}

const fn ninety_five() -> u8 {
    95
}

impl SysbenchTest {
    fn name(self) -> &'static str {
        match self {
            Self::Threads => "threads",
            Self::Cpu => "cpu",
            Self::Mutex => "mutex",
            Self::Memory => "memory",
            Self::Fileio => "fileio",
        }
    }
}

impl Sysbench {
    fn option(&self, name: &str) -> Option<&str> {
        self.options.get(name).map(String::as_str)
    }

    /// The command line, with the same options of files for preparing and for running.
    fn command(&self, what: &str) -> String {
        let mut words = vec!["sysbench".to_owned(), self.test.name().to_owned()];
        words.push(format!("--threads={}", self.threads));
        words.push(format!("--time={}", self.duration.duration().as_secs().max(1)));
        words.push(format!("--events={}", self.events));
        words.push(format!("--percentile={}", self.percentile));
        let own = [("thread-locks", self.thread_locks), ("thread-yields", self.thread_yields)];
        words.extend(own.into_iter().filter_map(|(name, value)| Some(format!("--{name}={}", value?))));
        words.extend(self.options.iter().map(|(name, value)| format!("--{name}={value}")));
        words.push(what.to_owned());
        shell::line(words)
    }
}

impl Adapter for Sysbench {
    fn tool(&self) -> &'static str {
        "sysbench"
    }

    fn check(&self) -> Result<(), Unfit> {
        let threads = self.test == SysbenchTest::Threads;
        demand(threads || self.thread_locks.is_none(), "thread_locks", "is for test = \"threads\"")?;
        demand(threads || self.thread_yields.is_none(), "thread_yields", "is for test = \"threads\"")?;
        demand(self.threads > 0, "threads", "must be at least 1")?;
        demand((1..=100).contains(&self.percentile), "percentile", "must be 1 to 100")?;
        demand(self.duration.duration().subsec_nanos() == 0, "duration", "must be whole seconds")?;
        let word = |name: &String| {
            !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        };
        demand(self.options.keys().all(word), "options", "must have names such as file-total-size")?;
        // Options that change the output format, or that are fields of their own.
        let own = ["threads", "time", "events", "percentile", "thread-locks", "thread-yields", "histogram"];
        let taken = own.iter().find(|name| self.options.contains_key(**name));
        demand(taken.is_none(), "options", &format!("must not have {}", taken.unwrap_or(&"")))?;
        let mode = self.test != SysbenchTest::Fileio || self.options.contains_key("file-test-mode");
        demand(mode, "options", "must have file-test-mode for test = \"fileio\"")
    }

    fn limit(&self) -> Duration {
        self.duration.duration() * 2 + Duration::from_secs(120)
    }

    fn typical(&self) -> Duration {
        self.duration.duration()
    }

    fn needs(&self) -> Vec<Program> {
        vec![Program { place: Place::Guest, name: "sysbench", package: "sysbench" }]
    }

    fn metrics(&self) -> Vec<MetricDescription> {
        let test = self.test.name();
        let mut described = vec![
            MetricDescription::rate("events", Unit::PerSecond, format!("Events of sysbench {test}")),
            MetricDescription::latency("latency.mean", "Mean time of an event"),
            MetricDescription::latency("latency.max", "Longest time of an event"),
        ];
        let name = format!("latency.p{}", self.percentile);
        let meaning = format!("{}th percentile of an event's time", self.percentile);
        described.push(MetricDescription::latency(&name, meaning));
        if self.test == SysbenchTest::Memory && self.option("memory-oper") != Some("none") {
            let meaning = "Throughput of memory";
            described.push(MetricDescription::rate("throughput", Unit::BytesPerSecond, meaning));
        }
        if self.test == SysbenchTest::Fileio {
            for (name, meaning) in [("reads", "Reads"), ("writes", "Writes"), ("fsyncs", "Calls of fsync")] {
                described.push(MetricDescription::rate(name, Unit::PerSecond, meaning));
            }
            for (name, meaning) in
                [("read.throughput", "Throughput of reads"), ("write.throughput", "Throughput of writes")]
            {
                described.push(MetricDescription::rate(name, Unit::BytesPerSecond, meaning));
            }
        }
        described
    }

    fn steps(&self, setting: &Setting<'_>) -> Steps {
        let folder = setting.enter_folder();
        let script = |what| format!("{folder}exec {}\n", self.command(what));
        let prepare = (self.test == SysbenchTest::Fileio)
            .then(|| setting.short_step(PREPARE, Place::Guest, script("prepare")));
        Steps {
            prepare: prepare.into_iter().collect(),
            serve: Vec::new(),
            run: vec![setting.step(RUN, Place::Guest, script("run"))],
        }
    }

    fn parse(&self, printed: &Printed<'_>) -> Result<Vec<Metric>, NotUnderstood> {
        output::parse(self, &printed.step(RUN)?)
    }

    fn work_unit(&self) -> Option<WorkUnit> {
        Some(WorkUnit::Event)
    }

    fn work(&self, printed: &Printed<'_>) -> Result<f64, NotUnderstood> {
        output::events(&printed.step(RUN)?)
    }
}

#[cfg(test)]
#[path = "sysbench_tests.rs"]
mod tests;
