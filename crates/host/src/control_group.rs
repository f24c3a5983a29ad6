//! Control groups, as far as they restrict the CPUs of threads, or the time on them.
//!
//! Supports cgroup v2 (Documentation/admin-guide/cgroup-v2.rst, "Cpuset", "CPU"), and the hierarchies of cgroup v1
//! that have the controllers `cpuset` (Documentation/admin-guide/cgroup-v1/cpusets.rst) and `cpu`
//! (Documentation/scheduler/sched-bwc.rst).

use crate::CpuSet;
use crate::thread_id::{ThreadId, below};
use std::fs;
use std::path::{Path, PathBuf};

/// The mount point of cgroup v2. On hosts that also use cgroup v1 it has no cpusets.
const UNIFIED: &str = "/sys/fs/cgroup";
/// The mount point of cgroup v1's cpusets.
const CPUSETS: &str = "/sys/fs/cgroup/cpuset";
/// The mount point of cgroup v1's controller `cpu`.
const CPU: &str = "/sys/fs/cgroup/cpu";

/// The control group that restricts the CPUs of a thread.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ControlGroup {
    unified: bool,
    path: PathBuf,
}

impl ControlGroup {
    /// The group of a thread; `None` if no group restricts CPUs.
    #[must_use]
    pub fn of(root: &Path, thread: ThreadId) -> Option<Self> {
        let text = thread.text(root, "cgroup")?;
        text.lines().filter_map(|line| Self::parse(line, "cpuset")).find(|group| group.cpus(root).is_some())
    }

    /// The group of a line of `/proc/PID/cgroup`, if that is of cgroup v2 or of the hierarchy with this controller.
    fn parse(line: &str, controller: &str) -> Option<Self> {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let unified = controllers.is_empty();
        let counts = unified || controllers.split(',').any(|name| name == controller);
        counts.then(|| Self { unified, path: PathBuf::from(path) })
    }

    /// The files `cpu.stat` of a thread's group and of those above it. Some of them may not exist.
    #[must_use]
    pub fn cpu_stats(root: &Path, thread: ThreadId) -> Vec<PathBuf> {
        let text = thread.text(root, "cgroup").unwrap_or_default();
        let mut files = Vec::new();
        for group in text.lines().filter_map(|line| Self::parse(line, "cpu")) {
            let home = if group.unified { UNIFIED } else { CPU };
            files.extend(group.inside().map(|group| below(root, &file(home, group, "cpu.stat"))));
        }
        files
    }

    /// Its path in its hierarchy: `/machine.slice/machine-qemu\x2d1\x2dweb.scope/libvirt/vcpu0`.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The CPUs of its threads: `cpuset.cpus.effective` of the nearest group that has it, with cgroup v1
    /// `cpuset.effective_cpus`.
    #[must_use]
    pub fn cpus(&self, root: &Path) -> Option<CpuSet> {
        let name = if self.unified { "cpuset.cpus.effective" } else { "cpuset.effective_cpus" };
        let mut found = self.inside().filter_map(|group| {
            let text = fs::read_to_string(below(root, &self.file(group, name))).ok()?;
            CpuSet::parse(&text).filter(|set| !set.is_empty())
        });
        found.next()
    }

    /// The nearest common group; `None` for groups of two hierarchies.
    #[must_use]
    pub fn common(&self, other: &Self) -> Option<Self> {
        let path = self.path.ancestors().find(|group| other.path.starts_with(group))?;
        (self.unified == other.unified).then(|| Self { unified: self.unified, path: path.to_owned() })
    }

    /// Its threads, without those of groups below. Empty if they cannot be read.
    #[must_use]
    pub fn threads(&self, root: &Path) -> Vec<i32> {
        let name = if self.unified { "cgroup.threads" } else { "tasks" };
        let text = fs::read_to_string(below(root, &self.file(&self.path, name))).unwrap_or_default();
        text.lines().filter_map(|line| line.trim().parse().ok()).collect()
    }

    /// The file of its configured CPUs, if it has one: with cgroup v2, if the controller `cpuset` is enabled
    /// for the group. The kernel allows the value to be cleared again only in a group without threads. The
    /// path is one of a running host.
    #[must_use]
    pub fn cpus_file(&self, root: &Path) -> Option<String> {
        let file = self.file(&self.path, "cpuset.cpus");
        let is_inside = !self.path.starts_with("/..") && self.path != Path::new("/");
        (self.unified && is_inside && below(root, &file).exists()).then_some(file)
    }

    /// The paths of the group and of those above it. A path with `..` belongs to a group outside this cgroup namespace.
    fn inside(&self) -> impl Iterator<Item = &Path> {
        self.path.ancestors().filter(|group| !group.starts_with("/.."))
    }

    fn file(&self, group: &Path, name: &str) -> String {
        file(if self.unified { UNIFIED } else { CPUSETS }, group, name)
    }
}

/// A file of a control group in the hierarchy with this mount point.
fn file(home: &str, group: &Path, name: &str) -> String {
    match group.to_string_lossy().trim_matches('/') {
        "" => format!("{home}/{name}"),
        group => format!("{home}/{group}/{name}"),
    }
}

/// The nanoseconds in which a group's CPU quota stopped its threads, summed over CPUs, by its `cpu.stat`. `None` for groups
/// without that controller.
#[must_use]
pub fn throttled_ns(cpu_stat: &Path) -> Option<u64> {
    let text = fs::read_to_string(cpu_stat).ok()?;
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(' ')?;
        let value: u64 = value.trim().parse().ok()?;
        match name {
            "throttled_usec" => Some(value.saturating_mul(1000)),
            // With cgroup v1.
            "throttled_time" => Some(value),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::unpack;

    const HOST: &str = "\n== /proc/10/task/10/cgroup\n0::/machine.slice/vm.scope/libvirt/emulator\n\
        == /proc/10/task/11/cgroup\n0::/machine.slice/vm.scope/libvirt/vcpu0\n\
        == /proc/10/task/12/cgroup\n0::/machine.slice/other.scope\n\
        == /sys/fs/cgroup/machine.slice/cpuset.cpus.effective\n1-3\n\
        == /sys/fs/cgroup/machine.slice/vm.scope/libvirt/cpuset.cpus.effective\n1-2\n\
        == /sys/fs/cgroup/machine.slice/vm.scope/libvirt/vcpu0/cpuset.cpus\n\n\
        == /sys/fs/cgroup/machine.slice/vm.scope/libvirt/vcpu0/cgroup.threads\n11\n14\n\
        == /proc/20/task/20/cgroup\n3:cpu,cpuset:/machine\n0::/x\n\
        == /sys/fs/cgroup/cpuset/machine/cpuset.effective_cpus\n2\n== /sys/fs/cgroup/cpuset/machine/tasks\n20\n\
        == /sys/fs/cgroup/cpuset/machine/cpuset.cpus\n2\n\
        == /proc/30/task/30/cgroup\n0::/../outside\n\
        == /sys/fs/cgroup/machine.slice/cpu.stat\nusage_usec 9\nnr_throttled 2\nthrottled_usec 7\n\
        == /sys/fs/cgroup/machine.slice/other.scope/cpu.stat\nusage_usec 9\n\
        == /proc/40/task/40/cgroup\n4:cpu,cpuacct:/machine\n3:cpuset:/x\n\
        == /sys/fs/cgroup/cpu/machine/cpu.stat\nnr_throttled 2\nthrottled_time 8\n";

    fn on_host(check: impl Fn(&Path, &dyn Fn(i32, i32) -> Option<ControlGroup>)) {
        let directory = tempfile::tempdir().unwrap();
        unpack(HOST, directory.path()).unwrap();
        let root = directory.path();
        check(root, &|pid, tid| ControlGroup::of(root, ThreadId { pid, tid }));
    }

    #[test]
    fn the_nearest_group_that_says_so_decides() {
        on_host(|root, group| {
            let cpus =
                |pid, tid| group(pid, tid).and_then(|group| group.cpus(root)).map(|set| set.to_string());
            assert_eq!(cpus(10, 11).as_deref(), Some("1-2"));
            assert_eq!(cpus(10, 12).as_deref(), Some("1-3"));
            assert_eq!(cpus(20, 20).as_deref(), Some("2"), "with cgroup v1");
            assert_eq!(cpus(30, 30), None, "outside of the namespace");
        });
    }

    #[test]
    fn groups_above_a_thread_s_own_stop_it_too() {
        on_host(|root, _| {
            let throttled = |pid, tid| {
                let files = ControlGroup::cpu_stats(root, ThreadId { pid, tid });
                files.iter().filter_map(|file| throttled_ns(file)).collect::<Vec<_>>()
            };
            assert_eq!(throttled(10, 12), [7000], "its own group does not have the controller");
            assert_eq!(throttled(40, 40), [8], "with cgroup v1");
            assert_eq!(throttled(30, 30), [0; 0], "outside of the namespace");
        });
    }

    #[test]
    fn what_threads_have_in_common() {
        on_host(|_, group| {
            let common = |one, other| {
                let (one, other) = (group(10, one).unwrap(), group(10, other).unwrap());
                one.common(&other).unwrap().path().display().to_string()
            };
            assert_eq!(common(10, 11), "/machine.slice/vm.scope/libvirt");
            assert_eq!(common(10, 12), "/machine.slice");
            assert_eq!(common(11, 11), "/machine.slice/vm.scope/libvirt/vcpu0");
            assert_eq!(group(10, 10).unwrap().common(&group(20, 20).unwrap()), None);
        });
    }

    #[test]
    fn only_groups_of_v2_that_have_the_controller_are_given_cpus() {
        on_host(|root, group| {
            let vcpu = group(10, 11).unwrap();
            assert_eq!(vcpu.threads(root), [11, 14]);
            let file = "/sys/fs/cgroup/machine.slice/vm.scope/libvirt/vcpu0/cpuset.cpus";
            assert_eq!(vcpu.cpus_file(root).as_deref(), Some(file));
            let old = group(20, 20).unwrap();
            assert_eq!((old.threads(root), old.cpus_file(root)), (vec![20], None));
            assert_eq!(group(10, 10).unwrap().cpus_file(root), None);
        });
    }
}
