//! Exits of all VMs, or of some, counted in the kernel by eBPF programs.

mod cells;
pub(crate) mod clock;
mod cost;
pub(crate) mod layout;
pub(crate) mod programs;
mod records;

use std::path::{Path, PathBuf};

use aya::maps::{Array, HashMap, Map, MapData, MapError, PerCpuArray};
use exits::{Isa, Profile, Span};

use self::cells::Cells;
use self::programs::{Attached, Purpose, Wanted};
use crate::{Error, Tracefs};

pub use self::cost::{Cost, ProgramCost};
pub use self::programs::Mechanism;
pub use self::records::{LiveExit, Recorder};

/// Cells for which the kernel reserves room, of 200 bytes each: one for each octave of handling times of each reason
/// of each vCPU, twice. A vCPU that uses ten reasons needs about 100.
const CELLS: u32 = 1 << 17;
/// From this share of the cells on, those of vCPUs that ended are freed.
const CELLS_TO_FREE: usize = CELLS as usize / 2;

/// Whose exits to take, and how.
#[derive(Debug, Clone, Default)]
pub struct Watch {
    /// Only of these processes; `None` is all.
    pub processes: Option<Vec<u32>>,
    /// Ports, addresses and registers too, which takes up to two more events an exit.
    pub accesses: bool,
    /// Not by raw tracepoints, even where they can be used, for the reason given.
    pub no_raw_tracepoints: Option<String>,
}

impl Watch {
    fn wanted(&self, purpose: Purpose, isa: Isa, ring_bytes: u32) -> Wanted<'_> {
        Wanted {
            purpose,
            isa,
            accesses: self.accesses,
            filtered: self.processes.is_some(),
            cells: CELLS,
            ring_bytes,
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
    uncounted: u64,
    root: PathBuf,
    threads: HashMap<MapData, u32, records::Thread>,
}

impl Collector {
    /// Brings the programs into the kernel of the host below `root` (`/`) and starts counting.
    ///
    /// # Errors
    /// [`Error::NoKvm`] without a vendor module of KVM, [`Error::NoEvent`] and [`Error::NoTracefs`] where its
    /// tracepoints are out of reach, [`Error::Load`] and [`Error::Rejected`] when the kernel takes no programs,
    /// [`Error::Attach`] when it does not let them run.
    pub fn attach(root: &Path, watch: &Watch) -> Result<Self, Error> {
        let isa = isa(root)?;
        let wanted = watch.wanted(Purpose::Count, isa, 0);
        let mut attached = programs::load(root, &Tracefs::find(root)?, &wanted)?;
        watch_processes(&mut attached, watch)?;
        let mut epoch_map: Array<_, u64> = map(&mut attached, "epoch")?;
        // Cells start at zero, which must be no epoch.
        let epoch = 1;
        epoch_map.set(0, epoch, 0).map_err(map_error)?;
        let cells = Cells {
            of_threads: map(&mut attached, "cells")?,
            other: map(&mut attached, "other_cells")?,
            isa,
        };
        let counters = map(&mut attached, "counters")?;
        let threads = map(&mut attached, "threads")?;
        let since_ns = clock::monotonic_ns();
        attached.attach(&wanted)?;
        let root = root.to_owned();
        Ok(Self { attached, cells, epoch_map, counters, epoch, since_ns, uncounted: 0, root, threads })
    }

    /// The exits whose handling ended since the last call, or since the start. An exit that is still being
    /// handled, as that of a halted vCPU, belongs to the interval in which the guest goes on.
    ///
    /// Those for which the kernel had no room are in the vCPU without a VM, and if there was none there either they
    /// are among the losses.
    ///
    /// # Errors
    /// [`Error::Map`] when the kernel does not give its counts.
    pub fn take(&mut self) -> Result<Profile, Error> {
        let ended = self.epoch;
        self.epoch += 1;
        self.epoch_map.set(0, self.epoch, 0).map_err(map_error)?;
        clock::wait_for_programs();
        let now_ns = clock::monotonic_ns();
        let span = Span { first_ns: self.since_ns, last_ns: now_ns };
        let mut profile = Profile::new();
        self.cells.read(ended, self.since_ns, &mut profile).map_err(map_error)?;
        profile.span = Some(span);
        let uncounted = self.uncounted()?;
        profile.losses.lost_exits = uncounted - self.uncounted;
        profile.losses.lost_events = profile.losses.lost_exits;
        self.uncounted = uncounted;
        let exits = profile.total();
        if exits > 0 {
            profile.events.insert("kvm:kvm_exit".to_owned(), exits);
        }
        self.since_ns = now_ns;
        if self.cells.used() > CELLS_TO_FREE {
            self.free_ended();
        }
        Ok(profile)
    }

    /// How the tracepoints are reached.
    #[must_use]
    pub fn mechanism(&self) -> &Mechanism {
        &self.attached.mechanism
    }

    /// Events that this kernel does not give, each with the cause.
    #[must_use]
    pub fn missing(&self) -> &[String] {
        &self.attached.missing
    }

    /// The instruction set of the host.
    #[must_use]
    pub fn isa(&self) -> Isa {
        self.cells.isa
    }

    /// What the programs took of the processors so far, as far as [`Cost::measure`] was on.
    ///
    /// # Errors
    /// [`Error::Read`] when the kernel does not say.
    pub fn cost(&self) -> Result<Cost, Error> {
        Cost::read(&self.attached.ebpf, &self.root)
    }

    /// Exits of threads that the kernel had no room to follow.
    fn uncounted(&self) -> Result<u64, Error> {
        const THREADS_FULL: u32 = 1;
        let counts = self.counters.get(&THREADS_FULL, 0).map_err(map_error)?;
        Ok(counts.iter().sum())
    }

    fn free_ended(&mut self) {
        // In a container the numbers of threads are others than the kernel's, so that all would seem to have ended.
        if !clock::in_first_pid_namespace(&self.root) {
            return;
        }
        let proc = self.root.join("proc");
        let alive = |thread: u32| proc.join(thread.to_string()).exists();
        self.cells.free(alive);
        let threads: Vec<u32> = self.threads.keys().filter_map(Result::ok).collect();
        for thread in threads.into_iter().filter(|&thread| !alive(thread)) {
            // One that is gone already is what was wanted.
            let _ = self.threads.remove(&thread);
        }
    }
}

/// The instruction set whose vendor module is loaded.
fn isa(root: &Path) -> Result<Isa, Error> {
    match host::kvm::usable(root).vendor_module {
        Some(host::kvm::INTEL) => Ok(Isa::Vmx),
        Some(_) => Ok(Isa::Svm),
        None => Err(Error::NoKvm),
    }
}

fn watch_processes(attached: &mut Attached, watch: &Watch) -> Result<(), Error> {
    let Some(processes) = &watch.processes else { return Ok(()) };
    let mut watched: HashMap<_, u32, u8> = map(attached, "watched")?;
    processes.iter().try_for_each(|process| watched.insert(process, 1, 0)).map_err(map_error)
}

fn map<T: TryFrom<Map, Error = MapError>>(attached: &mut Attached, name: &'static str) -> Result<T, Error> {
    let map = attached.ebpf.take_map(name);
    map.ok_or(MapError::InvalidName { name: name.to_owned() }).and_then(T::try_from).map_err(map_error)
}

fn map_error(error: MapError) -> Error {
    Error::KernelMap { cause: error }
}
