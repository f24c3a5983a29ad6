//! The threads of VMs' vCPUs: the time that they ran and waited, and their NUMA nodes.

use host::scheduling::{ThreadId, ThreadTimes};
use host::{ControlGroup, CpuSet, throttled_ns};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The longest time that is shown later than it was read, in nanoseconds. The kernel adds to a thread's run time at ticks and
/// switches, but once a second on a CPU without ticks (`nohz_full`; `sched_tick_remote` of kernel/sched/core.c, Linux 6.12).
const LATEST_NS: u64 = 1_000_000_000;

/// The share of a look in which a thread waits before it is worth the time to ask whether a CPU quota stopped it.
const NOTABLE: f64 = 0.01;

/// The times of threads, as far as they were shown.
#[derive(Debug, Default)]
pub(super) struct Meter {
    shown: BTreeMap<ThreadId, ThreadTimes>,
    /// The nanoseconds in which CPU quotas stopped control groups, by their `cpu.stat`, as far as they were left out.
    throttled: BTreeMap<PathBuf, u64>,
}

/// CPUs' worth of time since the last look.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Used {
    pub(super) ran: f64,
    pub(super) waited: f64,
}

impl Meter {
    /// The CPU time of these threads over this many seconds. More than has passed is shown at the next looks. A thread that
    /// is new since the last look counts as 0; one that has ended is absent. The time in which a CPU quota stopped threads is
    /// left out.
    pub(super) fn read(
        &mut self,
        root: &Path,
        threads: impl IntoIterator<Item = ThreadId>,
        seconds: f64,
    ) -> BTreeMap<ThreadId, Used> {
        let mut now = BTreeMap::new();
        let mut used = BTreeMap::new();
        let mut groups: BTreeMap<PathBuf, Vec<ThreadId>> = BTreeMap::new();
        for thread in threads {
            let Some(times) = thread.times(root) else { continue };
            let mut shown = self.shown.get(&thread).copied().unwrap_or(times);
            let share = |shown_ns: &mut u64, now_ns: u64| {
                let due_ns = now_ns.saturating_sub(*shown_ns).min((seconds * 1e9) as u64);
                *shown_ns = (*shown_ns + due_ns).max(now_ns.saturating_sub(LATEST_NS));
                if seconds > 0.0 { due_ns as f64 / 1e9 / seconds } else { 0.0 }
            };
            let ran = share(&mut shown.ran_ns, times.ran_ns);
            let waited = share(&mut shown.waited_ns, times.waited_ns);
            used.insert(thread, Used { ran, waited });
            now.insert(thread, shown);
            if waited > NOTABLE || !self.shown.contains_key(&thread) {
                for file in ControlGroup::cpu_stats(root, thread) {
                    groups.entry(file).or_default().push(thread);
                }
            }
        }
        if self.shown.keys().any(|thread| !now.contains_key(thread)) {
            self.throttled.retain(|file, _| file.exists());
        }
        self.shown = now;
        self.leave_out_throttled(groups, &mut used, seconds);
        used
    }

    /// Subtracts the time in which CPU quotas stopped threads from the time that they waited. The kernel counts it there,
    /// because such a thread stays runnable (`throttle_cfs_rq` of kernel/sched/fair.c, `sched_info_depart` of stats.h), but
    /// no other CPU would have served it.
    fn leave_out_throttled(
        &mut self,
        groups: BTreeMap<PathBuf, Vec<ThreadId>>,
        used: &mut BTreeMap<ThreadId, Used>,
        seconds: f64,
    ) {
        for (group, threads) in groups {
            let Some(now_ns) = throttled_ns(&group) else { continue };
            let before_ns = self.throttled.get(&group).copied().unwrap_or(now_ns);
            let stopped_ns = now_ns.saturating_sub(before_ns);
            let waited = |thread: &ThreadId| used.get(thread).map_or(0.0, |used| used.waited);
            let waited_ns = threads.iter().map(waited).sum::<f64>() * seconds * 1e9;
            let left_out_ns = waited_ns.min(stopped_ns as f64);
            if left_out_ns > 0.0 {
                // The group does not say which of its threads it stopped.
                let kept = 1.0 - left_out_ns / waited_ns;
                for thread in threads {
                    if let Some(used) = used.get_mut(&thread) {
                        used.waited *= kept;
                    }
                }
            }
            // The waiting may be shown later.
            let left_ns = stopped_ns.saturating_sub(left_out_ns.round() as u64);
            self.throttled.insert(group, now_ns - left_ns.min(LATEST_NS));
        }
    }
}

/// The NUMA node that all these threads are bound to, if there is one. Those that have ended are bound to none.
pub(super) fn node_of(
    root: &Path,
    nodes: &BTreeMap<u32, u32>,
    threads: impl IntoIterator<Item = ThreadId>,
) -> Option<u32> {
    let mut found = None;
    for thread in threads {
        let Some(allowed) = thread.allowed(root) else { continue };
        let node = only_node(nodes, &allowed)?;
        if found.is_some_and(|found| found != node) {
            return None;
        }
        found = Some(node);
    }
    found
}

fn only_node(nodes: &BTreeMap<u32, u32>, cpus: &CpuSet) -> Option<u32> {
    let mut of_cpus = nodes.iter().filter(|(cpu, _)| cpus.contains(**cpu)).map(|(_, &node)| node);
    let first = of_cpus.next()?;
    of_cpus.all(|node| node == first).then_some(first)
}

/// Share of all CPUs' time that was not idle.
#[derive(Debug, Default)]
pub(super) struct Busy(Option<(u64, u64)>);

impl Busy {
    pub(super) fn read(&mut self, root: &Path) -> Option<f64> {
        let now = host::scheduling::busy_and_all_ticks(root)?;
        let before = self.0.replace(now)?;
        let all = now.1.checked_sub(before.1).filter(|&ticks| ticks > 0)?;
        Some((now.0.saturating_sub(before.0) as f64 / all as f64).min(1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use host::fake::unpack;

    #[test]
    fn shares_are_of_the_time_between_two_looks() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let host = |ran: u64, waited: u64| {
            format!(
                "\n== /proc/7/task/8/schedstat\n{ran} {waited} 3\n== /proc/stat\ncpu {} 0 0 {} 0 0 0 0\n",
                ran / 10_000_000,
                waited / 10_000_000
            )
        };
        let thread = ThreadId { pid: 7, tid: 8 };
        let (mut meter, mut busy) = (Meter::default(), Busy::default());
        unpack(&host(1_000_000_000, 0), root).unwrap();
        assert_eq!(meter.read(root, [thread], 1.0)[&thread], Used::default());
        assert_eq!(busy.read(root), None);
        unpack(&host(1_500_000_000, 1_500_000_000), root).unwrap();
        assert_eq!(meter.read(root, [thread], 2.0)[&thread], Used { ran: 0.25, waited: 0.75 });
        assert_eq!(busy.read(root), Some(0.25));
        assert!(meter.read(root, [ThreadId { pid: 7, tid: 9 }], 1.0).is_empty());
    }

    #[test]
    fn time_that_the_kernel_adds_late_is_shown_in_full() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let thread = ThreadId { pid: 7, tid: 8 };
        let mut meter = Meter::default();
        let mut look = |ran_ns: u64| {
            unpack(&format!("\n== /proc/7/task/8/schedstat\n{ran_ns} {ran_ns} 3\n"), root).unwrap();
            meter.read(root, [thread], 0.1)[&thread]
        };
        // A thread that runs for a second, on a CPU without ticks.
        let late = [0; 10].into_iter().chain([1_000_000_000; 20]);
        let shown: Vec<Used> = late.map(&mut look).collect();
        let sums = shown.iter().fold((0.0, 0.0), |sum, used| (sum.0 + used.ran, sum.1 + used.waited));
        assert!((sums.0 - 10.0).abs() < 1e-6 && (sums.1 - 10.0).abs() < 1e-6, "{shown:?}");
        assert!(
            shown.iter().all(|used| used.ran <= 1.0) && shown[20..] == [Used::default(); 10],
            "{shown:?}"
        );
        // After a stop of the process itself, only the last second is.
        let after: f64 = [9_000_000_000; 20].map(&mut look).iter().map(|used| used.ran).sum();
        assert!((after - 11.0).abs() < 1e-6, "{after}");
    }

    #[test]
    fn time_in_which_a_quota_stopped_threads_is_no_waiting_for_a_cpu() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let threads = [8, 9].map(|tid| ThreadId { pid: 7, tid });
        let groups = "\n== /proc/7/task/8/cgroup\n0::/vm/vcpu0\n== /proc/7/task/9/cgroup\n0::/vm/vcpu1\n";
        unpack(groups, root).unwrap();
        let mut meter = Meter::default();
        // The milliseconds that the threads had waited, and in which their VM's group was stopped.
        let mut look = |waited: [u64; 2], throttled: u64| {
            let [one, two] = waited.map(|ms| ms * 1_000_000);
            let host = format!(
                "\n== /proc/7/task/8/schedstat\n0 {one} 3\n== /proc/7/task/9/schedstat\n0 {two} 3\n\
                 == /sys/fs/cgroup/vm/cpu.stat\nnr_throttled 5\nthrottled_usec {}\n",
                throttled * 1000
            );
            unpack(&host, root).unwrap();
            let used = meter.read(root, threads, 1.0);
            threads.map(|thread| (used[&thread].waited * 1000.0).round() as u64)
        };
        assert_eq!(look([0, 0], 9000), [0, 0]);
        assert_eq!(look([750, 750], 10_500), [0, 0]);
        assert_eq!(look([1500, 1500], 10_500), [750, 750], "it was not stopped");
        assert_eq!(look([2000, 2000], 11_250), [125, 125], "of both together");
        assert_eq!(look([2000, 2000], 11_750), [0, 0]);
        assert_eq!(look([2400, 2400], 11_750), [150, 150], "waiting that is shown after the stop");
    }

    #[test]
    fn a_vm_is_on_a_node_when_all_its_threads_are() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let host = "\n== /proc/7/task/1/status\nCpus_allowed_list:\t0-1\n== /proc/7/task/2/status\n\
                    Cpus_allowed_list:\t1\n== /proc/7/task/3/status\nCpus_allowed_list:\t1-2\n";
        unpack(host, root).unwrap();
        let nodes = [(0, 0), (1, 0), (2, 1), (3, 1)].into();
        let of = |tids: &[i32]| node_of(root, &nodes, tids.iter().map(|&tid| ThreadId { pid: 7, tid }));
        assert_eq!((of(&[1, 2]), of(&[1, 3]), of(&[9]), of(&[])), (Some(0), None, None, None));
        assert_eq!(of(&[9, 1]), Some(0), "one has ended");
    }
}
