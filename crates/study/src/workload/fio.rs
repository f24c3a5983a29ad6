//! fio in the guest.

mod output;

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::adapter::{Adapter, Printed, Setting, Unfit, demand};
use super::{MetricDescription, NotUnderstood, Place, Program, Steps, WorkUnit};
use crate::{Metric, Span, Unit};
use guests::Size;
use guests::shell;

const PREPARE: &str = "fio-prepare";
const RUN: &str = "fio";

/// Settings of fio: fields for one job, or a whole job file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Fio {
    /// The access pattern (rw=). With `job_file` it determines which figures are expected.
    pub pattern: FioPattern,
    /// Bytes of one operation (bs=).
    #[serde(default = "four_kibibytes")]
    pub block_size: Size,
    /// Bytes of the file, or of each job's (size=).
    #[serde(default = "hundred_mebibytes")]
    pub file_size: Size,
    /// The duration (runtime=, time_based=1), in whole seconds.
    #[serde(default = "ten_seconds")]
    pub duration: Span,
    /// The time before figures are taken (ramp_time=), in whole seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ramp: Option<Span>,
    /// Operations in flight (iodepth=).
    #[serde(default = "one")]
    pub depth: u32,
    /// Parallel jobs, reported as one (numjobs=, group_reporting=1).
    #[serde(default = "one")]
    pub jobs: u32,
    /// The I/O engine (ioengine=): psync, libaio, io_uring...
    #[serde(default = "psync")]
    pub engine: String,
    /// Bypass the guest's page cache (direct=1).
    #[serde(default)]
    pub direct: bool,
    /// The limit of operations per second of each job (rate_iops=).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<u32>,
    /// A device or file of the guest to use instead of a file of its own (filename=). Writing destroys its
    /// content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// The text of a whole job file, which replaces all fields but `pattern` and `duration`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_file: Option<String>,
}

/// An access pattern of fio.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FioPattern {
    /// Sequential reads (rw=read).
    Read,
    /// Sequential writes (rw=write).
    Write,
    /// Random reads (rw=randread).
    RandomRead,
    /// Random writes (rw=randwrite).
    RandomWrite,
    /// Sequential reads and writes (rw=rw).
    ReadWrite,
    /// Random reads and writes (rw=randrw).
    RandomReadWrite,
}

const fn one() -> u32 {
    1
}

const fn four_kibibytes() -> Size {
    Size::kib(4)
}

const fn hundred_mebibytes() -> Size {
    Size::mib(100)
}

const fn ten_seconds() -> Span {
    Span::seconds(10)
}

fn psync() -> String {
    "psync".to_owned()
}

impl FioPattern {
    fn argument(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::RandomRead => "randread",
            Self::RandomWrite => "randwrite",
            Self::ReadWrite => "rw",
            Self::RandomReadWrite => "randrw",
        }
    }

    /// The directions, by their names in fio's JSON.
    fn directions(self) -> &'static [&'static str] {
        match self {
            Self::Read | Self::RandomRead => &["read"],
            Self::Write | Self::RandomWrite => &["write"],
            Self::ReadWrite | Self::RandomReadWrite => &["read", "write"],
        }
    }
}

impl Fio {
    fn command(&self, more: &[&str]) -> String {
        let mut words = vec!["fio".to_owned(), "--output-format=json".to_owned()];
        if self.job_file.is_some() {
            words.extend(more.iter().map(|&word| word.to_owned()));
            words.push("job.fio".to_owned());
            return shell::line(words);
        }
        let seconds = |span: Span| span.duration().as_secs().max(1);
        words.push("--name=job".to_owned());
        words.push(format!("--rw={}", self.pattern.argument()));
        words.push(format!("--bs={}", self.block_size.bytes()));
        words.push(format!("--size={}", self.file_size.bytes()));
        words.push(format!("--runtime={}", seconds(self.duration)));
        words.push("--time_based=1".to_owned());
        words.extend(self.ramp.map(|ramp| format!("--ramp_time={}", seconds(ramp))));
        words.push(format!("--iodepth={}", self.depth));
        words.push(format!("--numjobs={}", self.jobs));
        words.push("--group_reporting=1".to_owned());
        words.push(format!("--ioengine={}", self.engine));
        words.push(format!("--direct={}", u8::from(self.direct)));
        words.extend(self.rate.map(|rate| format!("--rate_iops={rate}")));
        words.extend(self.device.as_ref().map(|device| format!("--filename={device}")));
        words.extend(more.iter().map(|&word| word.to_owned()));
        shell::line(words)
    }

    /// Tests whether fio runs for some time before it measures.
    fn has_ramp(&self) -> bool {
        match &self.job_file {
            Some(text) => text.contains("ramp_time"),
            None => self.ramp.is_some(),
        }
    }

    /// Enters the folder, and writes the job file if there is one.
    fn enter(&self, setting: &Setting<'_>) -> String {
        let job = |text: &String| format!("printf '%s\\n' {} >job.fio || exit\n", shell::quoted(text));
        format!("{}{}", setting.enter_folder(), self.job_file.as_ref().map(job).unwrap_or_default())
    }
}

impl Adapter for Fio {
    fn tool(&self) -> &'static str {
        "fio"
    }

    fn check(&self) -> Result<(), Unfit> {
        let word = |text: &str| !text.is_empty() && !text.contains(['\n', '\0']);
        demand(word(&self.engine), "engine", "must be the name of an engine of fio")?;
        demand(self.device.as_deref().is_none_or(word), "device", "must be a path")?;
        demand(self.depth > 0, "depth", "must be at least 1")?;
        demand(self.jobs > 0, "jobs", "must be at least 1")?;
        demand(self.rate != Some(0), "rate", "must be at least 1")?;
        demand(self.block_size <= self.file_size, "block_size", "is more than the file has")?;
        let whole = |span: Span| span.duration().subsec_nanos() == 0;
        demand(whole(self.duration), "duration", "must be whole seconds")?;
        demand(self.ramp.is_none_or(whole), "ramp", "must be whole seconds")?;
        let job = self.job_file.as_deref().is_none_or(|text| text.contains('[') && !text.contains('\0'));
        demand(job, "job_file", "must be the text of a job file, with a section such as [job]")
    }

    fn limit(&self) -> Duration {
        let ramp = self.ramp.map_or(Duration::ZERO, Span::duration);
        (self.duration.duration() + ramp) * 2 + Duration::from_secs(300)
    }

    fn typical(&self) -> Duration {
        self.duration.duration() + self.ramp.map_or(Duration::ZERO, Span::duration)
    }

    fn needs(&self) -> Vec<Program> {
        vec![Program { place: Place::Guest, name: "fio", package: "fio" }]
    }

    fn metrics(&self) -> Vec<MetricDescription> {
        let mut described = Vec::new();
        for direction in self.pattern.directions() {
            let rates =
                [("iops", Unit::PerSecond, "Operations"), ("throughput", Unit::BytesPerSecond, "Throughput")];
            for (name, unit, what) in rates {
                let meaning = format!("{what} of {direction}s");
                described.push(MetricDescription::rate(&format!("{direction}.{name}"), unit, meaning));
            }
            for (name, what) in [
                ("mean", "Mean"),
                ("p50", "Median"),
                ("p99", "99th percentile of the"),
                ("p99.9", "99.9th percentile of the"),
            ] {
                let meaning = format!("{what} completion latency of {direction}s");
                described.push(MetricDescription::latency(&format!("{direction}.latency.{name}"), meaning));
            }
        }
        described.push(MetricDescription::share_of_cpu("cpu.user", "CPU time of fio in user space"));
        described.push(MetricDescription::share_of_cpu("cpu.system", "CPU time of fio in the kernel"));
        described
    }

    fn steps(&self, setting: &Setting<'_>) -> Steps {
        let enter = self.enter(setting);
        // Create the files only.
        let prepare = format!("{enter}{} >/dev/null && sync\n", self.command(&["--create_only=1"]));
        Steps {
            prepare: vec![setting.short_step(PREPARE, Place::Guest, prepare)],
            serve: Vec::new(),
            run: vec![setting.step(RUN, Place::Guest, format!("{enter}exec {}\n", self.command(&[])))],
        }
    }

    fn parse(&self, printed: &Printed<'_>) -> Result<Vec<Metric>, NotUnderstood> {
        output::parse(self, &printed.step(RUN)?)
    }

    fn work_unit(&self) -> Option<WorkUnit> {
        (!self.has_ramp()).then_some(WorkUnit::Operation)
    }

    fn why_no_work(&self) -> Option<&'static str> {
        self.has_ramp().then_some(
            "fio does not count the operations of its ramp, but the VM exits of the ramp are counted",
        )
    }

    fn work(&self, printed: &Printed<'_>) -> Result<f64, NotUnderstood> {
        output::operations(self, &printed.step(RUN)?)
    }
}

#[cfg(test)]
#[path = "fio_tests.rs"]
mod tests;
