//! The VMs of a stock host whose I/O is done by threads of the kernel's vhost or by QEMU's iothreads.

use super::computing::node_of;
use super::pinning::Groups;
use host::CpuSet;
use host::scheduling::{ThreadId, isolated, nohz_full, online};
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
    /// The online CPUs that its control group allows, without isolated ones that `--cores` does not name.
    pub(super) cpus: CpuSet,
    /// Those of them that are not isolated, or all if there are no others. On isolated CPUs the scheduler does not spread
    /// vCPUs.
    pub(super) for_vcpus: CpuSet,
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
    /// vCPUs of other VMs that share CPUs with these. [`Found::shared_cpus`] sets them.
    pub(super) beside: Vec<ThreadId>,
    others: Vec<OtherThread>,
}

/// A vCPU or an I/O thread of a VM that is not placed.
#[derive(Debug, Clone, PartialEq, Eq)]
struct OtherThread {
    vm: String,
    thread: ThreadId,
    is_vcpu: bool,
    cpus: CpuSet,
    /// CPUs that it may lack although nobody has pinned it.
    excused: CpuSet,
}

/// The CPUs that were online in all searches since a VM was first found, by its process and start.
pub(super) type Steady = BTreeMap<(i32, u64), CpuSet>;

/// Searches for VMs below `root`. `pinned` returns the CPUs to which the monitor itself has pinned a thread.
///
/// # Errors
/// When there is no readable `proc`.
pub(super) fn find(
    root: &Path,
    only: Option<&CpuSet>,
    steady: &mut Steady,
    pinned: impl Fn(ThreadId) -> Option<CpuSet>,
) -> Result<Found, host::Error> {
    let all = Vms::discover(root)?;
    let online = online(root).unwrap_or_default();
    let (isolated, nohz_full) = (isolated(root), nohz_full(root));
    let nodes = host::scheduling::nodes(root);
    let mut found = Found { notes: unreadable(&all).into_iter().collect(), ..Found::default() };
    let mut still_steady = Steady::new();
    for vm in &all.vms {
        let process = (vm.pid, vm.start_ticks);
        let before = steady.remove(&process).unwrap_or_else(|| online.clone());
        let steady: CpuSet = online.iter().filter(|cpu| before.contains(*cpu)).collect();
        // The kernel starts init, and so all processes, on CPUs that are not isolated (kernel/sched/core.c,
        // sched_init_smp), and its own threads, as those of vhost can be, on CPUs with ticks (kernel/kthread.c, kthread).
        let excused = |thread: ThreadId| -> CpuSet {
            let is_kernel = thread.pid != vm.pid;
            let is_excused = |cpu: u32| {
                isolated.contains(cpu) || !steady.contains(cpu) || is_kernel && nohz_full.contains(cpu)
            };
            online.iter().filter(|&cpu| is_excused(cpu)).collect()
        };
        let io = io_threads(vm);
        let vcpus: Vec<ThreadId> =
            vm.vcpus.iter().filter_map(|vcpu| vcpu.thread).map(|tid| ThreadId { pid: vm.pid, tid }).collect();
        let pinned_threads: Vec<ThreadId> =
            vcpus.iter().copied().chain(io.iter().map(|io| io.thread)).collect();
        let groups = Groups::of(root, &pinned_threads);
        let of_group: CpuSet = match groups.cpus(root) {
            Some(group) => online.iter().filter(|cpu| group.contains(*cpu)).collect(),
            None => online.clone(),
        };
        let is_named = |cpu: u32| only.is_some_and(|only| only.contains(cpu));
        let left: CpuSet = of_group.iter().filter(|&cpu| is_named(cpu) || !isolated.contains(cpu)).collect();
        let usable = left.iter().filter(|&cpu| only.is_none() || is_named(cpu)).count();
        let why = others_say(root, &groups, &left, &pinned_threads, &pinned, &excused).or_else(|| {
            let why = if left == of_group { "" } else { "; isolated CPUs are used if --cores names them" };
            (usable < 2).then(|| {
                format!("its control group leaves it CPUs {of_group}, of which {usable} may be used{why}")
            })
        });
        if io.is_empty() || why.is_some() {
            if let (Some(why), false) = (why, io.is_empty()) {
                found.notes.push(format!("VM {} is left alone: {why}", vm.name));
            }
            found.others.extend(pinned_threads.iter().enumerate().filter_map(|(number, &thread)| {
                // The monitor restores threads that it has pinned.
                let cpus = if pinned(thread).is_some() { left.clone() } else { thread.allowed(root)? };
                let (is_vcpu, excused) = (number < vcpus.len(), excused(thread));
                Some(OtherThread { vm: vm.name.clone(), thread, is_vcpu, cpus, excused })
            }));
            still_steady.insert(process, steady);
            continue;
        }
        let taps = taps::of_process(root, vm.pid);
        let interrupts: BTreeSet<AdapterInterrupt> =
            taps.iter().flat_map(|tap| taps::adapter_interrupts(root, tap)).collect();
        let balanced: CpuSet = left.iter().filter(|cpu| !isolated.contains(*cpu)).collect();
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
            for_vcpus: if balanced.is_empty() { left.clone() } else { balanced },
            cpus: left,
        });
        still_steady.insert(process, steady);
    }
    *steady = still_steady;
    Ok(found)
}

/// The note about processes that may be VMs. It has no number, which would change with each process that starts or ends,
/// and make the note a new one.
fn unreadable(all: &Vms) -> Option<String> {
    let hides_all = all.unreadable > 0 && all.vms.is_empty();
    hides_all.then(|| format!("Some processes cannot be inspected; {AS_ROOT}"))
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

/// The reason to leave a VM alone: others set the policy of its threads (libvirt's `vcpusched`, `chrt`), or their affinity
/// (`vcpupin`, `taskset`, another program). `excused` returns the CPUs that a thread may lack without that.
fn others_say(
    root: &Path,
    groups: &Groups,
    left: &CpuSet,
    threads: &[ThreadId],
    pinned: &impl Fn(ThreadId) -> Option<CpuSet>,
    excused: &impl Fn(ThreadId) -> CpuSet,
) -> Option<String> {
    for &thread in threads {
        // Such a thread runs until it sleeps. Another one on its CPU does not run meanwhile, nor does the kernel count that
        // as waiting before it runs again, so the lack of a CPU would not be noticed.
        if thread.is_real_time(root) {
            let tid = thread.tid;
            return Some(format!(
                "thread {tid} has a real-time policy, so others on its CPU could wait forever"
            ));
        }
        let Some(allowed) = thread.allowed(root) else { continue };
        let ours = pinned(thread);
        let is_fine = match &ours {
            // CPUs that have gone offline are not a change by others.
            Some(ours) => {
                left.iter().all(|cpu| ours.contains(cpu) == allowed.contains(cpu)) || !ours.meets(left)
            }
            None => allowed.contains_all(left) || contains_but(&allowed, left.iter(), &excused(thread)),
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

/// Tests whether a thread may use all these CPUs, except excused ones.
fn contains_but(allowed: &CpuSet, mut cpus: impl Iterator<Item = u32>, excused: &CpuSet) -> bool {
    cpus.all(|cpu| allowed.contains(cpu) || excused.contains(cpu))
}

impl Found {
    /// The CPUs that every VM may use, in order. A VM that would reduce them to fewer than two is left alone; earlier
    /// VMs win. Those to which others have bound a VM are left out, unless `only` names the CPUs.
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
                self.others.extend(vm.vcpus.iter().map(|&thread| OtherThread {
                    vm: vm.name.clone(),
                    thread,
                    is_vcpu: true,
                    cpus: vm.cpus.clone(),
                    excused: CpuSet::default(),
                }));
                return false;
            }
            shared = Some(with);
            true
        });
        let mut shared = shared.unwrap_or_default();
        let bound = self.bound(&shared);
        if only.is_none() {
            shared.retain(|&cpu| !bound.values().any(|cpus| cpus.contains(cpu)));
            notes.extend(bound.iter().map(|(vm, cpus)| {
                format!("CPUs {cpus}, to which VM {vm} is bound, are used for I/O only if --cores names them")
            }));
        }
        let shares = |cpus: &CpuSet| shared.iter().any(|&cpu| cpus.contains(cpu));
        let others = self.others.iter().filter(|other| other.is_vcpu && shares(&other.cpus));
        self.beside = others.map(|other| other.thread).collect();
        self.notes.extend(notes);
        shared
    }

    /// Those of the shared CPUs to which others have bound VMs, by VM. A thread that may use all of them is not bound.
    fn bound(&self, shared: &[u32]) -> BTreeMap<String, CpuSet> {
        let mut bound: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
        for other in &self.others {
            if !contains_but(&other.cpus, shared.iter().copied(), &other.excused) {
                let cpus = shared.iter().copied().filter(|&cpu| other.cpus.contains(cpu));
                bound.entry(&other.vm).or_default().extend(cpus);
            }
        }
        let bound = bound.into_iter().filter(|(_, cpus)| !cpus.is_empty());
        bound.map(|(vm, cpus)| (vm.to_owned(), cpus.into_iter().collect())).collect()
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
    fn a_note_stays_the_same_while_processes_come_and_go() {
        let note = |unreadable| super::unreadable(&Vms { unreadable, ..Vms::default() });
        assert!(note(1).is_some_and(|note| note.contains("cannot be inspected")));
        assert_eq!((note(0), note(1)), (None, note(2)));
    }

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
