//! Reads VMs, each from the first source that works for it.

use super::{Failure, Found, Missing, Origin, VmStatistics, debugfs, descriptors, query};
use exits::with_causes_in_brackets;
use host::scheduling::ThreadId;
use host::vms::Vm;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// The timeout for QEMU, which answers within milliseconds if at all.
const TIMEOUT: Duration = Duration::from_secs(3);
/// The number of VMs that are read in parallel, so that one whose monitor is in use does not delay the others.
const AT_ONCE: usize = 16;
/// The order in which sources are tried.
const ORDER: [Origin; 3] = [Origin::Qmp, Origin::Descriptors, Origin::Debugfs];

/// The source of KVM's counters for some VMs.
#[derive(Debug)]
pub struct StatisticsSource {
    root: PathBuf,
    timeout: Duration,
    vms: Vec<Watched>,
}

#[derive(Debug)]
struct Watched {
    vm: Vm,
    /// The source that worked last time, and the failures of those before it.
    used: Option<(Origin, Vec<Failure>)>,
}

impl StatisticsSource {
    /// A source for these VMs of the host below `root`. Does not read or connect yet.
    #[must_use]
    pub fn new(root: &Path, vms: &[Vm]) -> Self {
        let mut source = Self { root: root.to_owned(), timeout: TIMEOUT, vms: Vec::new() };
        source.watch(vms);
        source
    }

    /// Reads only these VMs from now on. Those that were read before keep the source that worked for them.
    pub fn watch(&mut self, vms: &[Vm]) {
        let mut before = std::mem::take(&mut self.vms);
        let mut used = |vm: &Vm| {
            let is_it = |one: &&mut Watched| (one.vm.pid, one.vm.start_ticks) == (vm.pid, vm.start_ticks);
            before.iter_mut().find(is_it)?.used.take()
        };
        self.vms = vms.iter().map(|vm| Watched { vm: vm.clone(), used: used(vm) }).collect();
    }

    /// Sets the total timeout of a monitor, instead of 3 s.
    #[cfg(test)]
    pub(crate) fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Reads all VMs, in the order in which they were given. The source that worked last time is used again; if it
    /// fails, all are tried again.
    pub fn read(&mut self) -> Vec<VmStatistics> {
        let (root, timeout) = (&self.root, self.timeout);
        let mut read = Vec::with_capacity(self.vms.len());
        for some in self.vms.chunks_mut(AT_ONCE) {
            thread::scope(|scope| {
                let readers: Vec<_> =
                    some.iter_mut().map(|one| scope.spawn(move || one.read(root, timeout))).collect();
                // A reader that panicked has printed its message. Leave out its VM and keep the others.
                read.extend(readers.into_iter().filter_map(|reader| reader.join().ok()));
            });
        }
        read
    }
}

impl Watched {
    fn read(&mut self, root: &Path, timeout: Duration) -> VmStatistics {
        if let Some((origin, failures)) = &self.used
            && let Ok(found) = attempt(*origin, root, &self.vm, timeout)
        {
            return self.statistics(Some((*origin, found)), failures.clone());
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
        Origin::Qmp => query::read(root, vm, timeout).map_err(|error| with_causes_in_brackets(&error)),
        Origin::Descriptors => descriptors::read(vm).map_err(|error| with_causes_in_brackets(&error)),
        Origin::Debugfs => debugfs::read(root, vm).map_err(|error| with_causes_in_brackets(&error)),
    }?;
    // Checked last: if the process is the VM's now, it was so during the reading.
    match is_of_another(root, vm) {
        true => Err(format!("The VM has ended: process {} is another one now; find the VMs again", vm.pid)),
        false => Ok(found),
    }
}

/// Tests whether the VM's PID now belongs to another process. If the start time is not readable, it is assumed to be
/// the VM's.
fn is_of_another(root: &Path, vm: &Vm) -> bool {
    let process = ThreadId { pid: vm.pid, tid: vm.pid };
    process.start_ticks(root).is_some_and(|start_ticks| start_ticks != vm.start_ticks)
}
