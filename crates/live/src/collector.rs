//! Exits of all VMs, or of some, counted in the kernel by eBPF programs.

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
use exits::{Access, Isa, Profile, SeriesKey, Slice, Span};

use self::cells::Cells;
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

/// The time for which counts are left in the kernel: a bucket has 32 bits there, and a thread some millions of exits a second
/// at most.
const LONGEST: Duration = Duration::from_secs(60);

/// Whose exits to take, and how.
#[derive(Debug, Clone, Default)]
pub struct Watch {
    /// Only of these processes; `None` is all.
    pub processes: Option<Vec<u32>>,
    /// Ports, addresses and registers too, which takes up to two more events an exit.
    pub accesses: bool,
    /// Not by raw tracepoints, even where they can be used, for the reason given.
    pub no_raw_tracepoints: Option<String>,
    /// Room in the kernel for so few vCPUs and cells of counts, to see what happens without any.
    #[doc(hidden)]
    pub room: Option<u32>,
    /// Record by perf's buffers, as kernels before Linux 5.8 make it necessary.
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
            filtered: self.processes.is_some(),
            room: self.room,
            no_raw: self.no_raw_tracepoints.as_deref(),
        }
    }
}

/// Programs in the kernel that count exits until this is dropped. The kernel detaches them, too, when the process
/// ends in whatever way, for nothing of them is pinned.
pub struct Collector {
    attached: Attached,
    cells: Cells,
    epoch_map: Array<MapData, u64>,
    counters: PerCpuArray<MapData, u64>,
    epoch: u64,
    since_ns: u64,
    /// What was counted before that, and not given yet.
    kept: Profile,
    /// When counts were last taken from the kernel.
    taken: Instant,
    uncounted: Told,
    root: PathBuf,
    vcpus: Vcpus,
    /// Last exits of vCPUs that have ended, as the last call and the one before it returned them: thread and time. The programs
    /// count such an exit themselves once another vCPU has that memory.
    ended: [BTreeSet<(u32, u64)>; 2],
}

impl Collector {
    /// Brings the programs into the kernel of the host below `root` (`/`) and starts counting, of all that is followed at
    /// one moment.
    ///
    /// # Errors
    /// [`Error::NoKvm`] without a vendor module of KVM, [`Error::NoEvent`] and [`Error::NoTracefs`] where its
    /// tracepoints are out of reach, [`Error::Load`] and [`Error::Rejected`] when the kernel takes no programs,
    /// [`Error::Attach`] when it does not let them run. [`Error::Load`] also for given processes in a container whose
    /// processes have other numbers than the kernel gives them.
    pub fn attach(root: &Path, watch: &Watch) -> Result<Self, Error> {
        Self::attached(root, watch, &watch.wanted(Purpose::Count, isa(root)?))?.begun()
    }

    /// Counts system calls as if they were exits, their number for the reason (as one of VMX): the same programs and
    /// maps on a pair of events that every machine has.
    ///
    /// # Errors
    /// Those of [`Collector::attach`].
    #[doc(hidden)]
    pub fn attach_to_system_calls(watch: &Watch) -> Result<Self, Error> {
        let wanted = Wanted { pair: Pair::SystemCalls, ..watch.wanted(Purpose::Count, Isa::Vmx) };
        Self::attached(Path::new("/"), watch, &wanted)?.begun()
    }

    /// With the programs attached, which do nothing yet.
    fn attached(root: &Path, watch: &Watch, wanted: &Wanted<'_>) -> Result<Self, Error> {
        let isa = wanted.isa;
        let mut attached = programs::load(root, wanted)?;
        watch_processes(&mut attached, watch)?;
        let mut epoch_map: Array<_, u64> = map(&mut attached, "epoch")?;
        // Cells start at zero, which must be no epoch.
        let epoch = 1;
        epoch_map.set(0, epoch, 0).map_err(map_error)?;
        let cells = Cells {
            direct: map(&mut attached, "direct_cells")?,
            direct_taken: map(&mut attached, "direct_cells_taken")?,
            hashed: map(&mut attached, "cells")?,
            other: map(&mut attached, "other_cells")?,
            of_accesses: map(&mut attached, "access_cells")?,
            isa,
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
            uncounted: Told::default(),
            root: root.to_owned(),
            vcpus,
            ended: Default::default(),
        })
    }

    fn begun(mut self) -> Result<Self, Error> {
        self.since_ns = self.attached.begin()?;
        Ok(self)
    }

    /// Takes from the kernel what was counted there for a minute, for the next [`Self::take`] or [`Self::finish`]: its
    /// counters are small. Call it now and then while the others are not called for long.
    ///
    /// # Errors
    /// Those of [`Self::take`].
    pub fn keep(&mut self) -> Result<(), Error> {
        self.keep_after(LONGEST)
    }

    fn keep_after(&mut self, time: Duration) -> Result<(), Error> {
        if self.taken.elapsed() >= time {
            let counted = self.take_counted()?;
            self.kept.merge(&counted);
        }
        Ok(())
    }

    /// The exits whose handling ended since the last call, or since the start. An exit that is still being
    /// handled, as that of a halted vCPU, belongs to the interval in which the guest goes on.
    ///
    /// Those for which the kernel had no room are in the vCPU without a VM, and if there was none there either they
    /// are among the losses.
    ///
    /// # Errors
    /// [`Error::KernelMap`] when the kernel does not give its counts.
    pub fn take(&mut self) -> Result<Profile, Error> {
        let counted = self.take_counted()?;
        Ok(self.with_kept(counted))
    }

    /// The start of what was not given yet.
    fn began_ns(&self) -> u64 {
        self.kept.span.map_or(self.since_ns, |span| span.first_ns)
    }

    /// With what was kept before.
    fn with_kept(&mut self, counted: Profile) -> Profile {
        let mut all = std::mem::take(&mut self.kept);
        all.merge(&counted);
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
        // A vCPU that ended was left by an exit that no entry follows.
        if let Some(alive) = waiting::living_threads(&self.root) {
            let ended = self.vcpus.open(self.cells.isa, |thread| !alive(thread)).map_err(map_error)?;
            self.add_open(&mut profile, &ended);
            let last = ended.iter().filter_map(|(exit, _)| Some((exit.vcpu.thread?, exit.time_ns))).collect();
            self.ended.rotate_right(1);
            self.ended[0] = last;
            // After the last exits of those that ended were found.
            if self.cells.is_crowded() || self.vcpus.is_crowded() {
                self.cells.free(epoch, &alive).and_then(|()| self.vcpus.free(&alive)).map_err(map_error)?;
            }
        }
        Ok(self.with_events(profile))
    }

    /// Stops counting, and gives what [`Self::take`] does with the exits that are being handled now: they have no time.
    /// All profiles together hold every exit since the start. Exits, entries and accesses are no longer followed from one
    /// moment on, which is the end of the span; what it takes to detach the programs is after it.
    ///
    /// # Errors
    /// Those of [`Self::take`].
    pub fn finish(mut self) -> Result<Profile, Error> {
        let ended_ns = self.attached.end()?;
        self.ended(ended_ns)
    }

    /// The rest after [`Attached::end`].
    fn ended(mut self, ended_ns: u64) -> Result<Profile, Error> {
        let mut profile = self.handled(self.epoch, ended_ns)?;
        let open = self.vcpus.open(self.cells.isa, |_| true).map_err(map_error)?;
        self.add_open(&mut profile, &open);
        let profile = self.with_events(profile);
        Ok(self.with_kept(profile))
    }

    /// Adds exits whose time is not known, but for those that were given before.
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

    /// The counts of `epoch`, which ended at `now_ns` and in which no program counts any more.
    fn handled(&mut self, epoch: u64, now_ns: u64) -> Result<Profile, Error> {
        let span = Span { first_ns: self.since_ns, last_ns: now_ns };
        let mut profile = Profile::new();
        let known = self.ended.iter().flatten().map(|&(thread, _)| thread).collect();
        self.cells.read(epoch, self.since_ns, &known, &mut profile).map_err(map_error)?;
        profile.span = Some(span);
        let uncounted = self.uncounted()?;
        profile.losses.lost_exits = self.uncounted.more(uncounted);
        profile.losses.lost_events = profile.losses.lost_exits;
        self.since_ns = now_ns;
        Ok(profile)
    }

    /// The way in which the tracepoints are reached.
    #[must_use]
    pub fn mechanism(&self) -> &Mechanism {
        &self.attached.mechanism
    }

    /// Events that this kernel does not give, and names that VMs do not have, each with the cause.
    #[must_use]
    pub fn missing(&self) -> &[String] {
        &self.attached.missing
    }

    /// The instruction set of the host.
    #[must_use]
    pub fn isa(&self) -> Isa {
        self.cells.isa
    }

    /// The CPU time of the programs so far, as far as [`Cost::measure`] was on.
    ///
    /// # Errors
    /// [`Error::Read`] when the kernel does not say.
    pub fn cost(&self) -> Result<Cost, Error> {
        Cost::read(&self.attached.ebpf, &self.root)
    }

    /// Exits that the kernel had no room to follow or to count, and events that met their own program.
    fn uncounted(&self) -> Result<u64, Error> {
        Ok(counted(&self.counters, EXITS_WITHOUT_ROOM)? + Cost::misses(&self.attached.ebpf, &self.root))
    }
}

/// A sum of counters of the kernel, as far as it was told.
#[derive(Debug, Default)]
struct Told(u64);

impl Told {
    /// What came to it. Where one of the counters could not be read, the sum is lower for once, and what was told before is
    /// not told again.
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

/// `LOST_RECORDS` and `EXITS_WITHOUT_ROOM` of the programs.
const LOST_RECORDS: u32 = 0;
const EXITS_WITHOUT_ROOM: u32 = 1;
/// `TICKS` of the programs.
const TICKS: u32 = 2;

/// One of the programs' counters, over all processors.
fn counted(counters: &PerCpuArray<MapData, u64>, which: u32) -> Result<u64, Error> {
    Ok(counters.get(&which, 0).map_err(map_error)?.iter().sum())
}

fn map_error(error: MapError) -> Error {
    Error::KernelMap { cause: error }
}

#[cfg(test)]
#[path = "collector_tests.rs"]
mod tests;
