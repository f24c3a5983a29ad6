//! The threads of VMs' vCPUs: the time that they ran and waited, and their NUMA nodes.

use host::CpuSet;
use host::scheduling::{ThreadId, ThreadTimes};
use std::collections::BTreeMap;
use std::path::Path;

/// The times of threads at the last look.
#[derive(Debug, Default)]
pub(super) struct Meter(BTreeMap<ThreadId, ThreadTimes>);

/// CPUs' worth of time since the last look.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Used {
    pub(super) ran: f64,
    pub(super) waited: f64,
}

impl Meter {
    /// The CPU time of these threads over this many seconds. A thread that is new since the last look counts as 0; one
    /// that has ended is absent.
    pub(super) fn read(
        &mut self,
        root: &Path,
        threads: impl IntoIterator<Item = ThreadId>,
        seconds: f64,
    ) -> BTreeMap<ThreadId, Used> {
        let mut now = BTreeMap::new();
        let mut used = BTreeMap::new();
        for thread in threads {
            let Some(times) = thread.times(root) else { continue };
            let before = self.0.get(&thread).copied().unwrap_or(times);
            let share = |now: u64, before: u64| {
                // The kernel updates run times at ticks, so a period can show more time than has passed.
                if seconds > 0.0 { (now.saturating_sub(before) as f64 / 1e9 / seconds).min(1.0) } else { 0.0 }
            };
            let (ran, waited) =
                (share(times.ran_ns, before.ran_ns), share(times.waited_ns, before.waited_ns));
            used.insert(thread, Used { ran, waited });
            now.insert(thread, times);
        }
        self.0 = now;
        used
    }
}

/// The NUMA node that all these threads are bound to, if there is one.
pub(super) fn node_of(
    root: &Path,
    nodes: &BTreeMap<u32, u32>,
    threads: impl IntoIterator<Item = ThreadId>,
) -> Option<u32> {
    let mut found = None;
    for thread in threads {
        let node = only_node(nodes, &thread.allowed(root)?)?;
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
    fn a_vm_is_on_a_node_when_all_its_threads_are() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let host = "\n== /proc/7/task/1/status\nCpus_allowed_list:\t0-1\n== /proc/7/task/2/status\n\
                    Cpus_allowed_list:\t1\n== /proc/7/task/3/status\nCpus_allowed_list:\t1-2\n";
        unpack(host, root).unwrap();
        let nodes = [(0, 0), (1, 0), (2, 1), (3, 1)].into();
        let of = |tids: &[i32]| node_of(root, &nodes, tids.iter().map(|&tid| ThreadId { pid: 7, tid }));
        assert_eq!((of(&[1, 2]), of(&[1, 3]), of(&[9]), of(&[])), (Some(0), None, None, None));
    }
}
