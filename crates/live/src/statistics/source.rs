//! Reading VMs, each from the first source that works for it.

use super::{Failure, Found, Missing, Origin, VmStatistics, chain, debugfs, descriptors, query};
use host::scheduling::ThreadId;
use host::vms::Vm;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// QEMU answers within milliseconds when it can at all.
const TIMEOUT: Duration = Duration::from_secs(3);
/// So many VMs are asked at the same time, lest one whose monitor is taken holds up all others.
const AT_ONCE: usize = 16;
/// In the order in which they are tried.
const ORDER: [Origin; 3] = [Origin::Qmp, Origin::Descriptors, Origin::Debugfs];

/// KVM's counters of some VMs.
#[derive(Debug)]
pub struct StatisticsSource {
    root: PathBuf,
    timeout: Duration,
    vms: Vec<Watched>,
}

#[derive(Debug)]
struct Watched {
    vm: Vm,
    /// The source that worked last time, and those that did not before it.
    used: Option<(Origin, Vec<Failure>)>,
}

impl StatisticsSource {
    /// The source for these VMs of the host below `root`. Nothing is read or connected to yet.
    #[must_use]
    pub fn new(root: &Path, vms: &[Vm]) -> Self {
        let mut source = Self { root: root.to_owned(), timeout: TIMEOUT, vms: Vec::new() };
        source.watch(vms);
        source
    }

    /// Reads these VMs from now on, and no others. Those that were read before keep the source that worked for them.
    pub fn watch(&mut self, vms: &[Vm]) {
        let mut before = std::mem::take(&mut self.vms);
        let mut used = |vm: &Vm| {
            let is_it = |one: &&mut Watched| (one.vm.pid, one.vm.start_ticks) == (vm.pid, vm.start_ticks);
            before.iter_mut().find(is_it)?.used.take()
        };
        self.vms = vms.iter().map(|vm| Watched { vm: vm.clone(), used: used(vm) }).collect();
    }

    /// Gives a monitor so much time in all, instead of 3 s.
    #[must_use]
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Reads all VMs, in the order in which they were given. A source that worked is used again; when it fails,
    /// all are tried anew.
    pub fn read(&mut self) -> Vec<VmStatistics> {
        let (root, timeout) = (&self.root, self.timeout);
        let mut read = Vec::with_capacity(self.vms.len());
        for some in self.vms.chunks_mut(AT_ONCE) {
            thread::scope(|scope| {
                let readers: Vec<_> =
                    some.iter_mut().map(|one| scope.spawn(move || one.read(root, timeout))).collect();
                // A reader that panicked has said so; the VM is left out rather than all others with it.
                read.extend(readers.into_iter().filter_map(|reader| reader.join().ok()));
            });
        }
        read
    }
}

impl Watched {
    fn read(&mut self, root: &Path, timeout: Duration) -> VmStatistics {
        if let Some((origin, failures)) = &self.used {
            if let Ok(found) = attempt(*origin, root, &self.vm, timeout) {
                return self.statistics(Some((*origin, found)), failures.clone());
            }
        }
        self.used = None;
        let mut failures = Vec::new();
        for origin in ORDER {
            match attempt(origin, root, &self.vm, timeout) {
                Ok(found) => {
                    self.used = Some((origin, failures.clone()));
                    return self.statistics(Some((origin, found)), failures);
                }
                Err(cause) => failures.push(Failure { origin, cause }),
            }
        }
        self.statistics(None, failures)
    }

    fn statistics(&self, found: Option<(Origin, Found)>, failures: Vec<Failure>) -> VmStatistics {
        let origin = found.as_ref().map(|(origin, _)| *origin);
        let found = found.map(|(_, found)| found).unwrap_or_default();
        let mut missing = vec![Missing::Reasons, Missing::HandlingTimes];
        if found.vcpus.is_empty() {
            missing.push(Missing::Vcpus);
        }
        VmStatistics {
            pid: self.vm.pid,
            start_ticks: self.vm.start_ticks,
            name: self.vm.name.clone(),
            origin,
            failures,
            total: found.total,
            vcpus: found.vcpus,
            units: found.units,
            missing,
            read_at: Instant::now(),
        }
    }
}

fn attempt(origin: Origin, root: &Path, vm: &Vm, timeout: Duration) -> Result<Found, String> {
    let found = match origin {
        Origin::Qmp => query::read(root, vm, timeout).map_err(|error| chain(&error)),
        Origin::Descriptors => descriptors::read(vm).map_err(|error| chain(&error)),
        Origin::Debugfs => debugfs::read(root, vm).map_err(|error| chain(&error)),
    }?;
    // Asked at last: a process that is there now was there all the time.
    match is_of_another(root, vm) {
        true => Err(format!("The VM has ended: process {} is another one now; find the VMs again", vm.pid)),
        false => Ok(found),
    }
}

/// Tests whether the VM's number is that of a later process. One that does not tell its start is taken for the VM's.
fn is_of_another(root: &Path, vm: &Vm) -> bool {
    let process = ThreadId { pid: vm.pid, tid: vm.pid };
    process.start_ticks(root).is_some_and(|start_ticks| start_ticks != vm.start_ticks)
}
