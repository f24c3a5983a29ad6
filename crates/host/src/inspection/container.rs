//! The container in which this program runs, if any, and the parts of the host that it hides.

use crate::{Evidence, Root};

/// Files that container managers leave inside.
pub const CONTAINER_MARKS: [&str; 3] = ["/run/systemd/container", "/.dockerenv", "/run/.containerenv"];
/// A file that only the kubelet mounts, into each container (Kubernetes, `terminationMessagePath`).
const OF_A_POD: &str = "/dev/termination-log";
/// The capabilities for examining VMs and counting exits: name, bit (include/uapi/linux/capability.h), and the facts that
/// are missing without it.
const CAPABILITIES: [(&str, u32, &str); 5] = [
    ("CAP_SYS_PTRACE", 19, "VMs of other users"),
    ("CAP_DAC_READ_SEARCH", 2, "debugfs and tracefs"),
    ("CAP_SYSLOG", 34, "addresses of the kernel's data"),
    ("CAP_PERFMON", 38, "events of the kernel"),
    ("CAP_BPF", 39, "eBPF programs, which count exits and read KVM's state"),
];
/// CAP_SYS_ADMIN also permits what the last two capabilities permit.
const SYS_ADMIN: u32 = 21;

/// A container, seen from inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    /// Its kind, as exactly as it is known: "a pod of Kubernetes".
    pub kind: &'static str,
    /// The evidence that this is a container.
    pub mark: Evidence,
    /// True if it sees the host's processes; `None` if that is unknown.
    pub sees_processes: Option<bool>,
    /// Capabilities that it lacks, each with the facts that are missing for that reason.
    pub lacks: Vec<(&'static str, &'static str)>,
    /// Capabilities that it has but this process lacks, each with the facts that are missing for that reason.
    pub unused: Vec<(&'static str, &'static str)>,
    /// Directories that are missing or empty, each with the facts that are missing for that reason.
    pub empty: Vec<(&'static str, &'static str)>,
}

impl Container {
    pub(super) fn read(root: &Root) -> Option<Self> {
        let (kind, mark) = of_a_pod(root).or_else(|| of_a_manager(root))?;
        let status = root.text("/proc/self/status", "the state of this process").ok();
        let set = |name: &str| {
            let mut lines = status.iter().flat_map(|status| status.lines());
            let bits = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            u64::from_str_radix(bits.trim(), 16).ok()
        };
        let effective = set("CapEff").unwrap_or(u64::MAX);
        // The capabilities that root in the container can have. Archives of earlier versions lack them.
        let bounding = set("CapBnd").unwrap_or(effective);
        let allow = |set: u64, bit: u32| {
            let has = |bit: u32| set >> bit & 1 == 1;
            has(bit) || (bit >= 38 && has(SYS_ADMIN))
        };
        let (there, lacking): (Vec<_>, Vec<_>) =
            CAPABILITIES.into_iter().partition(|(_, bit, _)| allow(bounding, *bit));
        let unused = there.into_iter().filter(|(_, bit, _)| !allow(effective, *bit));
        let named = |(name, _, missed): (&'static str, u32, &'static str)| (name, missed);
        let is_empty = |path: &&(&'static str, &'static str)| {
            root.entries(path.0, |_| true).is_ok_and(|names| names.is_empty()) || !root.exists(path.0)
        };
        let places = [
            ("/sys/module", "modules and their parameters"),
            ("/sys/kernel/debug", "KVM's counters and the state of IOMMUs (debugfs)"),
            ("/sys/kernel/tracing", "events of the kernel (tracefs)"),
        ];
        Some(Self {
            kind,
            mark,
            sees_processes: status.is_some().then(|| sees_processes(root)),
            lacks: lacking.into_iter().map(named).collect(),
            unused: unused.map(named).collect(),
            empty: places.iter().filter(is_empty).copied().collect(),
        })
    }
}

fn of_a_pod(root: &Root) -> Option<(&'static str, Evidence)> {
    root.exists(OF_A_POD).then(|| ("a pod of Kubernetes", Evidence::new(OF_A_POD, "it is there")))
}

fn of_a_manager(root: &Root) -> Option<(&'static str, Evidence)> {
    let mark = CONTAINER_MARKS.into_iter().find(|mark| root.exists(mark))?;
    Some(("a container", Evidence::new(mark, "it is there")))
}

/// Tests whether this container sees the host's processes: kernel threads such as kthreadd (process 2) are only in the
/// host's PID namespace.
fn sees_processes(root: &Root) -> bool {
    const SECOND: &str = "/proc/2/comm";
    let is_kernels =
        root.text(SECOND, "the name of a process").is_ok_and(|name| name.trim_end() == "kthreadd");
    if !is_kernels {
        // Do not record the name of a process that is not a VM.
        root.forget(SECOND);
    }
    is_kernels
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::root;

    const POD: &str = "== /dev/termination-log\n== /proc/self/status\nName:\texitless\nCapEff:\t0000000000000000\n\
        == /sys/kernel/debug/\n== /sys/module/kvm/\n";

    #[test]
    fn a_pod_says_what_it_does_not_see() {
        let pod = Container::read(&root(POD)).unwrap();
        assert_eq!(pod.kind, "a pod of Kubernetes");
        assert_eq!(pod.mark.place, OF_A_POD);
        assert_eq!(pod.sees_processes, Some(false));
        assert_eq!(pod.lacks.len(), CAPABILITIES.len());
        assert_eq!(
            pod.empty.iter().map(|one| one.0).collect::<Vec<_>>(),
            ["/sys/kernel/debug", "/sys/kernel/tracing"]
        );
    }

    #[test]
    fn one_with_the_nodes_processes_and_the_capabilities_lacks_nothing() {
        // BPF, PERFMON, SYSLOG, SYS_PTRACE, DAC_READ_SEARCH; then SYS_ADMIN instead of the first two.
        for bits in ["000000c400080004", "0000000400280004"] {
            let text = format!(
                "{POD}== /proc/self/status\nCapEff:\t{bits}\n== /proc/2/comm\nkthreadd\n\
                 == /sys/kernel/debug/kvm/\n== /sys/kernel/tracing/events/\n"
            );
            let pod = Container::read(&root(&text)).unwrap();
            assert_eq!(
                (pod.sees_processes, &pod.lacks[..], &pod.empty[..]),
                (Some(true), &[][..], &[][..]),
                "{bits}"
            );
        }
    }

    #[test]
    fn what_root_would_have_in_it_is_not_what_it_lacks() {
        let text =
            format!("{POD}== /proc/self/status\nCapEff:\t0000000000000000\nCapBnd:\t000001ffffffffff\n");
        let pod = Container::read(&root(&text)).unwrap();
        assert_eq!((pod.lacks.len(), pod.unused.len()), (0, CAPABILITIES.len()));
        // The default capabilities of Docker.
        let text =
            format!("{POD}== /proc/self/status\nCapEff:\t0000000000000000\nCapBnd:\t00000000a80425fb\n");
        let pod = Container::read(&root(&text)).unwrap();
        assert_eq!((pod.lacks.len(), pod.unused.len()), (CAPABILITIES.len(), 0));
    }

    #[test]
    fn a_host_is_no_container_and_one_of_docker_is() {
        assert_eq!(Container::read(&root("== /proc/1/comm\nsystemd\n")), None);
        let docker = Container::read(&root("== /.dockerenv\n")).unwrap();
        assert_eq!((docker.kind, docker.sees_processes, docker.lacks.len()), ("a container", None, 0));
    }
}
