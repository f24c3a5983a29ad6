//! `exitless advise`: the device models that cause exits, what those cost, and the changes that avoid them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use ::advice::{Advice, Audit, Facts, Others, Table, VmAdvice, advise_beside, audit};
use clap::Args;
use domain::{FilesBelow, Text};
use exits::Profile;
use host::Root;
use host::pci::Bar;
use host::vms::{Spent, ThreadReading, Vm, Vmm, Vms};
use live::{Collector, Profiler, Sampling, Watch};
use report::advice::AdviceView;
use traces::Recordings;

use super::profile::{kept, sampled};
use super::recordings::{PartArguments, add, check_file, check_inputs, exit_code, hypervisor};
use super::vm::subject::{Subject, Which};
use super::watching::{HOST, LiveSource, for_a_time, processes_of, wait_until};
use super::{paths, quantity};
use crate::console::StatusLine;
use crate::status::{ABOVE_BUDGET, Usage};
use crate::{console, interrupt};

/// The number of searches for VMs during an observation, and the shortest interval between two.
const LOOKS: u32 = 10;
const LEAST_BETWEEN_LOOKS: Duration = Duration::from_secs(1);

/// The time limit for an answer of QEMU's monitor, and for asking those of all VMs after each search.
const MONITOR: Duration = Duration::from_secs(1);

/// Arguments of `advise`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Recordings of perf, trace-cmd, tracefs, xentrace or exitless; `-` is standard input. Without any, this
    /// host is observed.
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    part: PartArguments,
    /// The time to observe this host: 10s, 2min; a number alone is in seconds. Without recordings, --vm also takes a VMID
    /// of Proxmox VE, an ID of libvirt, a UUID, or NAMESPACE/NAME.
    #[arg(
        long, value_name = "TIME", value_parser = quantity::wait, default_value = "10s",
        conflicts_with_all = ["files", "from", "to", "tsc_hz", "isa"]
    )]
    duration: u64,
    /// The definition of the recorded VM: a file with QEMU's arguments or libvirt's XML, a process, a running
    /// VM by its name, or a domain of libvirt: if it runs, the definition with which it does. Not needed for running VMs
    /// of this host.
    #[arg(long, value_name = "FILE|PID|NAME|libvirt:NAME", requires = "files")]
    definition: Option<String>,
    /// Also sample the host, and show for each device the functions that handle its exits; or read these
    /// samples from a FILE of `exitless profile --output`.
    #[arg(long, value_name = "FILE", value_parser = paths::input(), num_args = 0..=1, require_equals = true)]
    profile: Option<Option<PathBuf>>,
    /// Judge VMs that should be idle: the rate of their exits, and the causes of wake-ups.
    #[arg(long)]
    idle: bool,
    /// With --idle, the exits a second that a VM is allowed.
    #[arg(long, value_name = "EXITS", default_value_t = 100, requires = "idle")]
    budget: u32,
    /// Show this many rows of each VM.
    #[arg(long, value_name = "COUNT", default_value_t = 8)]
    top: usize,
    /// Print everything as JSON.
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let given = arguments.profile.as_ref().and_then(Option::as_deref);
    if arguments.profile.is_some() && given.is_none() && !arguments.files.is_empty() {
        return Err(Usage(
            "--profile samples this host; with recordings name a file: --profile=FILE".to_owned(),
        )
        .into());
    }
    let kept = given.map(|file| check_file(file).map_err(Into::into).and_then(|()| kept::read(file)));
    let kept = kept.transpose()?;
    let Observed { recordings, facts, others, threads, hot } = match arguments.files.is_empty() {
        true => watched(arguments)?,
        false => recorded(arguments)?,
    };
    let table = Table::load(hypervisor(&recordings)?)?;
    let hot = kept.map(|kept| kept.recording).or(hot);
    let table_of_others = table.without_qemu();
    let others = Others { table: &table_of_others, vms: &others };
    let advice = advise_beside(&table, others, &recordings.profile, recordings.observed_ns(), &facts);
    let audits = arguments.idle.then(|| audits(&advice, arguments.budget, &threads));
    print(&recordings, &advice, audits.as_deref(), hot.as_ref(), arguments)?;
    match audits.is_some_and(|audits| audits.iter().any(|audit| !audit.is_within())) {
        true => Ok(ExitCode::from(ABOVE_BUDGET)),
        false => Ok(exit_code(&recordings)),
    }
}

/// The exits, the facts of their VMs, and the functions that took their time.
struct Observed {
    recordings: Recordings,
    facts: BTreeMap<u32, Facts>,
    /// The VMs of other VMMs than QEMU.
    others: BTreeSet<u32>,
    threads: Threads,
    hot: Option<hotspots::Recording>,
}

/// The CPU time of each VM's threads during the observation.
type Threads = BTreeMap<u32, Vec<Spent>>;

fn audits<'a>(advice: &Advice<'a>, budget: u32, threads: &Threads) -> Vec<Audit<'a>> {
    let one = |vm: &VmAdvice<'a>| Audit {
        threads: vm.vm.and_then(|vm| threads.get(&vm)).cloned().unwrap_or_default(),
        ..audit(vm, advice.observed_ns, f64::from(budget))
    };
    advice.vms.iter().map(one).collect()
}

/// The exits of recordings, and the facts from the given definition of their VM.
fn recorded(arguments: &Arguments) -> anyhow::Result<Observed> {
    arguments.part.check()?;
    arguments.files.iter().try_for_each(|file| check_file(file))?;
    check_inputs(&arguments.files)?;
    let facts = match &arguments.definition {
        Some(wanted) => {
            Some(Facts::of(&Subject::find(Path::new(HOST), wanted, Which::Running)?.definition()?))
        }
        None => None,
    };
    let mut recordings = Recordings::new(arguments.part.options());
    for file in &arguments.files {
        add(&mut recordings, file, &mut ())?;
    }
    arguments.part.check_formats([&recordings])?;
    let recordings = recordings.select(arguments.part.selection(&[]))?;
    let vms: BTreeSet<u32> = recordings.profile.vcpus().iter().filter_map(|exits| exits.vcpu.vm).collect();
    if facts.is_some() && vms.len() > 1 {
        return Err(Usage(format!(
            "--definition is of one VM, and the recordings have {}; choose one with --vm",
            vms.len()
        ))
        .into());
    }
    let facts = facts.into_iter().flat_map(|facts| vms.first().map(|&vm| (vm, facts))).collect();
    Ok(Observed { recordings, facts, others: BTreeSet::new(), threads: BTreeMap::new(), hot: None })
}

/// Observes this host: the exits, the facts from its VMs' command lines, and the addresses of their PCI
/// devices.
fn watched(arguments: &Arguments) -> anyhow::Result<Observed> {
    arguments.part.check_live()?;
    super::xen::refuse_live(&Root::live(), "advise")?;
    let stop = interrupt::flag()?;
    let processes = processes_of(&arguments.part.selection(&[]).vms)?;
    let watch = Watch { processes, accesses: true, ..Watch::default() };
    let duration = Duration::from_nanos(arguments.duration);
    if arguments.profile == Some(None) {
        return profiled(&watch, duration, &stop);
    }
    let mut collector = Collector::attach(Path::new(HOST), &watch)?;
    let line = StatusLine::new();
    line.step(for_a_time("Watching", duration));
    let end = Instant::now() + duration;
    let mut seen: BTreeMap<u32, Seen> = BTreeMap::new();
    // VMs may start or end meanwhile, so look for them several times.
    loop {
        see(&mut seen, Vms::discover(Path::new(HOST)).map(|found| found.vms).unwrap_or_default());
        // A signal ends the observation early; the exits until then are used.
        let now = Instant::now();
        let next = end.min(now + (duration / LOOKS).max(LEAST_BETWEEN_LOOKS));
        if now >= end || !wait_until(next, &mut collector, &stop)? {
            break;
        }
    }
    drop(line);
    let (source, threads) = (LiveSource::of(&collector).with_lack(), spent(&seen));
    Ok(observed(&source, collector.finish()?, &seen, threads, None))
}

/// Notes the VMs that run now, and asks their monitors until [`MONITOR`] has passed: monitors that answer late or never
/// must not delay the observation.
fn see(seen: &mut BTreeMap<u32, Seen>, vms: Vec<Vm>) {
    let mut running = Vec::new();
    for vm in vms {
        let Ok(pid) = u32::try_from(vm.pid) else { continue };
        seen.entry(pid).or_insert_with(|| Seen::new(vm));
        running.push(pid);
    }
    let end = Instant::now() + MONITOR;
    for pid in in_turn(seen, running) {
        if Instant::now() >= end {
            break;
        }
        if let Some(one) = seen.get_mut(&pid) {
            one.look();
        }
    }
}

/// Sorts VMs by the number of times that they were asked: those for which there was no time are the first next time.
fn in_turn(seen: &BTreeMap<u32, Seen>, mut running: Vec<u32>) -> Vec<u32> {
    running.sort_by_key(|pid| seen.get(pid).map(|one| one.asked));
    running
}

fn spent(seen: &BTreeMap<u32, Seen>) -> Threads {
    seen.iter().map(|(&pid, one)| (pid, one.spent())).collect()
}

/// Observes this host and also samples what it does, for `--profile`.
fn profiled(watch: &Watch, duration: Duration, stop: &AtomicBool) -> anyhow::Result<Observed> {
    let profiler = Profiler::attach(Path::new(HOST), watch, &Sampling::default())?;
    let source = LiveSource::of(profiler.collector()).with_lack();
    let mut seen: BTreeMap<u32, Seen> = BTreeMap::new();
    let look = |vms: &[Vm]| see(&mut seen, vms.to_vec());
    let (hot, profile) = sampled::run(profiler, watch.processes.as_deref(), duration, stop, look)?;
    let threads = spent(&seen);
    Ok(observed(&source, profile, &seen, threads, Some(hot)))
}

fn observed(
    source: &LiveSource,
    mut profile: Profile,
    seen: &BTreeMap<u32, Seen>,
    threads: Threads,
    hot: Option<hotspots::Recording>,
) -> Observed {
    let with_exits = profile.vcpus().iter().filter_map(|exits| exits.vcpu.vm).collect::<BTreeSet<_>>();
    let named = with_exits.iter().filter_map(|pid| Some((*pid, seen.get(pid)?.vm.name.clone())));
    profile.names.extend(named);
    let facts =
        seen.values().filter_map(|one| Some((one.vm.pid, facts_of(&one.vm)?.with_bars(one.bars.clone()))));
    let facts: BTreeMap<u32, Facts> =
        facts.filter_map(|(pid, facts)| Some((u32::try_from(pid).ok()?, facts))).collect();
    // A program of another name whose arguments are QEMU's is QEMU.
    let is_other = |pid: &u32, one: &Seen| one.vm.vmm != Vmm::Qemu && !facts.contains_key(pid);
    let others = seen.iter().filter(|&(pid, one)| is_other(pid, one)).map(|(&pid, _)| pid).collect();
    Observed { recordings: source.recordings(profile), facts, others, threads, hot }
}

/// A VM that was running during the count.
struct Seen {
    vm: Vm,
    threads: ThreadReading,
    /// The last known address regions of its PCI devices.
    bars: Vec<Bar>,
    /// The number of times that the monitor was asked.
    asked: u32,
    /// The monitor did not answer, so it is not asked again.
    is_silent: bool,
}

impl Seen {
    fn new(vm: Vm) -> Self {
        let threads = ThreadReading::of(&vm, Path::new(HOST));
        Self { vm, threads, bars: Vec::new(), asked: 0, is_silent: false }
    }

    /// Reads the addresses of its PCI devices, which firmware and the guest's kernel move during the boot.
    fn look(&mut self) {
        if self.is_silent {
            return;
        }
        self.asked += 1;
        match live::qmp::pci_bars(Path::new(HOST), &self.vm, MONITOR) {
            Ok(bars) if bars.is_empty() => {}
            Ok(bars) => self.bars = bars,
            Err(error) => {
                self.is_silent = true;
                tracing::info!("Addresses of PCI devices of {} are unknown: {error}", self.vm.name);
            }
        }
    }

    fn spent(&self) -> Vec<Spent> {
        let now = ThreadReading::of(&self.vm, Path::new(HOST));
        now.since(&self.threads)
    }
}

/// The facts from the command line of a running VM, if it is QEMU.
fn facts_of(vm: &Vm) -> Option<Facts> {
    // The format of /proc/PID/cmdline: a NUL after each argument.
    let bytes: Vec<u8> = vm.arguments.iter().flat_map(|one| [one.as_bytes(), b"\0"].concat()).collect();
    let text = Text::new(format!("process {}", vm.pid), bytes);
    let definition = domain::qemu::read(&text, &FilesBelow::of_process(Path::new(HOST), vm.pid))
        .inspect_err(|error| tracing::debug!("The definition of {} is not used: {error}", vm.name))
        .ok()?;
    Some(Facts::of(&definition))
}

fn print(
    recordings: &Recordings,
    advice: &Advice<'_>,
    audits: Option<&[Audit<'_>]>,
    hot: Option<&hotspots::Recording>,
    arguments: &Arguments,
) -> anyhow::Result<()> {
    let document = || report::advice::json(recordings, advice, audits);
    let text = || {
        let view = AdviceView { width: console::width(), colour: console::colour(), top: arguments.top };
        let text = report::advice::terminal(recordings, advice, audits, view);
        match hot {
            Some(hot) => text + &report::hot_advice::terminal(advice, hot, view),
            None => text,
        }
    };
    match hot {
        Some(hot) => {
            let document = || report::hot_advice::json(document(), advice, hot);
            crate::output::print_table(arguments.json, document, text)?;
        }
        None => crate::output::print_table(arguments.json, document, text)?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vms_that_were_not_asked_have_their_turn_first() {
        let seen = |asked| Seen {
            vm: Vm::default(),
            threads: ThreadReading::default(),
            bars: Vec::new(),
            asked,
            is_silent: false,
        };
        let seen = BTreeMap::from([(4, seen(2)), (5, seen(0)), (6, seen(1)), (7, seen(0))]);
        assert_eq!(in_turn(&seen, vec![4, 5, 6, 7]), [5, 7, 6, 4]);
        assert_eq!(in_turn(&seen, vec![4, 6]), [6, 4]);
    }
}
