//! Threads that work for a VM, other than its vCPUs.

use super::process::{NamedThread, Process};
use crate::Root;

/// The thread that created a vhost worker, from the worker's name (drivers/vhost/vhost.c).
fn vhost_owner(name: &str) -> Option<i32> {
    name.strip_prefix("vhost-")?.parse().ok()
}

/// The thread that created a vhost worker, if that is a kernel thread. A program can have the same name.
pub(super) fn owner_of_worker(worker: &Process, name: &str) -> Option<i32> {
    vhost_owner(name).filter(|_| worker.is_kernel_thread())
}

/// All vhost workers that are kernel threads: always before Linux 6.4, optionally since 6.17.
pub(super) fn kernel_workers(root: &Root, pids: &[i32]) -> Vec<NamedThread> {
    let worker = |&tid: &i32| {
        let process = Process::new(root, tid);
        let name = process.command()?;
        owner_of_worker(&process, &name)?;
        Some(NamedThread { tid, name, kernel: true })
    };
    pids.iter().filter_map(worker).collect()
}

/// The vhost workers of a process: its own threads, and kernel threads named after one of them.
pub(super) fn vhost(own: &[NamedThread], kernel: &[NamedThread], threads: &[i32]) -> Vec<NamedThread> {
    let within = own.iter().filter(|one| vhost_owner(&one.name).is_some());
    let beside =
        kernel.iter().filter(|one| vhost_owner(&one.name).is_some_and(|owner| threads.contains(&owner)));
    within.chain(beside).cloned().collect()
}

/// QEMU's I/O threads, without the monitor's, which does no I/O for the guest.
pub(super) fn iothreads(own: &[NamedThread]) -> Vec<NamedThread> {
    let named = own.iter().filter_map(|one| {
        let name = one.name.strip_prefix("IO ").filter(|&name| name != "mon_iothread")?;
        Some(NamedThread { name: name.to_owned(), ..one.clone() })
    });
    named.collect()
}
