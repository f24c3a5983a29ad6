//! The threads of the kernel's vhost and of QEMU on a stock host: I/O threads on I/O cores, vCPUs beside them.

use super::computing::{Busy, Meter, Used};
use super::numbers::Numbers;
use super::pinning::Pinning;
use super::vhost_vms::{Found, ManagedVm, Steady, TapMeter, find};
use super::{Actuator, Seen, Trouble, VmSeen, cores};
use crate::view::total;
use crate::{Action, Core, Layout, QueueView, View, WorkerCore, WorkerView};
use host::CpuSet;
use host::scheduling::ThreadId;
use knobs::{Actions, Error};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The interval of searches for VMs. Each search reads every process.
const DISCOVER_EVERY: Duration = Duration::from_secs(1);

/// The threads of the kernel's vhost and of QEMU on a stock host.
///
/// vhost has a thread for each device, and these cannot be merged from outside. So an "I/O worker" here is an I/O core,
/// and its queues are the I/O threads that are pinned to it.
#[derive(Debug)]
pub struct Vhost<A: Actions> {
    root: PathBuf,
    only: Option<CpuSet>,
    /// `None` in a dry run, so that nothing can be changed by mistake.
    pinning: Option<Pinning<A>>,
    found: Found,
    steady: Steady,
    cpus: Vec<u32>,
    discovered: Option<Instant>,
    looked: Option<Instant>,
    /// The numbers of the present I/O threads.
    numbers: Numbers<ThreadId>,
    /// Their names: all are named in each period.
    names: BTreeMap<ThreadId, String>,
    layout: BTreeMap<u32, WorkerCore>,
    io_cores: BTreeSet<u32>,
    /// The interrupts that the kernel refused to move, so that each is tried and reported once.
    refused: BTreeSet<String>,
    meter: Meter,
    taps: TapMeter,
    busy: Busy,
}

impl<A: Actions> Vhost<A> {
    /// The I/O threads of the host below `root`; `only` limits the CPUs. Without `pinning` nothing can be changed.
    #[must_use]
    pub fn new(root: &Path, only: Option<CpuSet>, pinning: Option<Pinning<A>>) -> Self {
        Self {
            root: root.to_owned(),
            only,
            pinning,
            found: Found::default(),
            steady: Steady::new(),
            cpus: Vec::new(),
            discovered: None,
            looked: None,
            numbers: Numbers::new(),
            names: BTreeMap::new(),
            layout: BTreeMap::new(),
            io_cores: BTreeSet::new(),
            refused: BTreeSet::new(),
            meter: Meter::default(),
            taps: TapMeter::default(),
            busy: Busy::default(),
        }
    }

    fn discover(&mut self) -> Result<(), Trouble> {
        if self.discovered.is_some_and(|at| at.elapsed() < DISCOVER_EVERY) {
            return Ok(());
        }
        let pinning = self.pinning.as_ref();
        let pinned = |thread| pinning.and_then(|pinning| pinning.pinned_to(thread));
        let found = find(&self.root, self.only.as_ref(), &mut self.steady, pinned)?;
        self.discovered = Some(Instant::now());
        let before = std::mem::replace(&mut self.found, found);
        self.cpus = self.found.shared_cpus(self.only.as_ref());
        let io = self.found.vms.iter().flat_map(|vm| &vm.io);
        self.names = io.map(|io| (io.thread, io.name.clone())).collect();
        let threads = |found: &Found| -> BTreeSet<(u64, ThreadId)> {
            let of = |vm: &ManagedVm| vm.threads().map(|thread| (vm.start_ticks, thread)).collect::<Vec<_>>();
            found.vms.iter().flat_map(of).collect()
        };
        let (before, now) = (threads(&before), threads(&self.found));
        // A thread can also end before its VM.
        for (_, thread) in before.difference(&now) {
            if let Some(number) = self.numbers.remove(thread) {
                self.layout.remove(&number);
            }
        }
        self.taps.keep(self.found.vms.iter().flat_map(|vm| &vm.taps));
        let Some(pinning) = &mut self.pinning else { return Ok(()) };
        // If a thread has ended, this just drops its journal entry, which would otherwise stay until the monitor ends. If
        // others have moved it, their change stays. The interrupts of VMs that have gone would stay on CPUs that may not
        // be I/O cores for long. What cannot be restored now is tried again after the next search. A thread that is
        // found again by then counts as new: an I/O thread has no core any more.
        let has_core = |thread: &ThreadId| {
            let number = self.numbers.of.get(thread);
            number.and_then(|number| self.layout.get(number)).is_some_and(Option::is_some)
        };
        let io: BTreeSet<ThreadId> =
            self.found.vms.iter().flat_map(|vm| vm.io.iter().map(|io| io.thread)).collect();
        let both = before.intersection(&now).map(|(_, thread)| *thread);
        let kept = both.filter(|thread| !io.contains(thread) || has_core(thread)).collect();
        let interrupts = self.found.vms.iter().flat_map(|vm| &vm.interrupts);
        match pinning.keep_only(&kept, &interrupts.map(|interrupt| interrupt.number).collect()) {
            // The rest of the look would wait for the lock once more.
            Err(error @ Error::Locked { .. }) => Err(error.into()),
            _ => Ok(()),
        }
    }

    fn cores(&self) -> Result<Vec<Core>, Trouble> {
        let (cores, online) = cores(&self.root, |cpu| self.cpus.contains(&cpu))?;
        let notes = self.found.notes.join("; ");
        let notes = if notes.is_empty() { notes } else { format!(" ({notes})") };
        if self.found.vms.is_empty() {
            let why = "no VM that may be placed has a vhost thread or an iothread";
            return Err(Trouble::NoIo(format!("{why}{notes}")));
        }
        if cores.len() < 2 {
            let (usable, online) = (cores.len() as u64, online.to_string());
            return Err(Trouble::Cores { usable, online, why: notes });
        }
        Ok(cores)
    }

    /// Moves vCPUs off the I/O cores and interrupts onto them. If there are no I/O cores, moves both back.
    fn place_the_rest(&mut self, told: &mut Vec<String>) -> Result<(), Trouble> {
        let Some(pinning) = &mut self.pinning else { return Ok(()) };
        for vm in &self.found.vms {
            let rest: CpuSet = vm.for_vcpus.iter().filter(|cpu| !self.io_cores.contains(cpu)).collect();
            for &thread in &vm.vcpus {
                let outcome = if self.io_cores.is_empty() || rest.is_empty() {
                    pinning.thread_back(thread)
                } else {
                    pinning.thread(thread, &rest, vm.own_groups.get(&thread).map(String::as_str))
                };
                take(outcome, told)?;
            }
        }
        let interrupts: BTreeSet<_> =
            self.found.vms.iter().flat_map(|vm| vm.interrupts.iter().cloned()).collect();
        if self.io_cores.is_empty() {
            take(pinning.interrupts_back_but(&BTreeSet::new()), told)?;
            return Ok(());
        }
        let cores: CpuSet = self.io_cores.iter().copied().collect();
        for interrupt in interrupts {
            let name = format!("interrupt {} of {}", interrupt.number, interrupt.adapter);
            if self.refused.contains(&name) {
                continue;
            }
            match pinning.interrupt(interrupt.number, &cores) {
                Ok(()) => {}
                // The kernel refuses to move managed interrupts; moving the others still helps.
                Err(error)
                    if matches!(error, Error::Access { .. } | Error::HalfMade { .. })
                        || is_of_one(&error) =>
                {
                    told.push(format!("The {name} stays where it is: {error}"));
                    self.refused.insert(name);
                }
                // Of the journal or its lock, for which the next interrupt would wait once more.
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Places the rest, then the queues.
    fn place(&mut self, actions: &[Action]) -> Result<Vec<String>, Trouble> {
        let mut told = Vec::new();
        // vCPUs first, so that the cores are free when the I/O threads arrive.
        self.place_the_rest(&mut told)?;
        for action in actions {
            let Action::Move { queue, to } = *action else { continue };
            let (Some(&thread), Some(pinning)) = (self.numbers.key(queue), &mut self.pinning) else {
                continue;
            };
            let group = self.found.vms.iter().find_map(|vm| vm.own_groups.get(&thread));
            let outcome = match to {
                Some(core) => {
                    pinning.thread(thread, &[core].into_iter().collect(), group.map(String::as_str))
                }
                None => pinning.thread_back(thread),
            };
            if take(outcome, &mut told)? {
                self.layout.insert(queue, to);
            }
        }
        Ok(told)
    }
}

/// Returns whether a thread was pinned. One that has ended needs no CPUs. One whose control group has excluded these
/// CPUs since the last search for VMs stays where it is; the next search notices that.
fn take(outcome: Result<(), Error>, told: &mut Vec<String>) -> Result<bool, Trouble> {
    let is_forbidden = |source: &io::Error| source.kind() == io::ErrorKind::InvalidInput;
    match outcome {
        Ok(()) => Ok(true),
        Err(Error::Access { path, source, .. }) if is_forbidden(&source) => {
            told.push(format!("{} stays where it is: its control group forbids the CPUs", path.display()));
            Ok(false)
        }
        Err(error) if is_of_one(&error) => {
            told.push(exits::with_causes_in_brackets(&error));
            Ok(false)
        }
        Err(error) => Err(error.into()),
    }
}

/// Tests whether an error concerns one thread or group, and says nothing about the others. The next search for VMs notices
/// what others have changed, and leaves it to them. A thread whose CPUs could not be restored stays where it is. So does
/// what another exitless has changed since, until that is undone.
fn is_of_one(error: &Error) -> bool {
    match error {
        Error::ThreadGone { .. }
        | Error::ChangedSince { .. }
        | Error::RestedOn { .. }
        | Error::ManyCpus { .. } => true,
        Error::Access { source, .. } => source.kind() != io::ErrorKind::PermissionDenied,
        _ => false,
    }
}

impl<A: Actions> Actuator for Vhost<A> {
    fn look(&mut self) -> Result<Seen, Trouble> {
        self.discover()?;
        let cores = self.cores()?;
        let mut told = Vec::new();
        if !self.io_cores.is_empty() || self.pinning.as_ref().is_some_and(|pinning| pinning.holds()) {
            // VMs may have started and CPUs gone offline since: keep the I/O cores free of vCPUs. Without I/O cores,
            // restore what could not be restored when they were given back.
            self.place_the_rest(&mut told)?;
        }
        let time = Instant::now();
        let seconds = self.looked.replace(time).map_or(0.0, |before| (time - before).as_secs_f64());
        let vms = self.found.vms.clone();
        let threads = vms.iter().flat_map(ManagedVm::threads).chain(self.found.beside.iter().copied());
        let used = self.meter.read(&self.root, threads, seconds);
        let of = |thread: &ThreadId| used.get(thread).copied().unwrap_or_default();
        let beside = |time: fn(Used) -> f64| total(self.found.beside.iter().map(|thread| time(of(thread))));
        let (computing, waiting) = (beside(|used| used.ran), beside(|used| used.waited));

        let mut queues = Vec::new();
        let mut seen = Vec::new();
        for vm in &vms {
            let carried = self.taps.read(&self.root, &vm.taps);
            let vhost: f64 = vm.io.iter().filter(|io| io.is_vhost).map(|io| of(&io.thread).ran).sum();
            let mut numbers = Vec::new();
            for io in vm.io.iter().filter(|io| used.contains_key(&io.thread)) {
                let Used { ran, .. } = of(&io.thread);
                let number = self.numbers.number(&io.thread);
                let core = self.layout.get(&number).copied().flatten();
                // The kernel does not say which thread serves which tap, so the VM's traffic is divided by CPU time.
                let part =
                    if io.is_vhost && vhost > 0.0 && seconds > 0.0 { ran / vhost / seconds } else { 0.0 };
                numbers.push(number);
                queues.push(QueueView {
                    number,
                    worker: worker_at(core),
                    node: vm.node,
                    useful: ran,
                    requests: carried.packets as f64 * part,
                    bytes: carried.bytes as f64 * part,
                });
            }
            seen.push(VmSeen {
                name: vm.name.clone(),
                pid: vm.pid,
                computing: total(vm.vcpus.iter().map(|thread| of(thread).ran)),
                waiting: total(vm.vcpus.iter().map(|thread| of(thread).waited)),
                queues: numbers,
                exits: None,
            });
        }
        if queues.is_empty() {
            return Err(Trouble::NoIo("all I/O threads have ended".to_owned()));
        }
        let mut workers = vec![WorkerView {
            number: worker_at(None),
            core: None,
            // These threads do not share a core, so the busiest one, not the sum, shows whether a CPU is full.
            useful: at(&queues, None).fold(0.0, f64::max),
        }];
        workers.retain(|_| at(&queues, None).next().is_some());
        // A thread that could not be moved is still on its core.
        let cores_of_queues = self.layout.values().flatten();
        let io_cores: BTreeSet<u32> = self.io_cores.iter().chain(cores_of_queues).copied().collect();
        workers.extend(io_cores.into_iter().map(|core| WorkerView {
            number: worker_at(Some(core)),
            core: Some(core),
            useful: total(at(&queues, Some(core))).min(1.0),
        }));
        let view = View {
            cores,
            workers,
            queues,
            computing: computing + total(seen.iter().map(|vm| vm.computing)),
            waiting: waiting + total(seen.iter().map(|vm| vm.waiting)),
        };
        let notes = self.found.notes.iter().cloned().chain(told).collect();
        Ok(Seen { view, notes, host_busy: self.busy.read(&self.root), vms: seen, exits_missing: None })
    }

    fn act(&mut self, actions: &[Action], wanted: &Layout) -> Result<Vec<String>, Trouble> {
        self.io_cores = wanted.0.keys().flatten().copied().collect();
        let outcome = self.place(actions);
        if outcome.is_err() {
            // I/O threads that were not moved keep their cores.
            self.io_cores.extend(self.layout.values().flatten());
        }
        outcome
    }

    fn give_back(&mut self) -> Vec<String> {
        self.layout.clear();
        self.io_cores.clear();
        self.pinning.as_mut().map_or_else(Vec::new, Pinning::release)
    }

    fn name_of(&self, queue: u32) -> String {
        let name = self.numbers.key(queue).and_then(|thread| self.names.get(thread));
        name.cloned().unwrap_or_else(|| format!("queue {queue}"))
    }
}

/// The number of a worker, derived from its core; 0 is the one without a core.
fn worker_at(core: WorkerCore) -> u32 {
    core.map_or(0, |core| core.saturating_add(1))
}

fn at(queues: &[QueueView], core: WorkerCore) -> impl Iterator<Item = f64> + '_ {
    queues.iter().filter(move |queue| queue.worker == worker_at(core)).map(|queue| queue.useful)
}

#[cfg(test)]
#[path = "vhost_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "vhost_groups_tests.rs"]
mod groups_tests;
