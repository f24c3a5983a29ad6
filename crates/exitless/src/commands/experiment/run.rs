//! `exitless experiment run`: a study, here or on another machine.

use exits::counted;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use clap::Args;
use guests::GuestFiles;
use host::Fingerprint;
use serde::Serialize;
use study::engine::{Conclusion, FailedForGood, Here, Kept, Past, ToldReasons, by_reason, carry_out};
use study::plan::Plan;
use study::schedule::Enough;
use study::store::Store;
use study::target::{Event, Patience, Settings, Ssh, Target, coordinate};

use super::given::Given;
use super::{SERVE, lab_target, suite, words};
use crate::console::StatusLine;
use crate::status::Usage;
use crate::{interrupt, status};

/// Arguments of `experiment run`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The file or the name of a shipped plan, or of a suite of studies, which has targets of its own.
    #[arg(value_name = "PLAN")]
    plan: String,
    /// The result's folder; the study in it is continued if it is the same [default: study-NAME].
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// The target: local, `ssh://[user@]host[:port]`, or lab:NAME. After lab:NAME, +cpus=N, +memory=MIB,
    /// +switch-cycles=N, +device=DEVICE and +kernel=VERSION set its machine as `lab run` does; any other +ARGUMENT goes to its
    /// Xen or, without Xen, to its kernel.
    /// Default: local.
    #[arg(long, value_name = "TARGET")]
    target: Option<Target>,
    /// Make only this study of a suite; may be repeated.
    #[arg(long, value_name = "STUDY")]
    only: Vec<String>,
    /// Continue although the host is not the one on which the study was started; the result says so.
    #[arg(long)]
    allow_unlike: bool,
    /// A configuration file for ssh to use instead of the user's.
    #[arg(long, value_name = "FILE")]
    ssh_config: Option<PathBuf>,
    /// Print the summary as JSON.
    #[arg(long)]
    json: bool,
}

/// The result, for other programs.
#[derive(Debug, Serialize)]
struct Summary {
    folder: PathBuf,
    target: String,
    /// No run is missing.
    complete: bool,
    /// The reason why no further block was begun.
    enough: Option<Enough>,
    interrupted: bool,
    runs: usize,
    failed_attempts: usize,
    failed_for_good: Vec<FailedForGood>,
    not_undone: Vec<String>,
    damaged: Vec<String>,
}

/// Runs the subcommand.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let given = Given::find(&arguments.plan)?;
    if let Some(suite) = given.suite()? {
        if arguments.target.is_some() || arguments.ssh_config.is_some() {
            let what =
                "is a suite, whose studies have targets of their own; leave out --target and --ssh-config";
            return Err(Usage(format!("{} {what}", arguments.plan)).into());
        }
        let options = suite::Options {
            output: arguments.output.as_deref(),
            only: &arguments.only,
            allow_unlike: arguments.allow_unlike,
            json: arguments.json,
        };
        return suite::run(&suite, &given.text, &options);
    }
    if !arguments.only.is_empty() {
        return Err(Usage(format!("{} is a plan; --only is for suites", arguments.plan)).into());
    }
    let chosen = arguments.target.clone().unwrap_or(Target::Local);
    let plan = given.plan()?;
    let folder = arguments.output.clone().unwrap_or_else(|| PathBuf::from(format!("study-{}", plan.name)));
    let target = chosen.to_string();
    let mut store = Store::open(&folder, &plan, &given.text, &target, chance())?;
    for warning in store.warnings() {
        eprintln!("exitless: {warning}");
    }
    if store.began() {
        eprintln!("Resuming {}: it has {}", folder.display(), counted(store.runs().len() as u64, "run"));
    }
    let stop = interrupt::flag()?;
    let ssh_config = arguments.ssh_config.as_deref();
    let conclusion = make_runs(&mut store, &chosen, ssh_config, arguments.allow_unlike, &stop);
    let interrupted = stop.load(Ordering::Relaxed);
    // The completed runs are reported even if the study stopped early.
    let conclusion = match conclusion {
        Ok(conclusion) => conclusion,
        Err(error) => {
            let runs = counted(store.runs().len() as u64, "run");
            eprintln!("{} has {runs}; the same command resumes it", folder.display());
            return Err(error);
        }
    };
    let summary = summary(&store, &folder, target, conclusion, interrupted);
    print(&summary, arguments.json)?;
    Ok(ExitCode::from(match () {
        () if summary.complete && summary.not_undone.is_empty() => 0,
        () if interrupted => status::INTERRUPTED,
        () => status::SOME_FAILED,
    }))
}

/// Makes the missing runs on the target.
pub(in crate::commands) fn make_runs(
    store: &mut Store,
    target: &Target,
    ssh_config: Option<&Path>,
    allow_unlike: bool,
    stop: &Arc<AtomicBool>,
) -> anyhow::Result<Conclusion> {
    match target {
        Target::Local => here(store, allow_unlike, stop),
        target => elsewhere(store, target, ssh_config, allow_unlike, stop),
    }
}

fn here(store: &mut Store, allow_unlike: bool, stop: &AtomicBool) -> anyhow::Result<Conclusion> {
    let fingerprint = Fingerprint::read(Path::new("/")).context("Could not read this host")?;
    store.begin(&fingerprint, None, allow_unlike)?;
    let place = tempfile::Builder::new().prefix("exitless-study-").tempdir_in(place());
    let place = place.context("Could not create a folder for the guests")?;
    let mut rig = Here::new(place.path(), Box::new(|folder| files(folder, stop)));
    let line = StatusLine::new();
    let plan: Plan = store.plan().clone();
    let (seed, past) = (store.seed(), Past::new(store.runs(), store.failed()));
    let mut show = words::runs(&line);
    let mut sink = Kept { store, on_progress: &mut show };
    Ok(carry_out(&plan, seed, past, &mut rig, &mut sink, stop)?)
}

fn elsewhere(
    store: &mut Store,
    target: &Target,
    ssh_config: Option<&Path>,
    allow_unlike: bool,
    stop: &Arc<AtomicBool>,
) -> anyhow::Result<Conclusion> {
    let id = format!("{:x}", chance());
    let patience = Patience::of(store.plan());
    let line = StatusLine::new();
    let mut show = words::runs(&line);
    let mut told = ToldReasons::default();
    let mut on_event = |event: Event<'_>| match event {
        Event::Progress(progress) => show(progress),
        Event::Kept(run) => {
            let name = || run.cell.folder_name(run.position);
            if let Some(text) = run.failure.as_ref().and_then(|why| told.line(&name(), why)) {
                tracing::warn!("{text}");
            }
        }
        Event::Warning(text) => tracing::warn!("{text}"),
    };
    match target {
        Target::Ssh { destination, port } => {
            let serve = SERVE.map(str::to_owned).to_vec();
            line.step(format!("Asking {destination} for the runs"));
            let mut ssh = Ssh::new(destination, *port, ssh_config.map(Path::to_owned), serve);
            let settings = Settings { study: &id, emulated: None, allow_unlike, patience };
            Ok(coordinate(store, &mut ssh, settings, stop, &mut on_event)?)
        }
        Target::Lab { name, arguments } => {
            let (mut remote, emulated) = lab_target::make_ready(name, arguments, store.plan(), stop)?;
            // With a seed, what the host is sent is the same in each run of the study.
            let id = store.plan().order.seed.map_or(id, |seed| format!("{seed:x}"));
            let settings = Settings { study: &id, emulated: Some(&emulated), allow_unlike, patience };
            line.step(format!("Starting the emulated host {name}"));
            Ok(coordinate(store, &mut remote, settings, stop, &mut on_event)?)
        }
        Target::Local => Err(Usage("local is not another machine".to_owned()).into()),
    }
}

/// The folder for files of guests and scripts: disks of guests are large, and /tmp may be in memory.
pub(super) fn place() -> PathBuf {
    let large = PathBuf::from("/var/tmp");
    std::env::var_os("TMPDIR").map(PathBuf::from).unwrap_or(if large.is_dir() {
        large
    } else {
        std::env::temp_dir()
    })
}

/// The files of the guest image, built first if necessary.
pub(super) fn files(folder: &Path, stop: &AtomicBool) -> Result<GuestFiles, String> {
    let mut progress = crate::console::BuildProgress::new();
    let image = super::super::guest::image(&mut progress, stop);
    drop(progress);
    image.and_then(|image| super::super::guest::files(&image, folder)).map_err(|error| format!("{error:#}"))
}

/// A seed for a plan without one; below 2^53, so that every JSON reader keeps it exact.
pub(in crate::commands) fn chance() -> u64 {
    use std::hash::{BuildHasher as _, Hasher as _};
    // The standard library seeds its hashers with the system's random numbers.
    std::collections::hash_map::RandomState::new().build_hasher().finish() >> 11
}

fn summary(
    store: &Store,
    folder: &Path,
    target: String,
    conclusion: Conclusion,
    interrupted: bool,
) -> Summary {
    Summary {
        folder: folder.to_owned(),
        target,
        complete: conclusion.enough.is_some() && conclusion.failed.is_empty(),
        enough: conclusion.enough,
        interrupted: interrupted && conclusion.enough.is_none(),
        runs: store.runs().len(),
        failed_attempts: store.failed().len(),
        failed_for_good: conclusion.failed,
        not_undone: conclusion.not_undone,
        damaged: store.warnings().to_vec(),
    }
}

fn print(summary: &Summary, json: bool) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    if json {
        serde_json::to_writer_pretty(&mut out, summary)?;
        writeln!(out)?;
        return Ok(());
    }
    let folder = summary.folder.display();
    let [runs, failed] = [(summary.runs, "run"), (summary.failed_attempts, "failed attempt")]
        .map(|(number, one)| counted(number as u64, one));
    writeln!(out, "{runs} in {folder}; {failed}")?;
    for reason in by_reason(&summary.failed_for_good) {
        writeln!(out, "{}: {}", words::failed(&reason), reason.why)?;
    }
    for what in &summary.not_undone {
        writeln!(out, "Not undone: {what}; run `exitless restore`")?;
    }
    if summary.interrupted {
        writeln!(out, "Interrupted; the same command resumes it")?;
    }
    Ok(())
}
