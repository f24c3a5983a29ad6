//! KVM's directories in debugfs, one for each VM.
//!
//! Their names are `TID-FD`, from the thread that created the VM and its descriptor, and they contain a
//! directory `vcpuN` for each vCPU with its thread in `pid` (virt/kvm/kvm_main.c, arch/x86/kvm/debugfs.c;
//! older kernels lack `pid`).

use crate::Root;
use std::collections::BTreeMap;
use std::path::PathBuf;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Directory {
    pub(super) path: PathBuf,
    pub(super) maker: i32,
    pub(super) fd: i32,
    /// Threads by vCPU; 0 before the vCPU's first entry.
    pub(super) vcpus: BTreeMap<u32, i32>,
}

/// All directories; empty if debugfs is not mounted or cannot be read.
pub(super) fn directories(root: &Root) -> Vec<Directory> {
    let names = root.entries("/sys/kernel/debug/kvm", |name| name.contains('-')).unwrap_or_default();
    let mut found: Vec<Directory> = names.iter().filter_map(|name| directory(root, name)).collect();
    found.sort_unstable_by_key(|one| (one.maker, one.fd));
    found
}

fn directory(root: &Root, name: &str) -> Option<Directory> {
    let (maker, fd) = name.split_once('-')?;
    let (maker, fd) = (maker.parse().ok()?, fd.parse().ok()?);
    let path = format!("/sys/kernel/debug/kvm/{name}");
    let vcpu = |name: &String| {
        let number = name.strip_prefix("vcpu")?.parse().ok()?;
        let thread = root.text(&format!("{path}/{name}/pid"), "a thread").ok()?.parse().ok()?;
        Some((number, thread))
    };
    let vcpus = root.entries(&path, |name| name.starts_with("vcpu")).ok()?.iter().filter_map(vcpu).collect();
    Some(Directory { path: PathBuf::from(path), maker, fd, vcpus })
}

/// The directories of one process. If vCPUs have run, most of their threads identify the process: the creator may
/// have ended, and its thread ID may have been reused. An unplugged vCPU keeps the ID of its thread, which may have been
/// reused as well; if most are unplugged, the creator decides.
pub(super) fn of_process<'a>(all: &'a [Directory], threads: &[i32], vm_fds: &[i32]) -> Vec<&'a Directory> {
    let is_own = |one: &&Directory| {
        let have_run = one.vcpus.values().filter(|&&thread| thread > 0);
        let own = have_run.clone().filter(|thread| threads.contains(thread)).count();
        let all = have_run.count();
        let made = || threads.contains(&one.maker) && vm_fds.contains(&one.fd);
        2 * own > all || (own > 0 || all == 0) && made()
    };
    all.iter().filter(is_own).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(maker: i32, fd: i32, vcpus: &[(u32, i32)]) -> Directory {
        Directory { maker, fd, vcpus: vcpus.iter().copied().collect(), ..Directory::default() }
    }

    #[test]
    fn threads_of_vcpus_decide_before_the_maker() {
        let all = [
            made(10, 5, &[(0, 11)]),
            made(10, 6, &[(0, 0)]),
            made(10, 7, &[(0, 99)]),
            made(3, 5, &[(0, 12)]),
        ];
        let own = of_process(&all, &[10, 11, 12], &[5, 6, 7]);
        assert_eq!(own, [&all[0], &all[1], &all[3]]);
        assert!(of_process(&all, &[10], &[9]).is_empty());
    }

    #[test]
    fn a_reused_number_of_an_unplugged_vcpus_thread_makes_no_vm_of_another_process() {
        let all = [made(10, 5, &[(0, 11), (1, 12), (2, 13)]), made(20, 5, &[(0, 21), (1, 12), (2, 13)])];
        assert_eq!(of_process(&all, &[10, 11, 12], &[5]), [&all[0]]);
        assert_eq!(of_process(&all, &[20, 21], &[5]), [&all[1]], "most of its vCPUs are unplugged");
        assert_eq!(of_process(&all, &[30, 12], &[5]), Vec::<&Directory>::new());
    }
}
