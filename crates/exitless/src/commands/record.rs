//! `exitless record`: record every exit, or their sums, to a file.

mod exits;
mod profile;
mod xen;

use ::exits::counted;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use ::exits::{Isa, Losses};
use anyhow::Context as _;
use clap::Args;
use serde::Serialize;
use traces::exitless::{Header, Written};

use super::quantity;
use super::watching::{HOST, WatchArguments, Watched};
use super::workload::Workload;
use super::xen::XenHost;
use crate::console::StatusLine;
use crate::{interrupt, status};

/// Arguments of `record`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    watch: WatchArguments,
    /// The output file [default: recording.exits, with --profile recording.profile]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Stop after this time: 10s, 5min.
    #[arg(long, value_name = "TIME", value_parser = quantity::wait)]
    duration: Option<u64>,
    /// Record only totals and histograms, kept in the kernel: for hours, in a file that does not grow with the
    /// exits.
    #[arg(long)]
    profile: bool,
    /// Leave out ports, addresses and registers, which need more events.
    #[arg(long)]
    no_accesses: bool,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    /// Record while this command runs.
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// The outcome of a recording.
#[derive(Debug, Serialize)]
struct Recorded {
    file: PathBuf,
    /// The file has all observed exits.
    whole: bool,
    seconds: f64,
    exits: u64,
    /// Observed exits that could not be written.
    not_written: u64,
    bytes: u64,
    losses: Losses,
}

impl Recorded {
    fn new(output: &Path, whole: bool, seconds: f64, written: Written, losses: Losses) -> Self {
        Self {
            file: output.to_owned(),
            whole,
            seconds,
            exits: written.exits,
            not_written: written.not_written,
            bytes: written.bytes,
            losses,
        }
    }
}

/// The running recording, and the conditions that end it.
struct Course {
    stop: std::sync::Arc<AtomicBool>,
    began: Instant,
    end: Option<Instant>,
    workload: Option<Workload>,
    status: Option<ExitCode>,
    /// The recording ends when all of these have ended.
    watched: Option<Watched>,
    /// The status line; `None` if a command runs, because the terminal is the command's.
    line: Option<StatusLine>,
}

impl Course {
    /// Waits for at most `step`. Returns false when the recording is over.
    fn wait(&mut self, step: Duration) -> anyhow::Result<bool> {
        if let Some(workload) = &mut self.workload {
            if let Some(status) = workload.ended(&self.stop)? {
                self.status = Some(status);
                return Ok(false);
            }
        } else if self.stop.load(Ordering::Relaxed) || self.watched.as_ref().is_some_and(Watched::have_ended)
        {
            return Ok(false);
        }
        let left = self.end.map(|end| end.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            return Ok(false);
        }
        std::thread::sleep(left.map_or(step, |left| left.min(step)));
        Ok(true)
    }

    /// The status of a recording that is whole: its command's, or whether the VMs are still there.
    fn end(&self) -> ExitCode {
        let watched = self.watched.as_ref().map_or(0, Watched::status);
        self.status.unwrap_or(ExitCode::from(watched))
    }
}

/// Runs the subcommand.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let xen = XenHost::find(&arguments.watch);
    let default = if arguments.profile { "recording.profile" } else { "recording.exits" };
    let output = arguments.output.as_deref().unwrap_or(Path::new(default));
    let stop = interrupt::flag()?;
    let begin = |watched: Option<Watched>| -> anyhow::Result<Course> {
        let line = arguments.command.is_empty().then(StatusLine::new);
        if let Some(line) = &line {
            let until = arguments.duration.map_or("until Ctrl-C".to_owned(), |ns| {
                format!("for {:.1} s", Duration::from_nanos(ns).as_secs_f64())
            });
            line.step(format!("Recording into {} {until}", output.display()));
        }
        let began = Instant::now();
        Ok(Course {
            stop: std::sync::Arc::clone(&stop),
            began,
            end: arguments.duration.map(|ns| began + Duration::from_nanos(ns)),
            workload: Workload::start(&arguments.command)?,
            status: None,
            watched,
            line,
        })
    };
    let (recorded, mut course) = if let Some(host) = xen {
        super::xen::refuse(!arguments.watch.wanted().is_empty(), "--vm of record")?;
        super::xen::refuse(arguments.no_accesses, "--no-accesses")?;
        let mut course = begin(None)?;
        let record = if arguments.profile { xen::profile } else { xen::record };
        (record(host, output, &mut course)?, course)
    } else if arguments.profile {
        let watch = arguments.watch.watch(!arguments.no_accesses)?;
        let Some(collector) = arguments.watch.attach(&watch, &stop)? else { return Ok(ExitCode::SUCCESS) };
        let mut course = begin(Some(Watched::of(&watch, &arguments.watch)))?;
        (profile::record(collector, output, &mut course)?, course)
    } else {
        let watch = arguments.watch.watch(!arguments.no_accesses)?;
        let Some(recorder) = arguments.watch.record(&watch, &stop)? else { return Ok(ExitCode::SUCCESS) };
        let mut course = begin(Some(Watched::of(&watch, &arguments.watch)))?;
        (exits::record(recorder, output, &mut course)?, course)
    };
    course.line = None;
    tell(&recorded, arguments.json)?;
    if !recorded.whole {
        return Ok(ExitCode::from(status::SOME_FAILED));
    }
    Ok(course.end())
}

fn tell(recorded: &Recorded, json: bool) -> anyhow::Result<()> {
    if json {
        println!("{}", serde_json::to_string_pretty(recorded)?);
    } else {
        let Recorded { file, seconds, exits, not_written, bytes, losses, .. } = recorded;
        let lost = losses.lost_exits + not_written;
        eprintln!(
            "Recorded {} in {seconds:.1} s into {} ({bytes} bytes); {} lost",
            counted(*exits, "exit"),
            file.display(),
            counted(lost, "exit")
        );
    }
    Ok(())
}

/// The facts of this host at the start of a recording.
fn header(isa: Isa) -> anyhow::Result<Header> {
    let command: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok();
    Ok(Header {
        isa: Some(isa),
        host_name: std::fs::read_to_string(Path::new(HOST).join("proc/sys/kernel/hostname"))
            .ok()
            .map(|name| name.trim().to_owned()),
        host: Some(host::Fingerprint::read(Path::new(HOST)).context("Could not describe this host")?),
        command: Some(command.join(" ")),
        clock: Some("CLOCK_MONOTONIC".to_owned()),
        start_ns: Some(live::monotonic_ns()),
        started_unix_ns: since.and_then(|since| u64::try_from(since.as_nanos()).ok()),
        names: Default::default(),
    })
}
