//! The host CPU time of the threads of a VM's process, by kind of work.

use super::Vm;
use crate::scheduling::{ThreadId, stat_field, threads};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// A clock tick of `/proc`, in nanoseconds: USER_HZ is 100 on x86 (include/asm-generic/param.h).
const TICK_NS: u64 = 10_000_000;

/// The work of a thread for its VM.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Work {
    /// Runs vCPUs: the guest, and KVM and QEMU while they handle its exits.
    Vcpus,
    /// QEMU's main loop: timers, monitors, and devices without a thread.
    MainLoop,
    /// An I/O thread of QEMU, with its object's name.
    IoThread(String),
    /// Workers of vhost.
    Vhost,
    /// All other threads: workers of `aio=threads`, displays, migration.
    Others,
}

/// The counters of a thread since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Counters {
    start_ticks: u64,
    ran_ns: u64,
    guest_ns: u64,
    wake_ups: u64,
}

/// One reading of all threads of a VM.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ThreadReading(BTreeMap<ThreadId, (Work, Counters)>);

/// The CPU time of the threads with one kind of work between two readings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spent {
    /// The work.
    pub work: Work,
    /// The number of threads.
    pub threads: u32,
    /// Time on CPUs in nanoseconds, without the guest's.
    pub host_ns: u64,
    /// Time in the guest in nanoseconds; the kernel counts it in clock ticks of 10 ms.
    pub guest_ns: u64,
    /// The number of wake-ups from sleep (`voluntary_ctxt_switches`).
    pub wake_ups: u64,
}

impl ThreadReading {
    /// The threads of `vm` on the host below `root`. Omits threads that end during the reading.
    #[must_use]
    pub fn of(vm: &Vm, root: &Path) -> Self {
        let own = threads(root, vm.pid).unwrap_or_default().into_iter();
        let own = own.map(|tid| ThreadId { pid: vm.pid, tid });
        let kernel =
            vm.vhost.iter().filter(|one| one.kernel).map(|one| ThreadId { pid: one.tid, tid: one.tid });
        let read = |id: ThreadId| Some((id, (work(vm, id.tid), Counters::read(id, root)?)));
        Self(own.chain(kernel).filter_map(read).collect())
    }

    /// The CPU time since an earlier reading, the largest first. A thread that started since then counts with
    /// all its time.
    #[must_use]
    pub fn since(&self, before: &Self) -> Vec<Spent> {
        let mut sums: BTreeMap<&Work, Spent> = BTreeMap::new();
        for (id, (work, now)) in &self.0 {
            let then = before.0.get(id).map(|(_, then)| *then);
            let then = then.filter(|then| then.start_ticks == now.start_ticks).unwrap_or_default();
            let empty = || Spent { work: work.clone(), threads: 0, host_ns: 0, guest_ns: 0, wake_ups: 0 };
            let sum = sums.entry(work).or_insert_with(empty);
            let ran = now.ran_ns.saturating_sub(then.ran_ns);
            let guest = now.guest_ns.saturating_sub(then.guest_ns).min(ran);
            sum.threads += 1;
            sum.host_ns += ran - guest;
            sum.guest_ns += guest;
            sum.wake_ups += now.wake_ups.saturating_sub(then.wake_ups);
        }
        let mut spent: Vec<Spent> = sums.into_values().collect();
        spent.sort_by(|one, other| (other.host_ns, &one.work).cmp(&(one.host_ns, &other.work)));
        spent
    }
}

impl Counters {
    fn read(id: ThreadId, root: &Path) -> Option<Self> {
        let file = |name: &str| id.text(root, name);
        Some(Self {
            start_ticks: id.start_ticks(root)?,
            ran_ns: id.times(root)?.ran_ns,
            // Time in guests.
            guest_ns: stat_field::<u64>(&file("stat")?, 43).unwrap_or(0).saturating_mul(TICK_NS),
            wake_ups: wake_ups(&file("status")?).unwrap_or(0),
        })
    }
}

fn wake_ups(status: &str) -> Option<u64> {
    status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?.trim().parse().ok()
}

fn work(vm: &Vm, tid: i32) -> Work {
    if vm.vcpus.iter().any(|vcpu| vcpu.thread == Some(tid)) {
        return Work::Vcpus;
    }
    if vm.vhost.iter().any(|one| one.tid == tid) {
        return Work::Vhost;
    }
    match vm.iothreads.iter().find(|one| one.tid == tid) {
        Some(thread) => Work::IoThread(thread.name.clone()),
        // The first thread of a program has the ID of its process; QEMU's runs the main loop.
        None if tid == vm.pid => Work::MainLoop,
        None => Work::Others,
    }
}

#[cfg(test)]
#[path = "spent_tests.rs"]
mod tests;
