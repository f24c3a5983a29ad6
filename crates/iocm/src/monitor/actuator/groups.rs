//! The control groups of a VM's threads: which CPUs they leave to all of them, and to one.

use host::scheduling::ThreadId;
use host::{ControlGroup, CpuSet};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The control groups of a VM's threads, of those that are in one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Groups(BTreeMap<ThreadId, ControlGroup>);

impl Groups {
    /// Those of the threads of one VM that are to be placed.
    pub(super) fn of(root: &Path, threads: &[ThreadId]) -> Self {
        Self(threads.iter().filter_map(|&thread| Some((thread, ControlGroup::of(root, thread)?))).collect())
    }

    /// The CPUs that are left to the VM: by the nearest group that all threads are in, for narrower ones are of single
    /// threads. `None` where no group says anything.
    pub(super) fn cpus(&self, root: &Path) -> Option<CpuSet> {
        let mut groups = self.0.values();
        let first = groups.next()?.clone();
        groups.try_fold(first, |common, group| common.common(group))?.cpus(root)
    }

    /// The group of a thread and what it leaves of these CPUs, where it does not leave all that are wanted.
    pub(super) fn forbidding(
        &self,
        root: &Path,
        thread: ThreadId,
        wanted: &CpuSet,
        of: &CpuSet,
    ) -> Option<(&Path, CpuSet)> {
        let group = self.0.get(&thread)?;
        let cpus = group.cpus(root)?;
        let wanted: CpuSet = wanted.iter().filter(|cpu| of.contains(*cpu)).collect();
        (!cpus.contains_all(&wanted)).then(|| (group.path(), cpus))
    }

    /// Where the CPUs of groups are said in which one of these threads is alone, as libvirt makes them for vCPUs and
    /// iothreads (`vcpu0`, `iothread1`). Threads of the kernel that work for the thread may be in there too; not the
    /// first thread of the VM's process `pid`, which is there for the whole VM.
    pub(super) fn own(&self, root: &Path, pid: i32) -> BTreeMap<ThreadId, String> {
        let pinned: BTreeSet<i32> = self.0.keys().map(|thread| thread.tid).collect();
        let is_own = |thread: &ThreadId, group: &ControlGroup| {
            let inside = group.threads(root);
            let others = |tid: &&i32| **tid != thread.tid && (pinned.contains(tid) || **tid == pid);
            inside.contains(&thread.tid)
                && !inside.iter().any(|tid| others(&tid))
                && inside
                    .iter()
                    .all(|tid| ThreadId { pid: thread.pid, tid: *tid }.start_ticks(root).is_some())
        };
        let own = self.0.iter().filter(|(thread, group)| is_own(thread, group));
        own.filter_map(|(&thread, group)| Some((thread, group.cpus_file(root)?))).collect()
    }
}
