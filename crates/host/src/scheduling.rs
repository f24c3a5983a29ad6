//! The scheduler's facts of threads: run time, waiting time, and affinity.
//!
//! All values are `None` for threads that have ended, or if the kernel does not provide them.

use crate::thread_id::below;
use crate::{ControlGroup, CpuSet};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

pub use crate::thread_id::{ThreadId, stat_field, threads};

/// The run time and waiting time of a thread since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ThreadTimes {
    /// Nanoseconds on a CPU; for a vCPU's thread including the guest's time.
    pub ran_ns: u64,
    /// Nanoseconds in which it was runnable and waited for a CPU.
    pub waited_ns: u64,
}

impl ThreadId {
    /// The thread's times: the first two fields of `schedstat` (Documentation/scheduler/sched-stats.rst).
    /// `None` without `CONFIG_SCHED_INFO`.
    #[must_use]
    pub fn times(self, root: &Path) -> Option<ThreadTimes> {
        let text = self.text(root, "schedstat")?;
        let mut fields = text.split_whitespace().map(|field| field.parse::<u64>().ok());
        Some(ThreadTimes { ran_ns: fields.next()??, waited_ns: fields.next()?? })
    }

    /// Its start time, in clock ticks since boot (proc_pid_stat(5), fields 3, 20 and 22). A process that its parent has not
    /// waited for has ended, unless other threads of it run: then only its first thread has.
    #[must_use]
    pub fn start_ticks(self, root: &Path) -> Option<u64> {
        let stat = self.text(root, "stat")?;
        let is_zombie = matches!(stat_field(&stat, 3), Some('Z' | 'X'));
        if is_zombie && stat_field(&stat, 20).is_none_or(|threads: u64| threads <= 1) {
            return None;
        }
        stat_field(&stat, 22)
    }

    /// Tests whether its policy is `SCHED_FIFO`, `SCHED_RR` or `SCHED_DEADLINE` (sched(7); proc_pid_stat(5), field 41).
    #[must_use]
    pub fn is_real_time(self, root: &Path) -> bool {
        let policy = self.text(root, "stat").and_then(|stat| stat_field::<u32>(&stat, 41));
        matches!(policy, Some(1 | 2 | 6))
    }

    /// The CPUs on which it may currently run (`Cpus_allowed_list`).
    #[must_use]
    pub fn allowed(self, root: &Path) -> Option<CpuSet> {
        let text = self.text(root, "status")?;
        CpuSet::parse(text.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?)
    }

    /// The CPUs that its control group allows; `None` if no group restricts them.
    #[must_use]
    pub fn cpuset(self, root: &Path) -> Option<CpuSet> {
        ControlGroup::of(root, self)?.cpus(root)
    }
}

/// The online CPUs; `None` if they cannot be read.
#[must_use]
pub fn online(root: &Path) -> Option<CpuSet> {
    CpuSet::parse(&fs::read_to_string(below(root, "/sys/devices/system/cpu/online")).ok()?)
}

/// The CPUs that the scheduler leaves alone (`isolcpus=`): no process starts there.
#[must_use]
pub fn isolated(root: &Path) -> CpuSet {
    cpus(root, "isolated")
}

/// The CPUs without regular ticks (`nohz_full=`).
#[must_use]
pub fn nohz_full(root: &Path) -> CpuSet {
    cpus(root, "nohz_full")
}

/// The CPUs of a list in sysfs; none if the kernel does not have it.
fn cpus(root: &Path, name: &str) -> CpuSet {
    let list = fs::read_to_string(below(root, &format!("/sys/devices/system/cpu/{name}")));
    list.ok().and_then(|list| CpuSet::parse(&list)).unwrap_or_default()
}

/// The NUMA node of each CPU; 0 for all CPUs if the kernel has no NUMA nodes.
#[must_use]
pub fn nodes(root: &Path) -> BTreeMap<u32, u32> {
    let mut nodes = BTreeMap::new();
    for entry in fs::read_dir(below(root, "/sys/devices/system/node")).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("node")?.parse::<u32>().ok());
        let list = fs::read_to_string(entry.path().join("cpulist")).ok();
        if let (Some(number), Some(cpus)) = (number, list.as_deref().and_then(CpuSet::parse)) {
            // No kernel has more than 8192 CPUs (NR_CPUS).
            nodes.extend(cpus.iter().take(8192).map(|cpu| (cpu, number)));
        }
    }
    nodes
}

/// The numbers of a `cpu` line of `/proc/stat`, in clock ticks of 1/100 s: user, nice, system, idle, iowait, irq,
/// softirq, steal, guest, guest_nice (proc_stat(5); fs/proc/stat.c, `show_stat`). Those that an older kernel lacks are 0;
/// up to idle all are required.
#[must_use]
pub fn cpu_ticks(numbers: &str) -> Option<[u64; 10]> {
    const IDLE: usize = 3;
    let mut ticks = [0; 10];
    let mut words = numbers.split_whitespace();
    for (at, tick) in ticks.iter_mut().enumerate() {
        match words.next() {
            Some(word) => *tick = word.parse().ok()?,
            None if at > IDLE => {}
            None => return None,
        }
    }
    Some(ticks)
}

/// The non-idle time of all CPUs since boot, in clock ticks of 1/100 s, and their total time: from the first
/// line of `/proc/stat`.
#[must_use]
pub fn busy_and_all_ticks(root: &Path) -> Option<(u64, u64)> {
    let text = fs::read_to_string(below(root, "/proc/stat")).ok()?;
    let [user, nice, system, idle, iowait, irq, softirq, steal, _, _] =
        cpu_ticks(text.lines().next()?.strip_prefix("cpu ")?)?;
    // The time of guests is in user and nice.
    let busy = [user, nice, system, irq, softirq, steal].into_iter().fold(0, u64::saturating_add);
    Some((busy, busy.saturating_add(idle).saturating_add(iowait)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::unpack;

    const HOST: &str = "\n== /proc/10/task/11/schedstat\n123 45 6\n== /proc/10/task/11/status\nName:\tCPU 0/KVM\n\
        Cpus_allowed_list:\t0-3\n== /proc/10/task/11/stat\n11 (CPU 0) KVM) S 1 0 0 0 -1 4 5 6 7 8 9 10 11 12 20 0 6 0 341 7\n\
        == /proc/10/task/11/cgroup\n0::/machine.slice/vm.scope/libvirt/vcpu0\n\
        == /sys/fs/cgroup/machine.slice/cpuset.cpus.effective\n1-2\n\
        == /sys/devices/system/cpu/online\n0-2\n== /sys/devices/system/cpu/isolated\n2\n\
        == /sys/devices/system/cpu/nohz_full\n  (null)\n== /sys/devices/system/node/node0/cpulist\n0-1\n\
        == /sys/devices/system/node/node1/cpulist\n2-3\n== /sys/devices/system/node/has_cpu\n0-1\n\
        == /proc/stat\ncpu  10 1 5 100 4 2 1 1 0 0\ncpu0 1 1 1 1\n";

    #[test]
    fn a_thread_s_times_and_places() {
        let directory = tempfile::tempdir().unwrap();
        unpack(HOST, directory.path()).unwrap();
        let root = directory.path();
        let thread = ThreadId { pid: 10, tid: 11 };
        assert_eq!(thread.times(root), Some(ThreadTimes { ran_ns: 123, waited_ns: 45 }));
        assert_eq!(thread.start_ticks(root), Some(341));
        assert_eq!(thread.allowed(root).unwrap().to_string(), "0-3");
        assert_eq!(thread.cpuset(root).unwrap().to_string(), "1-2", "of the nearest group that says it");
        let gone = ThreadId { pid: 10, tid: 12 };
        assert_eq!((gone.times(root), gone.start_ticks(root), gone.allowed(root)), (None, None, None));
    }

    #[test]
    fn a_process_that_nobody_has_waited_for_has_ended_with_its_last_thread() {
        let directory = tempfile::tempdir().unwrap();
        for (state, threads, start) in
            [("Z", 1, None), ("X", 0, None), ("Z", 2, Some(341)), ("S", 1, Some(341))]
        {
            let stat = format!("11 (x) {state}{} {threads} 0 341 7", " 0".repeat(16));
            unpack(&format!("\n== /proc/11/task/11/stat\n{stat}\n"), directory.path()).unwrap();
            let found = ThreadId { pid: 11, tid: 11 }.start_ticks(directory.path());
            assert_eq!(found, start, "{state} {threads}");
        }
    }

    #[test]
    fn the_host_s_processors() {
        let directory = tempfile::tempdir().unwrap();
        unpack(HOST, directory.path()).unwrap();
        let root = directory.path();
        assert_eq!(online(root).unwrap().to_string(), "0-2");
        assert_eq!((isolated(root).to_string(), nohz_full(root)), ("2".to_owned(), CpuSet::default()));
        assert_eq!(nodes(root), [(0, 0), (1, 0), (2, 1), (3, 1)].into());
        assert_eq!(busy_and_all_ticks(root), Some((20, 124)));
        let nothing = tempfile::tempdir().unwrap();
        assert_eq!((online(nothing.path()), busy_and_all_ticks(nothing.path())), (None, None));
    }

    #[test]
    fn this_machine_tells_of_this_thread() {
        let pid = i32::try_from(std::process::id()).unwrap();
        let thread = ThreadId { pid, tid: pid };
        let root = Path::new("/");
        assert!(thread.start_ticks(root) > Some(0));
        assert!(thread.allowed(root).unwrap().count() > 0 && online(root).unwrap().count() > 0);
    }
}
