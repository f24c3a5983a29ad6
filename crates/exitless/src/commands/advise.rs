//! `exitless advise`: which device models cause exits, what they cost, and what to change.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ::advice::{Advice, Audit, Facts, Table, advise, audit};
use clap::Args;
use domain::{FilesBelow, Text};
use experiment::pause;
use host::vms::{Vm, Vms};
use live::{Collector, Watch};
use report::terminal::AdviceView;
use traces::Recordings;

use super::quantity;
use super::recordings::{PartArguments, add, check_file, exit_code};
use super::vm::subject::Subject;
use super::watching::{HOST, LiveSource};
use crate::console::StatusLine;
use crate::status::{ABOVE_BUDGET, Usage};
use crate::{console, interrupt};

/// How often VMs are looked for while this host is watched, and how long at least between.
const LOOKS: u32 = 10;
const LEAST_BETWEEN_LOOKS: Duration = Duration::from_secs(1);

/// Arguments of `advise`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Recordings of perf, trace-cmd, tracefs, xentrace or exitless; `-` is standard input. Without any this host is
    /// watched.
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    part: PartArguments,
    /// How long to watch this host: 10s, 2min.
    #[arg(
        long, value_name = "TIME", value_parser = quantity::wait, default_value = "10s",
        conflicts_with_all = ["files", "from", "to"]
    )]
    duration: u64,
    /// The definition of the recorded VM: a file with QEMU's arguments or libvirt's XML, a process, a running VM by its
    /// name, or a domain of libvirt's. VMs of this host that are watched need none.
    #[arg(long, value_name = "FILE|PID|NAME|libvirt:NAME", requires = "files")]
    definition: Option<String>,
    /// Judge VMs that should be at rest: how often they exit, and what wakes them.
    #[arg(long)]
    idle: bool,
    /// With --idle, the exits a second that a VM may have.
    #[arg(long, value_name = "EXITS", default_value_t = 100, requires = "idle")]
    budget: u32,
    /// Show so many rows of each VM.
    #[arg(long, value_name = "COUNT", default_value_t = 8)]
    top: usize,
    /// Print everything as JSON.
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let table = Table::load()?;
    let (recordings, facts) = match arguments.files.is_empty() {
        true => watched(arguments)?,
        false => recorded(arguments)?,
    };
    let advice = advise(&table, &recordings.profile, recordings.observed_ns(), &facts);
    let audits = arguments.idle.then(|| audits(&advice, arguments.budget));
    print(&recordings, &advice, audits.as_deref(), arguments)?;
    match audits.is_some_and(|audits| audits.iter().any(|audit| !audit.is_within())) {
        true => Ok(ExitCode::from(ABOVE_BUDGET)),
        false => Ok(exit_code(&recordings)),
    }
}

fn audits<'a>(advice: &Advice<'a>, budget: u32) -> Vec<Audit<'a>> {
    advice.vms.iter().map(|vm| audit(vm, advice.observed_ns, f64::from(budget))).collect()
}

/// The exits of recordings, and what the given definition says of their VM.
fn recorded(arguments: &Arguments) -> anyhow::Result<(Recordings, BTreeMap<u32, Facts>)> {
    arguments.part.check()?;
    arguments.files.iter().try_for_each(|file| check_file(file))?;
    let facts = match &arguments.definition {
        Some(wanted) => Some(Facts::of(&Subject::find(Path::new(HOST), wanted)?.definition()?)),
        None => None,
    };
    let mut recordings = Recordings::new(arguments.part.options());
    for file in &arguments.files {
        add(&mut recordings, file, &mut ())?;
    }
    let recordings = recordings.select(arguments.part.selection(&[]))?;
    let vms: BTreeSet<u32> = recordings.profile.vcpus().iter().filter_map(|exits| exits.vcpu.vm).collect();
    if facts.is_some() && vms.len() > 1 {
        return Err(Usage(format!(
            "--definition is of one VM, and the recordings have {}; choose one with --vm",
            vms.len()
        ))
        .into());
    }
    Ok((recordings, facts.into_iter().flat_map(|facts| vms.first().map(|&vm| (vm, facts))).collect()))
}

/// The exits of this host from now on, and what its VMs' command lines say.
fn watched(arguments: &Arguments) -> anyhow::Result<(Recordings, BTreeMap<u32, Facts>)> {
    let stop = interrupt::flag()?;
    let found = Vms::discover(Path::new(HOST))?;
    let wanted = arguments.part.selection(&[]).vms;
    let chosen = found.select(&wanted)?;
    let numbers = || chosen.iter().filter_map(|vm| u32::try_from(vm.pid).ok());
    let processes = (!wanted.is_empty()).then(|| numbers().collect());
    let watch = Watch { processes, accesses: true, ..Watch::default() };
    let collector = Collector::attach(Path::new(HOST), &watch)?;
    let line = StatusLine::new();
    let duration = Duration::from_nanos(arguments.duration);
    line.show(format!("Watching this host for {:.0} s", duration.as_secs_f64()));
    let end = Instant::now() + duration;
    let mut seen: BTreeMap<u32, Vm> = BTreeMap::new();
    // A VM may come and go while exits are counted, so its command line is not looked for at the end alone.
    loop {
        for vm in Vms::discover(Path::new(HOST)).map(|found| found.vms).unwrap_or_default() {
            seen.extend(u32::try_from(vm.pid).map(|pid| (pid, vm)));
        }
        // What was seen until a signal is advised on too.
        let now = Instant::now();
        if now >= end || !pause(end.min(now + (duration / LOOKS).max(LEAST_BETWEEN_LOOKS)), &stop) {
            break;
        }
    }
    drop(line);
    let source = LiveSource::of(&collector);
    let mut profile = collector.finish()?;
    let with_exits = profile.vcpus().iter().filter_map(|exits| exits.vcpu.vm).collect::<BTreeSet<_>>();
    let named = with_exits.iter().filter_map(|pid| Some((*pid, seen.get(pid)?.name.clone())));
    profile.names.extend(named);
    Ok((source.recordings(profile), seen.values().filter_map(facts_of).collect()))
}

/// What the command line of a running VM says, where it is one of QEMU.
fn facts_of(vm: &Vm) -> Option<(u32, Facts)> {
    // A NUL after each argument, as in /proc/PID/cmdline.
    let bytes: Vec<u8> = vm.arguments.iter().flat_map(|one| [one.as_bytes(), b"\0"].concat()).collect();
    let text = Text::new(format!("process {}", vm.pid), bytes);
    let directory = std::fs::read_link(format!("/proc/{}/cwd", vm.pid)).unwrap_or_else(|_| HOST.into());
    let definition = domain::qemu::read(&text, &FilesBelow::new(HOST, directory))
        .inspect_err(|error| tracing::debug!("The definition of {} is not used: {error}", vm.name))
        .ok()?;
    Some((u32::try_from(vm.pid).ok()?, Facts::of(&definition)))
}

fn print(
    recordings: &Recordings,
    advice: &Advice<'_>,
    audits: Option<&[Audit<'_>]>,
    arguments: &Arguments,
) -> anyhow::Result<()> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    if arguments.json {
        serde_json::to_writer_pretty(&mut out, &report::json::advice(recordings, advice, audits))?;
        writeln!(out)?;
        return Ok(out.flush()?);
    }
    let view = AdviceView { width: console::width(), colour: console::colour(), top: arguments.top };
    let text = match audits {
        Some(audits) => report::terminal::idle(recordings, advice, audits, view),
        None => report::terminal::advice(recordings, advice, view),
    };
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}
