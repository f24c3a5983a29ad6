//! The VMs of a stock host whose I/O is done by threads of the kernel's vhost or by QEMU's iothreads.

use super::computing::node_of;
use super::pinning::Groups;
use host::CpuSet;
use host::scheduling::{ThreadId, online};
use host::taps::{self, AdapterInterrupt};
use host::vms::{AS_ROOT, Vm, Vms};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// A VM that the monitor may place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ManagedVm {
    pub(super) pid: i32,
    pub(super) start_ticks: u64,
    pub(super) name: String,
    pub(super) vcpus: Vec<ThreadId>,
    /// Threads of vhost, then QEMU's iothreads.
    pub(super) io: Vec<IoThread>,
    pub(super) taps: Vec<String>,
    pub(super) interrupts: Vec<AdapterInterrupt>,
    /// The online CPUs that its control group allows.
    pub(super) cpus: CpuSet,
    /// The `cpuset.cpus` files of control groups that hold one thread alone, as libvirt makes them.
    pub(super) own_groups: BTreeMap<ThreadId, String>,
    pub(super) node: Option<u32>,
}

impl ManagedVm {
    /// The threads that are placed.
    pub(super) fn threads(&self) -> impl Iterator<Item = ThreadId> + '_ {
        self.vcpus.iter().copied().chain(self.io.iter().map(|io| io.thread))
    }
}

/// A thread that does I/O for a VM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct IoThread {
    pub(super) thread: ThreadId,
    /// `web vhost-4000/4007`, `web iothread1`.
    pub(super) name: String,
    pub(super) is_vhost: bool,
}

/// The VMs that may be placed, and the reasons why others are left alone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) vms: Vec<ManagedVm>,
    pub(super) notes: Vec<String>,
}

/// Searches for VMs below `root`. `pinned` returns the CPUs to which the monitor itself has pinned a thread.
///
/// # Errors
/// When there is no readable `proc`.
pub(super) fn find(
    root: &Path,
    only: Option<&CpuSet>,
    pinned: impl Fn(ThreadId) -> Option<CpuSet>,
) -> Result<Found, host::Error> {
    let all = Vms::discover(root)?;
    let online = online(root).unwrap_or_default();
    let nodes = host::scheduling::nodes(root);
    let mut found = Found::default();
    if all.unreadable > 0 && all.vms.is_empty() {
        let processes = if all.unreadable == 1 { "process" } else { "processes" };
        found.notes.push(format!("{} {processes} cannot be inspected; {AS_ROOT}", all.unreadable));
    }
    for vm in &all.vms {
        let io = io_threads(vm);
        if io.is_empty() {
            continue;
        }
        let vcpus: Vec<ThreadId> =
            vm.vcpus.iter().filter_map(|vcpu| vcpu.thread).map(|tid| ThreadId { pid: vm.pid, tid }).collect();
        let pinned_threads: Vec<ThreadId> =
            vcpus.iter().copied().chain(io.iter().map(|io| io.thread)).collect();
        let groups = Groups::of(root, &pinned_threads);
        let left: CpuSet = match groups.cpus(root) {
            Some(group) => online.iter().filter(|cpu| group.contains(*cpu)).collect(),
            None => online.clone(),
        };
        if let Some(why) = others_say(root, &groups, &left, &pinned_threads, &pinned) {
            found.notes.push(format!("VM {} is left alone: {why}", vm.name));
            continue;
        }
        let usable = left.iter().filter(|cpu| only.is_none_or(|only| only.contains(*cpu))).count();
        if usable < 2 {
            found.notes.push(format!(
                "VM {} is left alone: its control group leaves it CPUs {left}, of which {usable} may be used",
                vm.name
            ));
            continue;
        }
        let taps = taps::of_process(root, vm.pid);
        let interrupts: BTreeSet<AdapterInterrupt> =
            taps.iter().flat_map(|tap| taps::adapter_interrupts(root, tap)).collect();
        found.vms.push(ManagedVm {
            pid: vm.pid,
            start_ticks: vm.start_ticks,
            name: vm.name.clone(),
            node: node_of(root, &nodes, vcpus.iter().copied()),
            own_groups: groups.own(root, vm.pid),
            vcpus,
            io,
            taps,
            interrupts: interrupts.into_iter().collect(),
            cpus: left,
        });
    }
    Ok(found)
}

fn io_threads(vm: &Vm) -> Vec<IoThread> {
    let vhost = vm.vhost.iter().map(|one| {
        // Before Linux 6.4 vhost threads are kernel threads, with PIDs of their own.
        let pid = if one.kernel { one.tid } else { vm.pid };
        let name = format!("{} {}/{}", vm.name, one.name, one.tid);
        IoThread { thread: ThreadId { pid, tid: one.tid }, name, is_vhost: true }
    });
    let own = vm.iothreads.iter().map(|one| {
        let name = format!("{} {}", vm.name, one.name);
        IoThread { thread: ThreadId { pid: vm.pid, tid: one.tid }, name, is_vhost: false }
    });
    vhost.chain(own).collect()
}

/// The reason to leave a VM alone: others set the affinity of its threads (libvirt's `vcpupin`, `taskset`, another
/// program).
fn others_say(
    root: &Path,
    groups: &Groups,
    left: &CpuSet,
    threads: &[ThreadId],
    pinned: &impl Fn(ThreadId) -> Option<CpuSet>,
) -> Option<String> {
    for &thread in threads {
        let Some(allowed) = thread.allowed(root) else { continue };
        let ours = pinned(thread);
        let is_fine = match &ours {
            // CPUs that have gone offline are not a change by others.
            Some(ours) => {
                left.iter().all(|cpu| ours.contains(cpu) == allowed.contains(cpu)) || !ours.meets(left)
            }
            None => allowed.contains_all(left),
        };
        if is_fine {
            continue;
        }
        let wanted = ours.as_ref().unwrap_or(left);
        if let Some((group, cpus)) = groups.forbidding(root, thread, wanted, left) {
            let group = group.display();
            return Some(format!("the control group {group} leaves CPUs {cpus} to thread {}", thread.tid));
        }
        let whose = if ours.is_some() { "was moved by others" } else { "is pinned by others" };
        return Some(format!("thread {} {whose} to CPUs {allowed}", thread.tid));
    }
    None
}

impl Found {
    /// The CPUs that every VM may use, in order. A VM that would reduce them to fewer than two is left alone; earlier
    /// VMs win.
    pub(super) fn shared_cpus(&mut self, only: Option<&CpuSet>) -> Vec<u32> {
        let mut shared: Option<Vec<u32>> = None;
        let mut notes = Vec::new();
        self.vms.retain(|vm| {
            let own = vm.cpus.iter().filter(|cpu| only.is_none_or(|only| only.contains(*cpu)));
            let with: Vec<u32> =
                own.filter(|cpu| shared.as_ref().is_none_or(|shared| shared.contains(cpu))).collect();
            if with.len() < 2 {
                let why = "its control group leaves it too few of the CPUs of the other VMs";
                notes.push(format!("VM {} is left alone: {why}", vm.name));
                return false;
            }
            shared = Some(with);
            true
        });
        self.notes.extend(notes);
        shared.unwrap_or_default()
    }
}

/// Measures the traffic of VMs' taps since the last look.
#[derive(Debug, Default)]
pub(super) struct TapMeter(BTreeMap<String, taps::Carried>);

impl TapMeter {
    /// The sum of packets and bytes of these taps since the last look. A tap that is new counts as 0.
    pub(super) fn read(&mut self, root: &Path, names: &[String]) -> taps::Carried {
        let mut sum = taps::Carried::default();
        for name in names {
            let Some(now) = taps::carried(root, name) else { continue };
            let before = self.0.insert(name.clone(), now).unwrap_or(now);
            sum.packets += now.packets.saturating_sub(before.packets);
            sum.bytes += now.bytes.saturating_sub(before.bytes);
        }
        sum
    }

    /// Forgets all taps but these.
    pub(super) fn keep<'a>(&mut self, names: impl Iterator<Item = &'a String>) {
        let names: BTreeSet<&String> = names.collect();
        self.0.retain(|name, _| names.contains(name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taps_that_are_gone_are_forgotten() {
        let mut meter = TapMeter::default();
        for name in ["vnet0", "vnet1"] {
            meter.0.insert(name.to_owned(), taps::Carried::default());
        }
        meter.keep([&"vnet1".to_owned()].into_iter());
        assert_eq!(meter.0.into_keys().collect::<Vec<_>>(), ["vnet1"]);
    }
}
