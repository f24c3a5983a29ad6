//! Exits of all or some VMs, counted in the kernel by eBPF programs.

mod batches;
mod cells;
mod cost;
mod joining;
pub(crate) mod layout;
pub(crate) mod profiler;
pub(crate) mod programs;
mod records;
pub(crate) mod refusal;
mod scheduler;
mod vcpus;
pub(crate) mod waiting;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use aya::maps::{Array, HashMap, Map, MapData, MapError, PerCpuArray};
use exits::{Access, Isa, LongOptions, Losses, Profile, SeriesKey, Slice, Span};

use self::cells::{Cells, Seen};
use self::programs::{Attached, Pair, Purpose, Wanted};
use self::vcpus::Vcpus;
use crate::{Error, monotonic_ns};

pub use self::cost::{Cost, ProgramCost};
pub use self::joining::{LiveAccess, LiveExit};
pub use self::layout::type_information;
pub use self::profiler::{Profiler, Sampling};
pub use self::programs::Mechanism;
pub use self::records::Recorder;
pub use self::waiting::{in_first_pid_namespace, need_first_pid_namespace};

/// The longest time for which counts stay in the kernel: a bucket has 32 bits there, and a thread has at most a few
/// million exits per second.
const LONGEST: Duration = Duration::from_secs(60);

/// The VMs to watch, and the mechanism.
#[derive(Debug, Clone, Default)]
pub struct Watch {
    /// Watch only these processes; `None` watches all.
    pub processes: Option<Vec<u32>>,
    /// Count ports, addresses and registers too, which costs up to two more events per exit.
    pub accesses: bool,
    /// Record only long exits, and about once a second another one of each vCPU. Of several accesses of one kind in an
    /// exit, only the last is recorded. Collectors count all exits.
    pub long: Option<LongOptions>,
    /// Do not use raw tracepoints, for this reason.
    pub no_raw_tracepoints: Option<String>,
    /// Limit the maps in the kernel to this number of vCPUs and cells, to test what happens when they are full.
    #[doc(hidden)]
    pub room: Option<u32>,
    /// Record through perf's buffers, as is necessary before Linux 5.8.
    #[doc(hidden)]
    pub no_ring_buffer: bool,
}

impl Watch {
    fn wanted(&self, purpose: Purpose, isa: Isa) -> Wanted<'_> {
        Wanted {
            purpose,
            pair: Pair::Exits,
            isa,
            accesses: self.accesses,
            watched: self.processes.as_ref().map(Vec::len),
            long: self.long,
            room: self.room,
            no_raw: self.no_raw_tracepoints.as_deref(),
        }
    }
}

/// eBPF programs that count exits until this is dropped. Nothing is pinned, so the kernel also detaches them when the
/// process ends for any reason.
pub struct Collector {
    attached: Attached,
    cells: Cells,
    epoch_map: Array<MapData, u64>,
    counters: PerCpuArray<MapData, u64>,
    epoch: u64,
    since_ns: u64,
    /// The counts that [`Self::keep`] took from the kernel, and that were not returned yet.
    kept: Profile,
    /// When counts were last taken from the kernel.
    taken: Instant,
    lost_exits: Told,
    lost_events: Told,
    root: PathBuf,
    vcpus: Vcpus,
    /// The unfinished exits of vCPUs whose threads had ended, as the last two readings returned them: thread and
    /// time. The programs count such an exit themselves once another vCPU reuses the memory.
    ended: [BTreeSet<(u32, u64)>; 2],
}

impl Collector {
    /// Loads the programs into the kernel of the host below `root` (`/`) and starts counting all events at the same
    /// moment.
    ///
    /// # Errors
    /// [`Error::NoKvm`] if no vendor module of KVM is loaded; [`Error::NoEvent`] and [`Error::NoTracefs`] if its
    /// tracepoints are not accessible; [`Error::Load`] and [`Error::Rejected`] if the kernel does not accept the
    /// programs; [`Error::LockedDown`] if it lets none read its memory; [`Error::Attach`] if it does not attach them.
    /// [`Error::Load`] also if processes are given in another PID namespace than the initial one, whose PIDs the kernel
    /// does not use.
    pub fn attach(root: &Path, watch: &Watch) -> Result<Self, Error> {
        Self::attached(root, watch, &watch.wanted(Purpose::Count, isa(root)?))?.begun()
    }

    /// Counts system calls as if they were exits, with the system call's number as the (VMX) reason. Tests the same
    /// programs and maps with a pair of events that every machine has.
    ///
    /// # Errors
    /// Those of [`Collector::attach`].
    #[doc(hidden)]
    pub fn attach_to_system_calls(watch: &Watch) -> Result<Self, Error> {
        let wanted = Wanted { pair: Pair::SystemCalls, ..watch.wanted(Purpose::Count, Isa::Vmx) };
        Self::attached(Path::new("/"), watch, &wanted)?.begun()
    }

    /// Attaches the programs, which do nothing until [`Self::begun`].
    fn attached(root: &Path, watch: &Watch, wanted: &Wanted<'_>) -> Result<Self, Error> {
        let isa = wanted.isa;
        let mut attached = programs::load(root, wanted)?;
        watch_processes(&mut attached, watch)?;
        let mut epoch_map: Array<_, u64> = map(&mut attached, "epoch")?;
        // Cells start with epoch 0, which must not be valid.
        let epoch = 1;
        epoch_map.set(0, epoch, 0).map_err(map_error)?;
        let cells = Cells {
            direct: map(&mut attached, "direct_cells")?,
            direct_taken: map(&mut attached, "direct_cells_taken")?,
            hashed: map(&mut attached, "cells")?,
            most_hashed: programs::hashed_cells(programs::processors()),
            other: map(&mut attached, "other_cells")?,
            of_accesses: map(&mut attached, "access_cells")?,
            have_room: map(&mut attached, ".data")?,
            isa,
            seen: Seen::default(),
        };
        let counters = map(&mut attached, "counters")?;
        let vcpus = Vcpus::of(&mut attached)?;
        attached.attach(wanted)?;
        Ok(Self {
            attached,
            cells,
            epoch_map,
            counters,
            epoch,
            since_ns: 0,
            kept: Profile::new(),
            taken: Instant::now(),
            lost_exits: Told::default(),
            lost_events: Told::default(),
            root: root.to_owned(),
            vcpus,
            ended: Default::default(),
        })
    }

    fn begun(mut self) -> Result<Self, Error> {
        self.since_ns = self.attached.begin()?;
        Ok(self)
    }

    /// Reads the counts from the kernel if they are a minute old, before its small counters overflow; the next
    /// [`Self::take`] or [`Self::finish`] returns them. Call it now and then if those are called rarely.
    ///
    /// # Errors
    /// Those of [`Self::take`].
    pub fn keep(&mut self) -> Result<(), Error> {
        self.keep_after(LONGEST)
    }

    fn keep_after(&mut self, time: Duration) -> Result<(), Error> {
        if self.taken.elapsed() >= time {
            let counted = self.take_counted()?;
            self.kept.absorb(counted);
        }
        Ok(())
    }

    /// The exits whose handling ended since the last call, or since the start. An exit that is still being handled,
    /// such as that of a halted vCPU, belongs to the interval in which the guest is entered again.
    ///
    /// Exits for which the maps had no room are counted in a vCPU without a VM and in
    /// [`Losses::exits_without_vcpu`], or if that was full too, as lost.
    ///
    /// # Errors
    /// [`Error::KernelMap`] when the kernel does not give its counts.
    pub fn take(&mut self) -> Result<Profile, Error> {
        let counted = self.take_counted()?;
        Ok(self.with_kept(counted))
    }

    /// The start of the interval that was not returned yet.
    fn began_ns(&self) -> u64 {
        self.kept.span.map_or(self.since_ns, |span| span.first_ns)
    }

    /// Merges the kept counts with these.
    fn with_kept(&mut self, counted: Profile) -> Profile {
        let mut all = std::mem::take(&mut self.kept);
        all.absorb(counted);
        all
    }

    fn take_counted(&mut self) -> Result<Profile, Error> {
        self.taken = Instant::now();
        let epoch = self.epoch;
        self.epoch += 1;
        self.epoch_map.set(0, self.epoch, 0).map_err(map_error)?;
        let now_ns = monotonic_ns();
        waiting::wait_for_programs();
        let mut profile = self.handled(epoch, now_ns)?;
        // A vCPU whose thread has ended: no entry will follow its last exit.
        if let Some(alive) = waiting::living_threads(&self.root) {
            let ended = self.vcpus.open(self.cells.isa, |thread| !alive(thread)).map_err(map_error)?;
            self.add_open(&mut profile, &ended);
            let last = ended.iter().filter_map(|(exit, _)| Some((exit.vcpu.thread?, exit.time_ns))).collect();
            self.ended.rotate_right(1);
            self.ended[0] = last;
            // Only now, because the last exits of ended threads have been read.
            if self.cells.is_crowded(&alive) || self.vcpus.is_crowded(&alive).map_err(map_error)? {
                self.cells.free(epoch, &alive).and_then(|()| self.vcpus.free(&alive)).map_err(map_error)?;
            }
        }
        self.cells.look_for_room().map_err(map_error)?;
        Ok(self.with_events(profile))
    }

    /// Stops counting, and returns what [`Self::take`] does, plus the exits that are being handled now, without a
    /// time. All profiles together contain every exit since the start. Exits, entries and accesses stop at the same
    /// moment, which is the end of the span; the time to detach the programs is not included.
    ///
    /// # Errors
    /// Those of [`Self::take`].
    pub fn finish(mut self) -> Result<Profile, Error> {
        let ended_ns = self.attached.end()?;
        self.ended(ended_ns)
    }

    /// The part of [`Self::finish`] after [`Attached::end`].
    fn ended(mut self, ended_ns: u64) -> Result<Profile, Error> {
        let mut profile = self.handled(self.epoch, ended_ns)?;
        let open = self.vcpus.open(self.cells.isa, |_| true).map_err(map_error)?;
        self.add_open(&mut profile, &open);
        let profile = self.with_events(profile);
        Ok(self.with_kept(profile))
    }

    /// Adds unfinished exits, except those that were already returned.
    fn add_open(&self, profile: &mut Profile, open: &[(LiveExit, Vec<Access>)]) {
        for (exit, accesses) in open {
            let is_known = |thread| self.ended[0].contains(&(thread, exit.time_ns));
            if exit.vcpu.thread.is_some_and(is_known) {
                continue;
            }
            profile.losses.exits_at_the_end += 1;
            let series = profile.timeline.series(SeriesKey { vm: exit.vcpu.vm, reason: exit.reason });
            profile.timeline.add(series, exit.time_ns, Slice { count: 1, handling_ns: 0 });
            let vcpu = profile.vcpu(exit.vcpu);
            vcpu.reasons.entry(exit.reason).or_default().count += 1;
            for &access in accesses {
                vcpu.accesses.entry(access).or_default().count += 1;
            }
        }
    }

    fn with_events(&self, mut profile: Profile) -> Profile {
        let exits = profile.total();
        if exits > 0 {
            profile.events.insert("kvm:kvm_exit".to_owned(), exits);
        }
        profile
    }

    /// The counts of `epoch`, which ended at `now_ns`. No program may count in it any more.
    fn handled(&mut self, epoch: u64, now_ns: u64) -> Result<Profile, Error> {
        let mut profile = Profile::new();
        let known = self.ended.iter().flatten().map(|&(thread, _)| thread).collect();
        self.cells.read(epoch, &known, &mut profile).map_err(map_error)?;
        profile.count_over(Span { first_ns: self.since_ns, last_ns: now_ns });
        let lost = lost(&self.attached, &self.counters, &self.root)?;
        profile.losses.lost_exits = self.lost_exits.more(lost.lost_exits);
        profile.losses.lost_events = self.lost_events.more(lost.lost_events);
        self.since_ns = now_ns;
        Ok(profile)
    }

    /// The mechanism by which the programs are attached.
    #[must_use]
    pub fn mechanism(&self) -> &Mechanism {
        &self.attached.mechanism
    }

    /// Events that this kernel does not have, and the reason if VMs have no names.
    #[must_use]
    pub fn missing(&self) -> &[String] {
        &self.attached.missing
    }

    /// The instruction set of the host.
    #[must_use]
    pub fn isa(&self) -> Isa {
        self.cells.isa
    }

    /// The CPU time of the programs so far, while [`Cost::measure`] was active.
    ///
    /// # Errors
    /// [`Error::Read`] if the kernel does not provide it.
    pub fn cost(&self) -> Result<Cost, Error> {
        Cost::read(&self.attached.ebpf, &self.root)
    }
}

/// The exits for which the maps had no room, and the events for which a program was already running on the CPU.
fn lost(attached: &Attached, counters: &PerCpuArray<MapData, u64>, root: &Path) -> Result<Losses, Error> {
    let mut lost = Cost::misses(&attached.ebpf, root);
    let without_room = counted(counters, EXITS_WITHOUT_ROOM)?;
    lost.lost_exits += without_room;
    lost.lost_events += without_room;
    Ok(lost)
}

/// The part of a growing sum of kernel counters that has been reported.
#[derive(Debug, Default)]
struct Told(u64);

impl Told {
    /// The increase since the last call. If a counter could not be read, the sum is too low for once; the part that
    /// was reported before is not reported again.
    fn more(&mut self, sum: u64) -> u64 {
        let more = sum.saturating_sub(self.0);
        self.0 += more;
        more
    }
}

/// The instruction set whose vendor module is loaded.
fn isa(root: &Path) -> Result<Isa, Error> {
    host::kvm::vendor_module(root).and_then(host::kvm::isa_of).ok_or(Error::NoKvm)
}

fn watch_processes(attached: &mut Attached, watch: &Watch) -> Result<(), Error> {
    let Some(processes) = &watch.processes else { return Ok(()) };
    let mut watched: HashMap<_, u32, u8> = map(attached, "watched")?;
    processes.iter().try_for_each(|process| watched.insert(process, 1, 0)).map_err(map_error)
}

fn map<T: TryFrom<Map, Error = MapError>>(attached: &mut Attached, name: &'static str) -> Result<T, Error> {
    programs::take_map(&mut attached.ebpf, name)
}

/// `LOST_RECORDS` and `EXITS_WITHOUT_ROOM` in the BPF programs.
const LOST_RECORDS: u32 = 0;
const EXITS_WITHOUT_ROOM: u32 = 1;
/// `TICKS`, `EXITS` and `SLEPT` in the BPF programs.
const TICKS: u32 = 2;
const EXITS: u32 = 3;
const SLEPT: u32 = 4;

/// One of the BPF programs' counters, summed over all CPUs.
fn counted(counters: &PerCpuArray<MapData, u64>, which: u32) -> Result<u64, Error> {
    Ok(counters.get(&which, 0).map_err(map_error)?.iter().sum())
}

fn map_error(error: MapError) -> Error {
    Error::KernelMap { cause: error }
}

#[cfg(test)]
#[path = "collector_tests.rs"]
mod tests;
