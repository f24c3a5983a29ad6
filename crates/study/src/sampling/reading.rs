//! One reading of the host.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use live::monotonic_ns;

use super::frequency::FrequencyFiles;
use super::guest_threads::{GuestThreads, ThreadReading};
use super::interrupt::{self, Interrupts};
use super::processor::{Processors, STATES};
use super::table::Table;
use super::thread::Work;
use super::{SamplePlan, SampledGuest};

/// The beginning of the warning about missing frequencies.
pub(crate) const NO_FREQUENCIES: &str = "Frequencies were not sampled";

/// The available sources of a reading.
pub(super) struct Sources {
    root: PathBuf,
    processors: bool,
    per_core: bool,
    interrupts: bool,
    threads: Option<GuestThreads>,
    frequency: Option<FrequencyFiles>,
}

/// One reading.
pub(super) struct Reading {
    /// `CLOCK_MONOTONIC`.
    pub(super) time_ns: u64,
    pub(super) processors: Option<Processors>,
    pub(super) interrupts: Option<Interrupts>,
    pub(super) threads: ThreadReading,
    pub(super) frequency: BTreeMap<u32, u64>,
}

impl Sources {
    /// Finds the sources that the plan asks for on the host below `root`; also returns warnings about missing ones.
    pub(super) fn find(plan: &SamplePlan, root: &Path, guests: &[SampledGuest]) -> (Self, Vec<String>) {
        let mut warnings = Vec::new();
        let threads = plan.threads.then(|| {
            let (threads, missing) = GuestThreads::find(root, guests);
            warnings.extend(missing);
            threads
        });
        let frequency =
            plan.frequency.then(|| FrequencyFiles::find(root)).transpose().unwrap_or_else(|why| {
                warnings.push(format!("{NO_FREQUENCIES}: {why}"));
                None
            });
        let mut sources = Self {
            root: root.to_owned(),
            processors: plan.cpu,
            per_core: plan.per_core,
            interrupts: plan.interrupts,
            threads,
            frequency,
        };
        if let Err(why) = sources.processors().transpose() {
            warnings.push(format!("CPU time was not sampled: {why}"));
            sources.processors = false;
        }
        if sources.interrupts && sources.interrupts().is_none() {
            let path = root.join("proc/interrupts");
            warnings.push(format!("Interrupts were not sampled: {} has no line of CPUs", path.display()));
            sources.interrupts = false;
        }
        (sources, warnings)
    }

    fn processors(&self) -> Option<Result<Processors, String>> {
        let path = self.root.join("proc/stat");
        let read = || {
            let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            Processors::parse(&text, "/proc/stat").map_err(|error| error.to_string())
        };
        self.processors.then(read)
    }

    fn interrupts(&self) -> Option<Interrupts> {
        let text = self.interrupts.then(|| fs::read_to_string(self.root.join("proc/interrupts")).ok());
        interrupt::parse(&text.flatten()?)
    }

    /// Reads all sources.
    pub(super) fn read(&self) -> Reading {
        Reading {
            time_ns: monotonic_ns(),
            processors: self.processors().and_then(Result::ok),
            interrupts: self.interrupts(),
            threads: self.threads.as_ref().map(GuestThreads::read).unwrap_or_default(),
            frequency: self.frequency.as_ref().map(FrequencyFiles::read).unwrap_or_default(),
        }
    }

    /// Writes a reading to the table.
    pub(super) fn store(&self, reading: &Reading, table: &mut Table) {
        let time = reading.time_ns;
        if let Some(processors) = &reading.processors {
            let each = processors.each.iter().filter(|_| self.per_core);
            let each = each.map(|(number, ticks)| (format!("cpu{number}"), ticks));
            for (subject, ticks) in each.chain([("all".to_owned(), &processors.all)]) {
                STATES
                    .iter()
                    .zip(ticks)
                    .for_each(|(state, &ticks)| table.add(time, "cpu", &subject, state, ticks));
            }
        }
        if let Some(interrupts) = &reading.interrupts {
            let mut cores: BTreeMap<u32, u64> = BTreeMap::new();
            for (label, source) in interrupts {
                table.add(time, "interrupts", label, "count", source.each.values().sum());
                source.each.iter().for_each(|(&cpu, count)| *cores.entry(cpu).or_default() += count);
            }
            for (cpu, count) in cores.into_iter().filter(|_| self.per_core) {
                table.add(time, "interrupts", &format!("cpu{cpu}"), "count", count);
            }
        }
        for ((guest, tid), (work, times)) in &reading.threads {
            let Some(threads) = &self.threads else { break };
            let number = match work {
                Work::Vcpu(number) => number.to_string(),
                _ => String::new(),
            };
            let subject = format!("{}/{}{number}/{tid}", threads.name(*guest), work.name());
            for (name, value) in [
                ("run-ns", times.run_ns),
                ("wait-ns", times.wait_ns),
                ("user", times.user),
                ("system", times.system),
                ("guest", times.guest),
            ] {
                table.add(time, "thread", &subject, name, value);
            }
        }
        for (cpu, khz) in &reading.frequency {
            table.add(time, "frequency", &format!("cpu{cpu}"), "khz", *khz);
        }
    }
}
