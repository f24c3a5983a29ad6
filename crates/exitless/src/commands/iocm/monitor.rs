//! `exitless iocm monitor`: I/O cores that follow the load.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail};
use clap::Args;
use files::Replacement;
use host::CpuSet;
use iocm::config::SOCKET;
use iocm_monitor::actuator::{Actuator, Pinning, Vhost, Workers};
use iocm_monitor::{Monitor, NoState, Recorder, STATE, State};
use knobs::{Outcome, Restore, RunningHost, restore};

use super::Printer;
use super::exits::Exits;
use super::settings::SettingsArguments;
use crate::command_line::command_line;
use crate::commands::{paths, quantity};
use crate::service_manager::ServiceManager;
use crate::{console, interrupt};

/// The root of this host.
const HOST: &str = "/";
/// The interval of writing the state while nothing is decided.
const TOLD_EVERY: Duration = Duration::from_secs(1);

/// Arguments of `iocm monitor`.
#[derive(Debug, Args)]
pub(crate) struct MonitorArguments {
    /// The control socket of the daemon whose I/O workers follow the load.
    #[arg(long, value_name = "PATH", default_value = SOCKET)]
    socket: PathBuf,
    /// Place the threads of the kernel's vhost and QEMU's iothreads on this host instead, without an I/O
    /// daemon: a dry run unless --apply is given.
    #[arg(long)]
    vhost: bool,
    /// With --vhost: move the threads and interrupts of this host, and restore them at the end.
    #[arg(long, requires = "vhost", conflicts_with = "dry_run")]
    apply: bool,
    /// With --apply: place threads that have their own control group, as libvirt creates them, by its cpuset
    /// instead of by affinity.
    #[arg(long, requires = "apply")]
    cpusets: bool,
    /// Print the decisions, and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// CPUs that I/O may use exclusively, such as 2-7; by default all but isolated ones, those that the daemon's
    /// affinity leaves out, and with --vhost those to which others have bound VMs.
    #[arg(long, value_name = "LIST", value_parser = cpus)]
    cores: Option<CpuSet>,
    /// The time between two decisions: 100ms, 1s; a number alone is in seconds.
    #[arg(long, value_name = "TIME", value_parser = quantity::wait, default_value = "100ms")]
    every: u64,
    #[command(flatten)]
    settings: SettingsArguments,
    /// Record the observations as a trace for `iocm simulate`, with a phase for each second.
    #[arg(long, value_name = "FILE", value_parser = paths::output())]
    record: Option<PathBuf>,
    /// Stop after this time: 30s, 5min; a number alone is in seconds.
    #[arg(long = "for", visible_alias = "duration", value_name = "TIME", value_parser = quantity::wait)]
    duration: Option<u64>,
    /// The state file for `iocm status` and `top`.
    #[arg(long, value_name = "FILE", default_value = STATE)]
    state: PathBuf,
    /// Do not count VM exits, which are shown for each VM if the kernel permits counting them.
    #[arg(long)]
    no_exits: bool,
    /// Print each decision as a line of JSON.
    #[arg(long)]
    json: bool,
}

fn cpus(list: &str) -> Result<CpuSet, String> {
    let set = CpuSet::parse(list).filter(|set| !set.is_empty());
    set.ok_or_else(|| "expected a list of CPUs such as 2-7,10".to_owned())
}

/// Runs the monitor until a signal.
pub(super) fn run(arguments: &MonitorArguments) -> anyhow::Result<ExitCode> {
    let root = Path::new(HOST);
    if arguments.vhost {
        let pinning = match arguments.apply {
            true => Some(Pinning::begin(root, RunningHost, command_line())?),
            false => {
                say_left(root);
                None
            }
        };
        for line in pinning.iter().flat_map(Pinning::recovered) {
            console::say(line);
        }
        let pinning = pinning.map(|pinning| if arguments.cpusets { pinning.by_groups() } else { pinning });
        let target = "the kernel's vhost and QEMU's iothreads".to_owned();
        let actuator = Vhost::new(root, arguments.cores.clone(), pinning);
        return Session::begin(arguments, actuator, target, !arguments.apply)?.run();
    }
    let target = format!("the I/O workers at {}", arguments.socket.display());
    let actuator = Workers::new(root, &arguments.socket, arguments.cores.clone());
    Session::begin(arguments, actuator, target, arguments.dry_run)?.run()
}

/// Says whether a killed monitor has left threads that now seem to be pinned by others.
fn say_left(root: &Path) {
    let placement = Restore { dry_run: true, only_placement: true, ..Restore::default() };
    // Not every user may read the journal.
    let Ok(found) = restore(root, &mut RunningHost, placement) else { return };
    if found.changes.iter().any(|one| one.outcome == Outcome::WouldUndo) {
        console::say(format_args!(
            "VMs may seem to be pinned by others, because another exitless was killed before it restored their CPUs; run \
             `exitless restore`"
        ));
    }
}

struct Session<'a, A: Actuator> {
    arguments: &'a MonitorArguments,
    monitor: Monitor<A>,
    exits: Exits,
    state: State,
    recorder: Option<Recorder<File>>,
    told: Option<Instant>,
    may_tell: bool,
    manager: ServiceManager,
    printer: Printer,
}

impl<'a, A: Actuator> Session<'a, A> {
    fn begin(
        arguments: &'a MonitorArguments,
        actuator: A,
        target: String,
        dry_run: bool,
    ) -> anyhow::Result<Self> {
        let settings = arguments.settings.read()?;
        // Two monitors would undo each other's decisions.
        match State::read(&arguments.state) {
            Ok(other) if other.is_alive(Path::new(HOST)) => bail!(
                "A monitor runs already (process {}, of {}), by its state {}: end it first, or use another --state if this \
                 one is for other workers",
                other.pid,
                other.target,
                arguments.state.display()
            ),
            Err(error @ NoState::Format { .. }) => bail!(
                "{error}. A monitor of another version may run: end it and remove the file, or use another --state"
            ),
            _ => {}
        }
        let record = |path: &PathBuf| {
            let begin = || {
                let mut new = Replacement::begin(path, 0o666)?;
                // Rename first: the trace is then visible while it grows, and remains after a kill.
                new.place()?;
                new.file().try_clone()
            };
            let file = begin().with_context(|| format!("Could not write the trace {}", path.display()))?;
            anyhow::Ok(Recorder::new(file, 1.0))
        };
        let recorder = arguments.record.as_ref().map(record).transpose()?;
        let state = State::new(Path::new(HOST), target, dry_run, arguments.every as f64 / 1e9);
        let how = if dry_run { " (dry run: nothing is changed)" } else { "" };
        console::say(format_args!("Watching {}{how}", state.target));
        let monitor = Monitor::new(actuator, settings, dry_run);
        let exits = Exits::new(!arguments.no_exits);
        let manager = ServiceManager::connect();
        let printer = Printer::start()?;
        Ok(Self { arguments, monitor, exits, state, recorder, told: None, may_tell: true, manager, printer })
    }

    fn run(mut self) -> anyhow::Result<ExitCode> {
        let stop = interrupt::flag()?;
        let outcome = self.until(&stop);
        self.manager.stopping();
        // Restore the host before reporting anything.
        for left in self.monitor.end() {
            tracing::warn!("{left}");
        }
        let own = State::read(&self.arguments.state).is_ok_and(|state| state.pid == self.state.pid);
        if own {
            // The file may already be gone.
            let _ = State::remove(&self.arguments.state);
        }
        let printed = self.printer.end();
        let recorded = self.recorder.as_mut().map_or(Ok(()), Recorder::end);
        let status = outcome?;
        printed?;
        recorded.context("Could not write the trace")?;
        Ok(status)
    }

    fn until(&mut self, stop: &AtomicBool) -> anyhow::Result<ExitCode> {
        let begun = Instant::now();
        let interval = Duration::from_nanos(self.arguments.every);
        let end = self.arguments.duration.map(|ns| begun + Duration::from_nanos(ns));
        let mut next = begun;
        self.manager.ready();
        while !stop.load(Ordering::Relaxed) {
            self.step(begun)?;
            self.manager.tell(|_| true);
            let now = Instant::now();
            // Do not make up for periods that took too long.
            next = (next + interval).max(now);
            // The last period ends with the duration.
            let until = end.map_or(next, |end| next.min(end));
            if end.is_some_and(|end| now >= end) || !self.manager.wait_until(until, stop) {
                break;
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    fn step(&mut self, begun: Instant) -> anyhow::Result<()> {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        if let Some(exits) = self.exits.look(Path::new(HOST)) {
            self.monitor.take_exits(exits);
        }
        let step = self.monitor.step(time);
        let actuator = self.monitor.actuator();
        self.state.take(time, &step, |queue| actuator.name_of(queue));
        // Write the state before printing the decision: a reader of the output may then ask for the state.
        if step.said.is_some() || self.told.is_none_or(|at| at.elapsed() >= TOLD_EVERY) {
            self.told = Some(Instant::now());
            self.tell();
        }
        if let Some(decided) = &step.said {
            let lines = if self.arguments.json {
                crate::json::line(decided)?
            } else {
                let text = report::iocm::monitor::decided(decided, console::width());
                format!("{:>8.1} s  {text}", begun.elapsed().as_secs_f64()).into_bytes()
            };
            self.printer.print(lines)?;
        }
        if let Some(recorder) = &mut self.recorder {
            let time = begun.elapsed().as_secs_f64();
            recorder.take(time, step.seen.as_ref()).context("Could not write the trace")?;
        }
        Ok(())
    }

    /// Writes the state. A failure has no effect on the host; report it once.
    fn tell(&mut self) {
        if let Err(error) = self.state.write(&self.arguments.state)
            && std::mem::take(&mut self.may_tell)
        {
            let path = self.arguments.state.display();
            tracing::warn!(
                "`exitless iocm status` will show nothing, because {path} cannot be written: {error}"
            );
        }
    }
}
