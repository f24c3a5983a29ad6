//! IOzone on a file in the guest.

mod output;

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::adapter::{Adapter, Printed, Setting, Unfit, demand};
use super::{MetricDescription, NotUnderstood, Place, Program, Steps, WorkUnit};
use crate::{Metric, Unit};
use guests::Size;
use guests::shell;

const PREPARE: &str = "iozone-prepare";
const RUN: &str = "iozone";
const MEBIBYTE: f64 = 1_048_576.0;

/// Settings of IOzone. Its file is written once after the guest has started; the listed tests are measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Iozone {
    /// Size of the file, or of each file with more than one process (-s).
    pub file_size: Size,
    /// Bytes of one read or write (-r).
    pub record_size: Size,
    /// The measured tests, each once. IOzone runs some in pairs and in its own order.
    pub tests: Vec<IozoneTest>,
    /// The number of processes, each with its own file (-t): the throughput mode. By default one process runs
    /// outside that mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes: Option<u32>,
    /// Bypass the guest's page cache: O_DIRECT (-I). fread and fwrite use the cache nevertheless.
    #[serde(default)]
    pub direct: bool,
    /// The time of a write includes fsync (-e).
    #[serde(default)]
    pub flush: bool,
    /// Times include close() (-c).
    #[serde(default)]
    pub close: bool,
    /// Drop the guest's page cache before the measured step (/proc/sys/vm/drop_caches); the user must be
    /// root.
    #[serde(default)]
    pub drop_caches: bool,
    /// Further arguments, one word each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<String>,
}

/// A test of IOzone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum IozoneTest {
    /// Writes a new file.
    Write,
    /// Writes the same file again.
    Rewrite,
    /// Reads sequentially.
    Read,
    /// Reads sequentially again.
    Reread,
    /// Reads at random offsets.
    RandomRead,
    /// Writes at random offsets.
    RandomWrite,
    /// Reads from the end to the beginning.
    BackwardRead,
    /// Writes one record repeatedly.
    RecordRewrite,
    /// Reads in strides.
    StrideRead,
    /// Writes with fwrite().
    Fwrite,
    /// Writes with fwrite() again.
    Frewrite,
    /// Reads with fread().
    Fread,
    /// Reads with fread() again.
    Freread,
    /// Writes with pwrite().
    Pwrite,
    /// Writes with pwrite() again.
    Repwrite,
    /// Reads with pread().
    Pread,
    /// Reads with pread() again.
    Repread,
    /// Reads and writes at random offsets, only with several processes.
    Mixed,
}

/// A test's names and numbers in IOzone.
struct Known {
    test: IozoneTest,
    name: &'static str,
    /// The number for -i.
    number: u8,
    /// The end of its line in throughput mode; `None` if that mode has no such figure.
    throughput: Option<&'static str>,
    /// Its two words in the heading of the table; `None` if the table has no such column.
    column: Option<(&'static str, &'static str)>,
}

impl IozoneTest {
    /// All tests, with numbers from `iozone -h` and names as version 3.489 prints them.
    const KNOWN: [Known; 18] = [
        known(Self::Write, "write", 0, Some("initial writers"), Some(("", "write"))),
        known(Self::Rewrite, "rewrite", 0, Some("rewriters"), Some(("", "rewrite"))),
        known(Self::Read, "read", 1, Some("readers"), Some(("", "read"))),
        known(Self::Reread, "reread", 1, Some("re-readers"), Some(("", "reread"))),
        known(Self::RandomRead, "random-read", 2, Some("random readers"), Some(("random", "read"))),
        known(Self::RandomWrite, "random-write", 2, Some("random writers"), Some(("random", "write"))),
        known(Self::BackwardRead, "backward-read", 3, Some("reverse readers"), Some(("bkwd", "read"))),
        known(Self::RecordRewrite, "record-rewrite", 4, None, Some(("record", "rewrite"))),
        known(Self::StrideRead, "stride-read", 5, Some("stride readers"), Some(("stride", "read"))),
        known(Self::Fwrite, "fwrite", 6, Some("fwriters"), Some(("", "fwrite"))),
        known(Self::Frewrite, "frewrite", 6, None, Some(("", "frewrite"))),
        known(Self::Fread, "fread", 7, Some("freaders"), Some(("", "fread"))),
        known(Self::Freread, "freread", 7, None, Some(("", "freread"))),
        known(Self::Pwrite, "pwrite", 9, Some("pwrite writers"), Some(("", "pwrite"))),
        known(Self::Repwrite, "repwrite", 9, None, Some(("", "repwrite"))),
        known(Self::Pread, "pread", 10, Some("pread readers"), Some(("", "pread"))),
        known(Self::Repread, "repread", 10, None, Some(("", "repread"))),
        known(Self::Mixed, "mixed", 8, Some("mixed workload"), None),
    ];

    /// The stable name, as in plans.
    pub fn name(self) -> &'static str {
        self.known().name
    }

    fn known(self) -> &'static Known {
        &Self::KNOWN[self as usize]
    }

    fn metric_name(self) -> String {
        format!("{}.throughput", self.name())
    }
}

const fn known(
    test: IozoneTest,
    name: &'static str,
    number: u8,
    throughput: Option<&'static str>,
    column: Option<(&'static str, &'static str)>,
) -> Known {
    Known { test, name, number, throughput, column }
}

impl Iozone {
    fn files(&self) -> Vec<String> {
        (0..self.processes.unwrap_or(1)).map(|process| format!("file-{process}")).collect()
    }

    /// The command line for these tests. Files are kept (-w), because later steps read the files of earlier ones.
    fn command(&self, numbers: impl IntoIterator<Item = u8>) -> String {
        let mut words: Vec<String> = vec!["iozone".to_owned(), "-w".to_owned()];
        let kibibytes = |size: Size| format!("{}k", size.bytes() / 1024);
        words.extend(["-s".to_owned(), kibibytes(self.file_size)]);
        words.extend(["-r".to_owned(), kibibytes(self.record_size)]);
        for number in numbers {
            words.extend(["-i".to_owned(), number.to_string()]);
        }
        // Except in throughput mode, pread and pwrite are extension tests.
        let flags = [
            (self.direct, "-I"),
            (self.flush, "-e"),
            (self.close, "-c"),
            (self.processes.is_none() && self.numbers().iter().any(|number| [9, 10].contains(number)), "-E"),
        ];
        words.extend(flags.into_iter().filter(|(wanted, _)| *wanted).map(|(_, flag)| flag.to_owned()));
        words.extend(self.arguments.iter().cloned());
        match self.processes {
            Some(processes) => words.extend(["-t".to_owned(), processes.to_string(), "-F".to_owned()]),
            None => words.push("-f".to_owned()),
        }
        words.extend(self.files());
        shell::line(words)
    }

    fn numbers(&self) -> Vec<u8> {
        let mut numbers: Vec<u8> = self.tests.iter().map(|test| test.known().number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }
}

impl Adapter for Iozone {
    fn tool(&self) -> &'static str {
        "iozone"
    }

    fn check(&self) -> Result<(), Unfit> {
        let mut tests = self.tests.clone();
        tests.sort_unstable();
        tests.dedup();
        demand(!tests.is_empty(), "tests", "must name at least one test")?;
        demand(tests.len() == self.tests.len(), "tests", "name a test more than once")?;
        for test in tests.iter().map(|test| test.known()) {
            let fits =
                if self.processes.is_some() { test.throughput.is_some() } else { test.column.is_some() };
            let mode = if self.processes.is_some() { "with processes" } else { "without processes" };
            demand(fits, "tests", &format!("name {}, for which IOzone gives no figure {mode}", test.name))?;
        }
        let whole = |size: Size| size.bytes().is_multiple_of(1024);
        demand(whole(self.file_size), "file_size", "must be a multiple of 1K")?;
        demand(whole(self.record_size), "record_size", "must be a multiple of 1K")?;
        demand(self.record_size <= self.file_size, "record_size", "is more than the file has")?;
        demand(
            self.file_size.bytes().is_multiple_of(self.record_size.bytes()),
            "file_size",
            "must be whole records",
        )?;
        demand(self.processes != Some(0), "processes", "must be at least 1")?;
        demand(self.processes.is_none_or(|count| count <= 256), "processes", "must be at most 256")
    }

    /// A limit that assumes a megabyte a second, from a disk that many guests share. Both tests of a pair are run.
    fn limit(&self) -> Duration {
        let passes = 2 * self.numbers().len() as u64 * u64::from(self.processes.unwrap_or(1));
        Duration::from_secs(600 + (self.file_size.bytes() >> 20).saturating_mul(passes))
    }

    fn typical(&self) -> Duration {
        // A page cache is faster, and a disk that many guests share is slower.
        let passes = 2 * self.numbers().len() as u64 * u64::from(self.processes.unwrap_or(1));
        Duration::from_secs(1 + (self.file_size.bytes() >> 20).saturating_mul(passes) / 200)
    }

    fn needs(&self) -> Vec<Program> {
        vec![Program { place: Place::Guest, name: "iozone", package: "iozone3" }]
    }

    fn metrics(&self) -> Vec<MetricDescription> {
        let described = |test: &IozoneTest| {
            let meaning = format!("Throughput of {}", test.name().replace('-', " "));
            MetricDescription::rate(&test.metric_name(), Unit::BytesPerSecond, meaning)
        };
        self.tests.iter().map(described).collect()
    }

    fn steps(&self, setting: &Setting<'_>) -> Steps {
        let folder = setting.enter_folder();
        let prepare = format!("{folder}{} && sync\n", self.command([0]));
        let forget = if self.drop_caches { "sync && echo 3 >/proc/sys/vm/drop_caches || exit\n" } else { "" };
        let run = format!("{folder}{forget}{}\n", self.command(self.numbers()));
        Steps {
            prepare: vec![setting.short_step(PREPARE, Place::Guest, prepare)],
            serve: Vec::new(),
            run: vec![setting.step(RUN, Place::Guest, run)],
        }
    }

    fn parse(&self, printed: &Printed<'_>) -> Result<Vec<Metric>, NotUnderstood> {
        output::parse(self, &printed.step(RUN)?)
    }

    fn work_unit(&self) -> Option<WorkUnit> {
        Some(WorkUnit::Mebibyte)
    }

    /// The bytes that the tests process, including the second tests of pairs, which always run.
    fn work(&self, _: &Printed<'_>) -> Result<f64, NotUnderstood> {
        let numbers = self.numbers();
        let is_run = |test: &&Known| {
            let in_this_mode =
                if self.processes.is_some() { test.throughput.is_some() } else { test.column.is_some() };
            in_this_mode && numbers.contains(&test.number)
        };
        let passes = IozoneTest::KNOWN.iter().filter(is_run).count() as f64;
        let files = f64::from(self.processes.unwrap_or(1));
        Ok(passes * files * self.file_size.bytes() as f64 / MEBIBYTE)
    }
}

#[cfg(test)]
#[path = "iozone_tests.rs"]
mod tests;
