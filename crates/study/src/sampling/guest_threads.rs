//! The sampled threads of guests, and the kind of work of each.

use exits::counted;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use host::scheduling::threads;
use host::vms::{Vm, Vms};

use super::SampledGuest;
use super::thread::{ThreadCounters, Work};

/// A thread: the index of its guest in the list of guests, and the thread ID.
pub(super) type ThreadKey = (usize, i32);

/// One reading of all guests' threads.
pub(super) type ThreadReading = BTreeMap<ThreadKey, (Work, ThreadCounters)>;

/// The guests whose threads are read.
#[derive(Debug)]
pub(super) struct GuestThreads {
    root: PathBuf,
    guests: Vec<Tracked>,
}

#[derive(Debug)]
struct Tracked {
    name: String,
    process: i32,
    known: BTreeMap<i32, Work>,
    /// vhost workers that are kernel threads outside the guest's process.
    beside: Vec<i32>,
}

impl GuestThreads {
    /// Determines the work of each thread; also returns warnings about what could not be determined.
    pub(super) fn find(root: &Path, guests: &[SampledGuest]) -> (Self, Vec<String>) {
        let mut warnings = Vec::new();
        let found = if guests.is_empty() { Ok(Vms::default()) } else { Vms::discover(root) };
        let found = found.unwrap_or_else(|error| {
            warnings.push(format!("The purpose of threads is unknown: {error}"));
            Vms::default()
        });
        let tracked = guests.iter().map(|guest| {
            let vm = found.vms.iter().find(|vm| vm.pid == guest.process);
            if vm.is_none_or(|vm| vm.vcpus.iter().all(|vcpu| vcpu.thread.is_none())) {
                warnings.push(format!(
                    "No vCPU threads were found in {}'s process; all its threads count as emulator (run as root, \
                     with KVM)",
                    guest.name
                ));
            }
            Tracked::of(guest, vm)
        });
        let guests = tracked.collect();
        (Self { root: root.to_owned(), guests }, warnings)
    }

    /// The name of a guest.
    pub(super) fn name(&self, guest: usize) -> &str {
        &self.guests[guest].name
    }

    /// A reading of all threads.
    pub(super) fn read(&self) -> ThreadReading {
        let mut reading = ThreadReading::new();
        for (at, guest) in self.guests.iter().enumerate() {
            let own = threads(&self.root, guest.process).unwrap_or_default();
            let own = own.into_iter().map(|tid| (guest.process, tid));
            let beside = guest.beside.iter().map(|&tid| (tid, tid));
            for (process, tid) in own.chain(beside) {
                if let Some(times) = ThreadCounters::read(&self.root, process, tid) {
                    reading.insert((at, tid), (guest.work(&self.root, tid), times));
                }
            }
        }
        reading
    }
}

impl Tracked {
    fn of(guest: &SampledGuest, vm: Option<&Vm>) -> Self {
        let mut known = BTreeMap::new();
        let mut beside = Vec::new();
        if let Some(vm) = vm {
            known.extend(vm.iothreads.iter().map(|thread| (thread.tid, Work::IoThread)));
            known.extend(vm.vhost.iter().map(|thread| (thread.tid, Work::Vhost)));
            known.extend(vm.vcpus.iter().filter_map(|vcpu| Some((vcpu.thread?, Work::Vcpu(vcpu.number)))));
            beside.extend(vm.vhost.iter().filter(|thread| thread.kernel).map(|thread| thread.tid));
        }
        Self { name: guest.name.clone(), process: guest.process, known, beside }
    }

    /// The work of a thread; if it was created later, by its name.
    fn work(&self, root: &Path, tid: i32) -> Work {
        if let Some(&work) = self.known.get(&tid) {
            return work;
        }
        let file = root.join(format!("proc/{}/task/{tid}/comm", self.process));
        let name = fs::read_to_string(file).unwrap_or_default();
        if name.starts_with("vhost-") { Work::Vhost } else { Work::Emulator }
    }
}

/// The times of threads between readings.
#[derive(Debug, Default)]
pub(super) struct ThreadsSpent {
    /// Times by guest and work; each vCPU of a guest has its own entry.
    pub(super) by_work: BTreeMap<(usize, Work), ThreadCounters>,
    /// The total lifetime of vCPU threads in the intervals, in nanoseconds: the base of their waiting share.
    pub(super) vcpu_time_ns: u64,
    went_back: u64,
}

impl ThreadsSpent {
    /// Adds the times between two readings that are `elapsed_ns` apart.
    pub(super) fn add(&mut self, before: &ThreadReading, after: &ThreadReading, elapsed_ns: u64) {
        for (key, (work, earlier)) in before {
            let Some((_, later)) = after.get(key) else { continue };
            match later.since(earlier) {
                Some(more) => {
                    self.by_work.entry((key.0, *work)).or_default().add(&more);
                    if matches!(work, Work::Vcpu(_)) {
                        self.vcpu_time_ns += elapsed_ns;
                    }
                }
                None => self.went_back += 1,
            }
        }
        // QEMU's worker threads come and go: count the whole time of one that was created in the interval.
        for (key, (work, times)) in after.iter().filter(|(key, _)| !before.contains_key(key)) {
            if *work == Work::Emulator {
                self.by_work.entry((key.0, *work)).or_default().add(times);
            }
        }
    }

    /// The sum of one kind of work over the guests.
    pub(super) fn sum(&self, name: &str) -> Option<ThreadCounters> {
        let of_kind = self.by_work.iter().filter(|((_, work), _)| work.name() == name);
        of_kind.fold(None, |sum: Option<ThreadCounters>, (_, times)| {
            let mut sum = sum.unwrap_or_default();
            sum.add(times);
            Some(sum)
        })
    }

    /// Warnings about data that was left out.
    pub(super) fn warnings(&self) -> Vec<String> {
        let ran = self.by_work.values().any(|times| times.run_ns > 0);
        let ticks = self.by_work.values().any(|times| times.user + times.system > 0);
        let mut warnings = Vec::new();
        if ticks && !ran {
            warnings.push(
                "The kernel gives no run times of threads: /proc/PID/task/TID/schedstat needs CONFIG_SCHED_INFO"
                    .to_owned(),
            );
        }
        if self.went_back > 0 {
            warnings.push(format!(
                "Times of threads went backwards, or their IDs were reused, {}; such intervals are left out",
                counted(self.went_back, "time")
            ));
        }
        warnings
    }
}

#[cfg(test)]
#[path = "guest_threads_tests.rs"]
mod tests;
