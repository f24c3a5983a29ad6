//! What the host does while it handles exits: samples of stacks, told apart by the exit that is being handled.

pub(super) mod scheduler;
mod ticks;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use aya::Pod;
use aya::maps::{HashMap, MapData, RingBuf};
use aya::programs::perf_event::{
    HardwareEvent, PerfEvent, PerfEventConfig, PerfEventLink, PerfEventScope, SamplePolicy, SoftwareEvent,
};
use aya::programs::{Program, ProgramError};
use exits::{ExitReason, Isa, Profile};
use hotspots::{Away, Event, Head, Losses, Measured, Recording, Stack, Symbols};

use self::ticks::{Met, Ticks, Times};
use super::programs::{Link, Pair, Purpose, Wanted};
use super::refusal::{chain, rejected};
use super::{Collector, LOST_RECORDS, TICKS, Watch, counted, isa, map, map_error, waiting};
use crate::{Error, Mechanism, monotonic_ns};

/// How to sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sampling {
    /// Samples a second on each CPU.
    pub frequency_hz: u64,
    /// Only by this event; `None` is by cycles, or where there is no counter of them by the CPU's clock.
    pub event: Option<Event>,
    /// Whether to follow threads that have no processor within an exit.
    pub away: bool,
}

impl Default for Sampling {
    fn default() -> Self {
        // Not a whole multiple of what timers like, so that samples and ticks do not meet again and again.
        Self { frequency_hz: 997, event: None, away: true }
    }
}

/// Programs in the kernel that count exits and sample stacks until this is dropped.
pub struct Profiler {
    collector: Collector,
    /// How many of its links are those of the programs that follow exits.
    exit_links: usize,
    ring: RingBuf<MapData>,
    absences: HashMap<MapData, AbsenceKey, Absence>,
    monitors: HashMap<MapData, u32, u8>,
    workers: HashMap<MapData, u32, u32>,
    symbols: Symbols,
    root: PathBuf,
    ticks: Ticks,
    head: Head,
    since_ns: u64,
    profile: Profile,
}

/// `struct absence_key` of the programs.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct AbsenceKey {
    process: u32,
    thread: u32,
    reason: u32,
    runnable: u32,
}

/// `struct absence` of the programs.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Absence {
    times: u64,
    away_ns: u64,
    waited_ns: u64,
}

// SAFETY: plain numbers without padding, laid out as the programs' structure; every bit pattern is a value.
unsafe impl Pod for AbsenceKey {}
// SAFETY: as above.
unsafe impl Pod for Absence {}

impl Profiler {
    /// Brings the programs into the kernel of the host below `root` (`/`) and starts.
    ///
    /// # Errors
    /// As [`Collector::attach`]; also [`Error::OnCpu`] when the kernel gives no samples. A ring buffer is needed, which
    /// Linux has since 5.8.
    pub fn attach(root: &Path, watch: &Watch, sampling: &Sampling) -> Result<Self, Error> {
        Self::attach_to(root, watch, sampling, &watch.wanted(Purpose::HotSpots, isa(root)?))
    }

    /// Samples within system calls as if they were exits, see [`Collector::attach_to_system_calls`].
    ///
    /// # Errors
    /// As [`Profiler::attach`].
    #[doc(hidden)]
    pub fn attach_to_system_calls(watch: &Watch, sampling: &Sampling) -> Result<Self, Error> {
        let wanted = Wanted { pair: Pair::SystemCalls, ..watch.wanted(Purpose::HotSpots, Isa::Vmx) };
        Self::attach_to(Path::new("/"), watch, sampling, &wanted)
    }

    fn attach_to(
        root: &Path,
        watch: &Watch,
        sampling: &Sampling,
        wanted: &Wanted<'_>,
    ) -> Result<Self, Error> {
        let mut collector = Collector::attach_to(root, watch, wanted)?;
        let attached = &mut collector.attached;
        let exit_links = attached.links.len();
        let (ring, absences) = (map(attached, "ticks")?, map(attached, "absences")?);
        let (monitors, workers) = (map(attached, "monitors")?, map(attached, "workers")?);
        let mut notes = Vec::new();
        let away = sampling.away && follow_scheduler(&mut collector, root, &mut notes);
        let (event, cpus) = sample(&mut collector, sampling, &mut notes)?;
        let frequency_hz = sampling.frequency_hz;
        let head = Head { kernel: None, event, frequency_hz, cpus, duration_ns: 0, away, notes };
        Ok(Self {
            collector,
            exit_links,
            ring,
            absences,
            monitors,
            workers,
            symbols: Symbols::new(root),
            root: root.to_owned(),
            ticks: Ticks::default(),
            head,
            since_ns: monotonic_ns(),
            profile: Profile::new(),
        })
    }

    /// Counts samples of a device model's other threads from now on, and not only once one of its vCPUs had an exit;
    /// `workers` are threads of the kernel that work for it (vhost before Linux 6.4).
    ///
    /// # Errors
    /// [`Error::KernelMap`] when the kernel does not take it.
    pub fn follow(&mut self, process: u32, workers: &[u32]) -> Result<(), Error> {
        self.symbols.learn(process);
        self.monitors.insert(process, 1, 0).map_err(map_error)?;
        workers.iter().try_for_each(|worker| self.workers.insert(worker, process, 0)).map_err(map_error)
    }

    /// Takes over what came since the last time. Call it often enough that the buffer, of 12,000 samples, does not fill
    /// up.
    pub fn drain(&mut self) {
        let isa = self.collector.isa();
        while let Some(item) = self.ring.next() {
            let process = self.ticks.take(&item, isa);
            // While it is there: its files are found by what it has in memory.
            if let Some(process) = process.filter(|&process| !self.symbols.knows(process)) {
                self.symbols.learn(process);
            }
        }
    }

    /// What made the samples.
    #[must_use]
    pub fn event(&self) -> Event {
        self.head.event
    }

    /// What counts the exits.
    #[must_use]
    pub fn collector(&self) -> &Collector {
        &self.collector
    }

    /// Stops, and gives all hot spots and the exits that were counted with them.
    ///
    /// # Errors
    /// [`Error::KernelMap`] when the kernel does not give its counts.
    pub fn finish(mut self) -> Result<(Recording, Profile), Error> {
        let duration_ns = monotonic_ns().saturating_sub(self.since_ns);
        // Those that follow exits are the last to go: without them the others would go on with the exits of now.
        drop(self.collector.attached.links.split_off(self.exit_links));
        waiting::wait_for_programs();
        self.drain();
        let lost = counted(&self.collector.counters, LOST_RECORDS)?;
        let ticks = counted(&self.collector.counters, TICKS)?;
        let missing = self.collector.missing().to_vec();
        let mechanism = self.collector.mechanism().clone();
        let isa = self.collector.isa();
        let absences: Vec<_> = self.absences.iter().filter_map(Result::ok).collect();
        self.profile = self.collector.finish()?;

        let mut head = self.head;
        head.duration_ns = duration_ns;
        head.notes.extend(missing);
        if let Mechanism::Tracepoints { why } = mechanism {
            head.notes.push(format!(
                "Not by raw tracepoints: {why}. An interrupt that ended a guest's turn cannot be told from other work of \
                 its exit, so that samples of the guest may be among those of interrupts"
            ));
        }
        let mut recording = Recording::new(head);
        recording.measured = measured(&self.profile, &absences, isa);
        let processes: Vec<u32> = self.profile.vcpus().iter().filter_map(|one| one.vcpu.vm).collect();
        processes.iter().for_each(|&process| self.symbols.learn(process));
        let mut without_user_stack = 0;
        for (met, times) in self.ticks.into_sorted() {
            without_user_stack += if met.no_user { times.samples } else { 0 };
            let stack = resolved(&mut recording, &mut self.symbols, &met, times);
            recording.stacks.push(stack);
        }
        if self.symbols.kernel_is_hidden() {
            let path = self.root.join("proc/kallsyms");
            recording.head.notes.push(format!(
                "{} hides or lacks the kernel's symbols (kernel.kptr_restrict), so its functions have no names",
                path.display()
            ));
        }
        let lost_exits = self.profile.losses.lost_exits;
        recording.losses = Losses { ticks, lost, lost_exits, without_user_stack };
        Ok((recording, self.profile))
    }
}

/// Whether time without a processor is followed from now on; if not, `notes` says why.
fn follow_scheduler(collector: &mut Collector, root: &Path, notes: &mut Vec<String>) -> bool {
    match scheduler::attach(&mut collector.attached.ebpf, root) {
        Ok(links) => {
            collector.attached.links.extend(links.into_iter().map(Link::Tracepoint));
            true
        }
        Err(error) => {
            notes.push(format!("Time without a processor is not known: {error}"));
            false
        }
    }
}

/// Samples every CPU that is online; by what, and how many CPUs.
fn sample(
    collector: &mut Collector,
    sampling: &Sampling,
    notes: &mut Vec<String>,
) -> Result<(Event, u32), Error> {
    const NAME: &str = "tick";
    let online = aya::util::online_cpus().map_err(|(path, source)| Error::Read {
        path: path.into(),
        expected: "processors",
        source,
    })?;
    let refused = |error: ProgramError| rejected(NAME, &error);
    let program = match collector.attached.ebpf.program_mut(NAME) {
        Some(Program::PerfEvent(program)) => program,
        _ => {
            return Err(Error::Load { cause: format!("there is no program {NAME}"), next: "build it again" });
        }
    };
    program.load().map_err(refused)?;
    let wanted = match sampling.event {
        Some(event) => vec![event],
        None => vec![Event::Cycles, Event::CpuClock],
    };
    let mut first = None;
    for event in wanted {
        match sample_by(program, event, sampling.frequency_hz, &online) {
            Ok(links) => {
                notes.extend(first.map(|error: Error| {
                    format!(
                        "Sampled by the CPUs' clock, for there is no counter of cycles ({error}): what runs with \
                         interrupts off is found where they are let in again"
                    )
                }));
                collector.attached.links.extend(links.into_iter().map(Link::Perf));
                return Ok((event, u32::try_from(online.len()).unwrap_or(u32::MAX)));
            }
            Err((cpu, source)) => first = first.or_else(|| Some(on_cpu(event, cpu, source))),
        }
    }
    Err(first.unwrap_or(Error::NothingToTrace("no event was asked for".to_owned())))
}

fn sample_by(
    program: &mut PerfEvent,
    event: Event,
    frequency_hz: u64,
    cpus: &[u32],
) -> Result<Vec<PerfEventLink>, (u32, ProgramError)> {
    let config = match event {
        Event::Cycles => PerfEventConfig::Hardware(HardwareEvent::CpuCycles),
        Event::CpuClock | Event::Exits => PerfEventConfig::Software(SoftwareEvent::CpuClock),
    };
    let attach = |&cpu: &u32| {
        let scope = PerfEventScope::AllProcessesOneCpu { cpu };
        let link = program.attach(config, scope, SamplePolicy::Frequency(frequency_hz), false);
        link.and_then(|link| program.take_link(link)).map_err(|error| (cpu, error))
    };
    cpus.iter().map(attach).collect()
}

fn on_cpu(event: Event, cpu: u32, error: ProgramError) -> Error {
    let event = match event {
        Event::Cycles => "cycles",
        Event::CpuClock | Event::Exits => "cpu-clock",
    };
    let source = match error {
        ProgramError::SyscallError(error) => error.io_error,
        other => std::io::Error::other(chain(&other)),
    };
    let next = match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => "run as root, or with CAP_PERFMON and CAP_BPF",
        Some(libc::EINVAL) => {
            "ask for fewer samples with --frequency: kernel.perf_event_max_sample_rate is the most"
        }
        Some(libc::EBUSY) => "another program has the counter; try --event cpu-clock",
        _ => "this machine has no such counter; try --event cpu-clock",
    };
    Error::OnCpu { action: "sample", event: event.to_owned(), cpu, next: next.to_owned(), source }
}

/// Exits with their times on and off processors.
fn measured(
    profile: &Profile,
    absences: &[(AbsenceKey, Absence)],
    isa: Isa,
) -> BTreeMap<(Option<u32>, ExitReason), Measured> {
    let mut measured: BTreeMap<_, Measured> = BTreeMap::new();
    for vcpu in profile.vcpus() {
        for (&reason, exits) in &vcpu.reasons {
            let one = Measured {
                exits: exits.count,
                handling_ns: exits.handling.total_ns(),
                away: Away::default(),
            };
            measured.entry((vcpu.vcpu.vm, reason)).or_default().add(one);
        }
    }
    for (key, absence) in absences {
        let Absence { times, away_ns, waited_ns } = *absence;
        let away = Away { times, away_ns, waited_ns };
        let reason = ExitReason { isa, code: key.reason };
        measured.entry((Some(key.process), reason)).or_default().away.add(away);
    }
    measured
}

/// With names for addresses.
fn resolved(recording: &mut Recording, symbols: &mut Symbols, met: &Met, times: Times) -> Stack {
    let mut frames = Vec::with_capacity(met.kernel.len() + met.user.len());
    // Outer frames hold where a call returns to, which may be behind the end of the caller.
    let called_from = |at: usize, address: u64| if at == 0 { address } else { address.saturating_sub(1) };
    for (at, &address) in met.kernel.iter().enumerate() {
        let frame = symbols.kernel(called_from(at, address));
        frames.push(recording.number(frame));
    }
    for (at, &address) in met.user.iter().enumerate() {
        let address = called_from(at, address);
        // Without frame pointers the kernel follows whatever the register holds.
        if at > 0 && !symbols.is_code(met.process, address) {
            break;
        }
        let frame = symbols.user(met.process, address);
        frames.push(recording.number(frame));
    }
    Stack {
        vm: Some(met.process),
        thread: Some(met.thread),
        activity: met.activity,
        frames,
        samples: times.samples,
        away: times.away,
        cut: met.cut,
    }
}
