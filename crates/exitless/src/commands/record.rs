//! `exitless record`: record every exit, or their sums, to a file.

mod exits;
mod profile;
mod xen;

use ::exits::counted;
use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use ::exits::{Isa, Losses};
use anyhow::Context as _;
use clap::Args;
use files::Replacement;
use serde::Serialize;
use traces::exitless::{Header, Writer, Written};

use super::watching::{HOST, WatchArguments, Watched};
use super::workload::Workload;
use super::xen::XenHost;
use super::{paths, quantity};
use crate::command_line::command_line;
use crate::console::{self, StatusLine};
use crate::{interrupt, status};

/// Arguments of `record`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    watch: WatchArguments,
    /// The output file [default: recording.exits, with --profile recording.profile]
    #[arg(short, long, value_name = "FILE", value_parser = paths::output())]
    output: Option<PathBuf>,
    /// Stop after this time: 10s, 5min; a number alone is in seconds.
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
    duration: Option<Duration>,
    command: Vec<OsString>,
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
    /// Starts the command and the time. Called when there is a place for the recording, so that a command of hours
    /// does not run in vain.
    fn start(&mut self) -> anyhow::Result<()> {
        self.workload = Workload::start(&self.command, &self.stop)?;
        self.began = Instant::now();
        self.end = self.duration.map(|duration| self.began + duration);
        Ok(())
    }

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

    /// Waits for the command until the recording would have ended: an error of recording does not end it.
    fn outlast(&mut self, why: &str) -> anyhow::Result<()> {
        /// The interval of looking.
        const STEP: Duration = Duration::from_millis(10);
        if self.workload.is_none() || self.status.is_some() || !self.wait(Duration::ZERO)? {
            return Ok(());
        }
        tracing::warn!("Recording has ended, the command goes on: {why}");
        while self.wait(STEP)? {}
        Ok(())
    }

    /// The exit status of a complete recording: the command's, or else whether the VMs still run.
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
    let prepare = |watched: Option<Watched>| -> Course {
        let line = arguments.command.is_empty().then(StatusLine::new);
        if let Some(line) = &line {
            let until = arguments.duration.map_or("until Ctrl-C".to_owned(), |ns| {
                format!("for {:.1} s", Duration::from_nanos(ns).as_secs_f64())
            });
            line.step(format!("Recording into {} {until}", output.display()));
        }
        Course {
            stop: std::sync::Arc::clone(&stop),
            duration: arguments.duration.map(Duration::from_nanos),
            command: arguments.command.clone(),
            began: Instant::now(),
            end: None,
            workload: None,
            status: None,
            watched,
            line,
        }
    };
    let (recorded, mut course): (anyhow::Result<Recorded>, Course) = if let Some(host) = xen {
        super::xen::refuse(!arguments.watch.wanted().is_empty(), "--vm of record")?;
        super::xen::refuse(arguments.no_accesses, "--no-accesses")?;
        let mut course = prepare(None);
        let record = if arguments.profile { xen::profile } else { xen::record };
        (record(host, output, &mut course), course)
    } else if arguments.profile {
        let watch = arguments.watch.watch(!arguments.no_accesses)?;
        let Some(collector) = arguments.watch.attach(&watch, &stop)? else { return Ok(ExitCode::SUCCESS) };
        let mut course = prepare(Some(Watched::of(&watch, &arguments.watch)));
        (profile::record(collector, output, &mut course), course)
    } else {
        let watch = arguments.watch.watch(!arguments.no_accesses)?;
        let Some(recorder) = arguments.watch.record(&watch, &stop)? else { return Ok(ExitCode::SUCCESS) };
        let mut course = prepare(Some(Watched::of(&watch, &arguments.watch)));
        (exits::record(recorder, output, &mut course), course)
    };
    course.line = None;
    let recorded = match recorded {
        Ok(recorded) => recorded,
        Err(error) => {
            let waited = course.outlast(&format!("{error:#}"));
            waited.inspect_err(|waiting| tracing::warn!("{waiting:#}"))?;
            return Err(error);
        }
    };
    let told = tell(&recorded, arguments.json);
    if !recorded.whole {
        course.outlast(&format!("{} is incomplete", output.display()))?;
    }
    told?;
    if !recorded.whole {
        return Ok(ExitCode::from(status::SOME_FAILED));
    }
    Ok(course.end())
}

fn tell(recorded: &Recorded, json: bool) -> anyhow::Result<()> {
    if let Some(said) = report::recordings::without_vcpu(&recorded.losses) {
        tracing::warn!("{said}");
    }
    if json {
        crate::output::write(|out| crate::json::write_pretty(out, recorded))?;
    } else {
        let Recorded { file, seconds, exits, not_written, bytes, losses, .. } = recorded;
        let lost = losses.lost_exits + not_written;
        console::say(format_args!(
            "Recorded {} in {seconds:.1} s into {} ({bytes} bytes); {} lost",
            counted(*exits, "exit"),
            file.display(),
            counted(lost, "exit")
        ));
    }
    Ok(())
}

/// Begins a recording of single exits in `output`, and starts `course`. `attach` gets the writer and begins to observe: if it
/// fails, neither the command is started nor an older recording replaced.
/// Returns the file's place, a second handle of the file, and the result of `attach`.
fn begin<T>(
    output: &Path,
    header: &Header,
    course: &mut Course,
    attach: impl FnOnce(Writer<File>) -> anyhow::Result<T>,
) -> anyhow::Result<(Replacement, File, T)> {
    let cannot = || format!("Could not write {}", output.display());
    let mut place = Replacement::begin(output, 0o666).with_context(cannot)?;
    let file = place.file().try_clone().with_context(cannot)?;
    let writer = Writer::new(file.try_clone().with_context(cannot)?, header).with_context(cannot)?;
    let attached = attach(writer)?;
    course.start()?;
    // Replace an older recording only now. From here on this recording exists, however the process ends.
    place.place().with_context(cannot)?;
    Ok((place, file, attached))
}

/// The facts of this host at the start of a recording.
fn header(isa: Isa) -> anyhow::Result<Header> {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok();
    let line = |path: &str| Some(std::fs::read_to_string(Path::new(HOST).join(path)).ok()?.trim().to_owned());
    Ok(Header {
        isa: Some(isa),
        host_name: line("proc/sys/kernel/hostname"),
        boot_id: line("proc/sys/kernel/random/boot_id"),
        host: Some(host::Fingerprint::read(Path::new(HOST)).context("Could not describe this host")?),
        command: Some(command_line().join(" ")),
        clock: Some("CLOCK_MONOTONIC".to_owned()),
        start_ns: Some(live::monotonic_ns()),
        started_unix_ns: since.and_then(|since| u64::try_from(since.as_nanos()).ok()),
        names: Default::default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn course(command: &[&str]) -> Course {
        Course {
            stop: Default::default(),
            duration: None,
            command: command.iter().map(OsString::from).collect(),
            began: Instant::now(),
            end: None,
            workload: None,
            status: None,
            watched: None,
            line: None,
        }
    }

    #[test]
    fn a_command_outlasts_a_recording_that_failed() {
        let folder = tempfile::tempdir().unwrap();
        let done = folder.path().join("done");
        let mut course = course(&["sh", "-c", &format!("sleep 0.3; touch {}; exit 7", done.display())]);
        course.start().unwrap();
        assert!(course.wait(Duration::ZERO).unwrap());
        course.outlast("the disk is full").unwrap();
        assert!(done.exists());
        assert_eq!(course.end(), ExitCode::from(7));
        // There is nothing left to wait for.
        course.outlast("the disk is full").unwrap();
    }

    #[test]
    fn a_command_does_not_outlast_the_duration() {
        let mut course = Course { duration: Some(Duration::from_millis(200)), ..course(&["sleep", "30"]) };
        course.start().unwrap();
        course.outlast("the disk is full").unwrap();
        assert!(course.began.elapsed() < Duration::from_secs(10));
        assert!(course.status.is_none());
    }

    #[test]
    fn without_a_place_for_the_recording_the_command_is_not_started() {
        let folder = tempfile::tempdir().unwrap();
        let (done, output) = (folder.path().join("done"), folder.path().join("none/x.exits"));
        let mut course = course(&["touch", &done.display().to_string()]);
        let error = begin(&output, &Header::default(), &mut course, Ok).unwrap_err();
        assert!(error.to_string().starts_with("Could not write"), "{error}");
        assert!(course.workload.is_none() && !done.exists());
    }

    #[test]
    fn a_command_that_does_not_exist_leaves_the_older_recording() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("x.exits");
        std::fs::write(&output, "older").unwrap();
        begin(&output, &Header::default(), &mut course(&["/no/such/program"]), Ok).unwrap_err();
        assert_eq!(std::fs::read(&output).unwrap(), b"older");
    }

    #[test]
    fn a_recorder_that_cannot_start_leaves_the_older_recording_and_starts_no_command() {
        let folder = tempfile::tempdir().unwrap();
        let (done, output) = (folder.path().join("done"), folder.path().join("x.exits"));
        std::fs::write(&output, "older").unwrap();
        let mut course = course(&["touch", &done.display().to_string()]);
        let attach = |_| -> anyhow::Result<()> { anyhow::bail!("there is no xentrace") };
        let error = begin(&output, &Header::default(), &mut course, attach).unwrap_err();
        assert_eq!(error.to_string(), "there is no xentrace");
        assert!(course.workload.is_none() && !done.exists());
        assert_eq!(std::fs::read(&output).unwrap(), b"older");
    }
}
