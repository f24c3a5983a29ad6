//! The thread that reads the host at intervals, and its results.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use exits::{Isa, Profile};
use traces::exitless::{Header, Packing, write_profile};

use super::exit::ExitSource;
use super::figures::{Cost, Figures};
use super::reading::{Reading, Sources};
use super::table::Table;
use super::{PROFILE, SamplePlan, SampledGuest, Samples};
use crate::Metric;

/// Samples the host until [`Self::finish`]. If it is dropped before, it stops and discards its samples.
#[derive(Debug)]
pub struct Sampler {
    /// Dropping it ends the thread.
    stop: Sender<()>,
    thread: JoinHandle<HostSamples>,
}

/// The samples of the host over a run.
///
/// [`Samples::write`] writes the raw samples to `host.parquet`, and the profile of VM exits, if they could be counted
/// by reason, to `exits.json`.
#[derive(Debug, Default)]
pub struct HostSamples {
    metrics: Vec<Metric>,
    seconds: f64,
    exits_seconds: Option<f64>,
    warnings: Vec<String>,
    table: Vec<u8>,
    profile: Option<(Isa, Profile)>,
}

impl Sampler {
    /// Starts the sampler. Returns once all sources are set up and were read once, so no later event is missed.
    /// Warnings name the sources that cannot be sampled.
    ///
    /// # Errors
    /// If the thread cannot be created.
    pub fn start(plan: &SamplePlan, root: &Path, guests: &[SampledGuest]) -> io::Result<Self> {
        let (stop, stopped) = channel();
        let (ready, begun) = channel();
        let (plan, root, guests) = (plan.clone(), root.to_owned(), guests.to_vec());
        let thread = std::thread::Builder::new().name("sampler".to_owned());
        let thread = thread.spawn(move || sample(&plan, root, &guests, &ready, &stopped))?;
        // If the thread has already ended, its result contains the reason.
        let _ = begun.recv();
        Ok(Self { stop, thread })
    }

    /// Takes the last reading, and stops.
    #[must_use]
    pub fn finish(self) -> HostSamples {
        drop(self.stop);
        self.thread.join().unwrap_or_else(|_| HostSamples {
            warnings: vec!["The host was not sampled: a bug in this program ended the sampler".to_owned()],
            ..HostSamples::default()
        })
    }
}

impl HostSamples {
    /// Exits of the run by reason; `None` if they could not be counted by reason.
    #[must_use]
    pub fn profile(&self) -> Option<&Profile> {
        self.profile.as_ref().map(|(_, profile)| profile)
    }
}

impl Samples for HostSamples {
    fn metrics(&self) -> Vec<Metric> {
        self.metrics.clone()
    }

    fn seconds(&self) -> f64 {
        self.seconds
    }

    fn exits_seconds(&self) -> Option<f64> {
        self.exits_seconds
    }

    fn warnings(&self) -> Vec<String> {
        self.warnings.clone()
    }

    fn write(&self, folder: &Path) -> io::Result<()> {
        if !self.table.is_empty() {
            std::fs::write(folder.join("host.parquet"), &self.table)?;
        }
        if let Some((isa, profile)) = &self.profile {
            let header = Header {
                isa: Some(*isa),
                command: Some("exitless experiment run".to_owned()),
                clock: Some("CLOCK_MONOTONIC".to_owned()),
                start_ns: profile.span.map(|span| span.first_ns),
                names: profile.names.clone(),
                ..Header::default()
            };
            let file = File::create(folder.join(PROFILE))?;
            write_profile(file, &header, profile, Packing::None).map_err(io::Error::other)?;
        }
        Ok(())
    }
}

fn sample(
    plan: &SamplePlan,
    root: PathBuf,
    guests: &[SampledGuest],
    ready: &Sender<()>,
    stopped: &Receiver<()>,
) -> HostSamples {
    let (sources, mut warnings) = Sources::find(plan, &root, guests);
    let mut table = match Table::new() {
        Ok(table) => table,
        Err(error) => {
            return HostSamples {
                warnings: vec![format!("The host was not sampled: {error}")],
                ..HostSamples::default()
            };
        }
    };
    let mut exits = plan.exits.is_on().then(|| ExitSource::start(&root, guests, plan.accesses));
    let mut figures = Figures::default();
    let mut doubts = BTreeSet::new();
    let spent = |exits: &Option<ExitSource>| {
        own_time() + exits.as_ref().map(ExitSource::cpu_time).unwrap_or_default()
    };
    let spent_before = spent(&exits);
    let first = sources.read();
    sources.store(&first, &mut table);
    let began_ns = first.time_ns;
    let mut last = first;
    let _ = ready.send(());
    let interval = plan.interval.duration();
    let mut next = Instant::now();
    let mut over = false;
    while !over {
        next = (next + interval).max(Instant::now());
        let left = next.saturating_duration_since(Instant::now());
        over = !matches!(stopped.recv_timeout(left), Err(RecvTimeoutError::Timeout));
        let reading = sources.read();
        if let Some(exits) = &mut exits {
            doubts.extend(exits.read(reading.time_ns, &mut table).err());
        }
        sources.store(&reading, &mut table);
        figures.add(&last, &reading);
        last = reading;
    }
    let spent = spent(&exits).saturating_sub(spent_before);
    let elapsed_ns = elapsed(began_ns, &last);
    let seen = exits.map(|exits| exits.finish(elapsed_ns)).unwrap_or_default();
    warnings.extend(doubts.into_iter().map(|why| format!("Exits of some intervals are missing: {why}")));
    warnings.extend(seen.warnings);
    warnings.extend(figures.warnings());
    let cost = Cost { threads: spent, programs: seen.cost_ns.map(Duration::from_nanos) };
    let mut metrics = figures.metrics(elapsed_ns, cost);
    metrics.extend(seen.metrics);
    let table = table.finish().unwrap_or_else(|error| {
        warnings.push(format!("The raw samples are missing: {error}"));
        Vec::new()
    });
    let seconds = Duration::from_nanos(elapsed_ns).as_secs_f64();
    HostSamples { metrics, seconds, exits_seconds: seen.seconds, warnings, table, profile: seen.profile }
}

fn elapsed(began_ns: u64, last: &Reading) -> u64 {
    last.time_ns.saturating_sub(began_ns)
}

/// CPU time of this thread.
fn own_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

#[cfg(test)]
#[path = "sampler_tests.rs"]
pub(crate) mod tests;
