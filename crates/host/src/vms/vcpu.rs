//! vCPUs: their descriptors with their threads.

use super::debugfs::Directory;
use super::{Descriptors, NamedThread};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// One vCPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Vcpu {
    /// KVM's vCPU ID, as in tracepoints; on x86 it is the APIC ID. QEMU's own index differs if the numbers of
    /// cores or threads are not powers of two.
    pub number: u32,
    /// Its descriptor; `None` for a thread with a vCPU's name but no descriptor.
    pub fd: Option<i32>,
    /// The thread that runs it; `None` if neither debugfs nor names identify it.
    pub thread: Option<i32>,
    /// The VMM's descriptor of its statistics, if open.
    pub statistics_fd: Option<i32>,
}

/// Names of vCPU threads, before and after the number: QEMU (system/cpus.c and accel/kvm), crosvm,
/// firecracker, Dragonball, kvmtool, cloud-hypervisor, and this program.
const NAMES: [(&str, &str); 7] = [
    ("CPU ", "/KVM"),
    ("crosvm_vcpu", ""),
    ("fc_vcpu ", ""),
    ("db_vcpu", ""),
    ("kvm-vcpu-", ""),
    ("vcpu", ""),
    ("vcpu ", ""),
];

/// The number in the name of a vCPU's thread.
pub(super) fn number_of(name: &str) -> Option<u32> {
    let number = |&(before, after): &(&str, &str)| {
        let digits = name.strip_prefix(before)?.strip_suffix(after)?;
        // `parse` would accept a sign.
        digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
    };
    NAMES.iter().find_map(number)
}

/// The vCPUs of a process, by number.
///
/// KVM's debugfs shows the thread of each vCPU that has run, and keeps it after the thread ended, as that of an unplugged
/// vCPU does. Thread names are the second choice, because they contain the VMM's own numbers.
pub(super) fn joined(
    descriptors: &Descriptors,
    threads: &[NamedThread],
    directories: &[&Directory],
) -> Vec<Vcpu> {
    let mut names: Vec<(u32, i32)> =
        threads.iter().filter_map(|one| Some((number_of(&one.name)?, one.tid))).collect();
    names.sort_unstable();
    if descriptors.vcpus.is_empty() {
        return names.into_iter().map(named_only).collect();
    }
    let alive: BTreeSet<i32> = threads.iter().map(|one| one.tid).collect();
    let of_kernel = || {
        let all = directories.iter().flat_map(|one| &one.vcpus);
        all.map(|(&number, &thread)| (number, if alive.contains(&thread) { thread } else { 0 }))
    };
    let running: BTreeSet<i32> = of_kernel().map(|(_, thread)| thread).filter(|&thread| thread > 0).collect();
    let mut by_kernel = queues(of_kernel());
    let numbers: Vec<u32> = descriptors.vcpus.iter().map(|&(number, _)| number).collect();
    let mut by_name = by_name(&numbers, &names);
    let mut statistics = queues(descriptors.vcpu_statistics.iter().copied());
    let mut vcpu = |&(number, fd): &(u32, i32)| {
        let named = next(&mut by_name, number).filter(|thread| !running.contains(thread));
        let thread = next(&mut by_kernel, number).filter(|&thread| thread > 0).or(named);
        Vcpu { number, fd: Some(fd), thread, statistics_fd: next(&mut statistics, number) }
    };
    descriptors.vcpus.iter().map(&mut vcpu).collect()
}

fn named_only((number, thread): (u32, i32)) -> Vcpu {
    Vcpu { number, fd: None, thread: Some(thread), statistics_fd: None }
}

/// The threads of vCPUs by their names. If there are as many names as vCPUs, they correspond in order,
/// because APIC IDs increase with QEMU's index. If the counts differ, for instance after an unplug, equal
/// numbers correspond, provided that each name has the number of a vCPU.
fn by_name(numbers: &[u32], names: &[(u32, i32)]) -> BTreeMap<u32, Vec<i32>> {
    if numbers.len() == names.len() {
        return queues(numbers.iter().zip(names).map(|(&number, &(_, thread))| (number, thread)));
    }
    let known: BTreeSet<u32> = numbers.iter().copied().collect();
    if names.iter().all(|(number, _)| known.contains(number)) {
        return queues(names.iter().copied());
    }
    BTreeMap::new()
}

/// The values of each number, in order, so that with several VMs in one process each vCPU gets its own.
fn queues(pairs: impl Iterator<Item = (u32, i32)>) -> BTreeMap<u32, Vec<i32>> {
    let mut queues: BTreeMap<u32, Vec<i32>> = BTreeMap::new();
    for (number, value) in pairs {
        queues.entry(number).or_default().push(value);
    }
    queues.values_mut().for_each(|values| values.reverse());
    queues
}

fn next(queues: &mut BTreeMap<u32, Vec<i32>>, number: u32) -> Option<i32> {
    queues.get_mut(&number)?.pop()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn threads(names: &[&str]) -> Vec<NamedThread> {
        let named = |(tid, name): (i32, &&str)| NamedThread { tid, name: (*name).to_owned(), kernel: false };
        (100..).zip(names).map(named).collect()
    }

    fn descriptors(numbers: &[u32]) -> Descriptors {
        Descriptors { vcpus: numbers.iter().copied().zip(20..).collect(), ..Descriptors::default() }
    }

    fn pairs(vcpus: &[Vcpu]) -> Vec<(u32, Option<i32>)> {
        vcpus.iter().map(|one| (one.number, one.thread)).collect()
    }

    #[test]
    fn numbers_in_the_names_of_every_vmm() {
        let names = ["CPU 11/KVM", "crosvm_vcpu3", "fc_vcpu 0", "db_vcpu4", "kvm-vcpu-2", "vcpu12", "vcpu 1"];
        let numbers = [11, 3, 0, 4, 2, 12, 1].map(Some);
        assert_eq!(names.map(number_of), numbers);
        for other in ["CPU 1/TCG", "CPU /KVM", "vcpu", "vcpu-1", "vcpu+1", "IO iothread1", "vcpu99999999999"]
        {
            assert_eq!(number_of(other), None, "{other}");
        }
    }

    #[test]
    fn apic_numbers_with_gaps_are_paired_in_order() {
        let threads = threads(&["qemu", "CPU 1/KVM", "CPU 0/KVM", "CPU 2/KVM"]);
        let found = joined(&descriptors(&[0, 1, 4]), &threads, &[]);
        assert_eq!(pairs(&found), [(0, Some(102)), (1, Some(101)), (4, Some(103))]);
    }

    #[test]
    fn an_unplugged_vcpu_has_no_thread_and_doubts_no_guess() {
        let found = joined(&descriptors(&[0, 1, 2]), &threads(&["CPU 0/KVM", "CPU 2/KVM"]), &[]);
        assert_eq!(pairs(&found), [(0, Some(100)), (1, None), (2, Some(101))]);
        let found = joined(&descriptors(&[0, 4, 8]), &threads(&["CPU 0/KVM", "CPU 1/KVM"]), &[]);
        assert_eq!(pairs(&found), [(0, None), (4, None), (8, None)]);
        // The kernel still shows the thread that has ended.
        let vcpus = BTreeMap::from([(0, 100), (1, 999), (2, 101)]);
        let directory = Directory { vcpus, ..Directory::default() };
        let names = threads(&["CPU 0/KVM", "CPU 2/KVM"]);
        let found = joined(&descriptors(&[0, 1, 2]), &names, &[&directory]);
        assert_eq!(pairs(&found), [(0, Some(100)), (1, None), (2, Some(101))]);
    }

    #[test]
    fn the_kernel_is_believed_before_names() {
        let directory = Directory { vcpus: BTreeMap::from([(0, 101), (1, 100)]), ..Directory::default() };
        let found = joined(&descriptors(&[0, 1]), &threads(&["CPU 0/KVM", "CPU 1/KVM"]), &[&directory]);
        assert_eq!(pairs(&found), [(0, Some(101)), (1, Some(100))]);
        let directory =
            Directory { vcpus: BTreeMap::from([(0, 101), (1, 0), (2, 0)]), ..Directory::default() };
        let names = threads(&["CPU 0/KVM", "CPU 1/KVM", "CPU 2/KVM"]);
        let found = joined(&descriptors(&[0, 1, 2]), &names, &[&directory]);
        assert_eq!(pairs(&found), [(0, Some(101)), (1, None), (2, Some(102))], "one thread runs one vCPU");
    }
}
