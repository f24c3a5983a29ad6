//! The running VMs of a KVM host, and their facts as seen from the host.
//!
//! A VM is found by the descriptors that KVM gives to its creator: `/proc/PID/fd` shows them as
//! `anon_inode:kvm-vm` and `anon_inode:kvm-vcpu:N` (virt/kvm/kvm_main.c). The names of programs do not
//! matter.

mod arguments;
mod debugfs;
mod descriptors;
mod device;
mod manager;
mod monitor;
mod name;
mod process;
mod selection;
mod spent;
mod thread;
mod vcpu;

use crate::{Error, Root};
use descriptors::Descriptors;
use process::{Listing, Process};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub use device::AssignedDevice;
pub use manager::{Management, Manager};
pub use monitor::{Monitor, MonitorUse};
pub use name::Vmm;
pub use process::NamedThread;
pub use selection::{NoSuchVm, WantedVm};
pub use spent::{Spent, ThreadReading, Work};
pub use vcpu::Vcpu;

/// The VMs of a host, by process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vms {
    /// The VMs, by process ascending.
    pub vms: Vec<Vm>,
    /// Processes whose descriptors cannot be read; each may be another VM. Root can read all.
    pub unreadable: u32,
    /// The unreadable processes with threads that are named like vCPUs.
    pub likely: Vec<LikelyVm>,
    /// Processes that could not be examined completely, because they block the reader. Each may be another
    /// VM.
    #[serde(default)]
    pub held: Vec<HeldProcess>,
}

/// The advice for reading processes of other users.
pub const AS_ROOT: &str = "run as root, with CAP_SYS_PTRACE (containers lack it)";

/// A process with one VM or several: KVM's descriptors do not show to which VM a vCPU belongs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vm {
    /// The process.
    pub pid: i32,
    /// Its VMM.
    pub vmm: Vmm,
    /// The program that manages it, and its names there.
    #[serde(default)]
    pub management: Management,
    /// The process's own name (`comm`, at most 15 characters).
    pub command: String,
    /// Its name for the user: the first 256 characters of the name on the command line, otherwise `command`.
    pub name: String,
    /// The command line, without text that the process may have written over it.
    pub arguments: Vec<String>,
    /// The start of the process, in clock ticks since boot: with `pid` it identifies the process
    /// (proc_pid_stat(5), field 22).
    pub start_ticks: u64,
    /// The start in seconds since 1970; `None` if the time of the boot is unknown.
    pub started: Option<u64>,
    /// Descriptors of VMs, ascending. Programs that run several micro VMs have several.
    pub vm_fds: Vec<i32>,
    /// vCPUs by number, ascending; a number occurs once for each VM that has it.
    pub vcpus: Vec<Vcpu>,
    /// All threads of the process, ascending.
    pub threads: Vec<i32>,
    /// vhost workers: threads of the process, or of the kernel if `kernel` is set.
    pub vhost: Vec<NamedThread>,
    /// QEMU's I/O threads, by the names of their objects (`iothread1`).
    pub iothreads: Vec<NamedThread>,
    /// Sockets of QEMU's monitors.
    pub monitors: Vec<Monitor>,
    /// Devices of the host that are assigned to the VM.
    pub devices: Vec<AssignedDevice>,
    /// Open VFIO groups and devices of the process (`/dev/vfio/12`, `/dev/vfio/devices/vfio0`).
    pub vfio: Vec<PathBuf>,
    /// It has a vDPA device open (`/dev/vhost-vdpa-0`).
    #[serde(skip)]
    pub has_vdpa: bool,
    /// Its directories in KVM's part of debugfs, below the root; empty if that cannot be read or does not
    /// exist.
    pub debugfs: Vec<PathBuf>,
}

/// A process that looks like a VM but cannot be examined.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LikelyVm {
    /// The process.
    pub pid: i32,
    /// Its name (`comm`).
    pub command: String,
    /// The number of threads that are named like vCPUs.
    pub vcpu_threads: u32,
}

/// A process that blocks readers of its files: it holds a lock while it waits in the kernel for a file system
/// that hangs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldProcess {
    /// The process.
    pub pid: i32,
    /// Its name (`comm`).
    pub command: String,
}

impl Vms {
    /// Finds the VMs of the host below `root` (`/` for this one). Omits processes that end during the search.
    ///
    /// # Errors
    /// [`Error::Read`] if the root has no readable `proc`.
    pub fn discover(root: &Path) -> Result<Self, Error> {
        let root = &Root::directory(root);
        let mut found = Self::discover_in(root)?;
        for home in found.vms.iter_mut().flat_map(|vm| &mut vm.debugfs) {
            *home = root.place(&home.to_string_lossy());
        }
        Ok(found)
    }

    /// Finds the VMs of a root, which can be another machine. The paths in `debugfs` of each VM are those of
    /// that machine.
    ///
    /// # Errors
    /// Those of [`Self::discover`].
    pub fn discover_in(root: &Root) -> Result<Self, Error> {
        files::many_looks(|| Self::search(root))
    }

    fn search(root: &Root) -> Result<Self, Error> {
        let entries = root.entries("/proc", is_number).map_err(|source| Error::Read {
            path: root.place("/proc"),
            expected: "a directory for each running process",
            next: "mount it with `mount -t proc proc /proc`, or give the directory that stands for /",
            source,
        })?;
        let mut pids: Vec<i32> = entries.iter().filter_map(|name| name.parse().ok()).collect();
        pids.sort_unstable();

        let boot = process::boot_time(root);
        let kernel_workers = thread::kernel_workers(root, &pids);
        let directories = debugfs::directories(root);
        let mut found = Self::default();
        for pid in pids {
            let process = Process::new(root, pid);
            match Descriptors::read(&process) {
                Listing::Gone => process.forget(),
                Listing::Denied => found.count_unreadable(&process),
                // Keep the record of the process: it may be a VM.
                Listing::Held => {}
                Listing::Read(descriptors) if descriptors.has_vm() => {
                    found.vms.extend(Vm::read(&process, descriptors, boot, &kernel_workers, &directories));
                }
                Listing::Read(_) if kernel_workers.iter().any(|worker| worker.tid == pid) => {}
                Listing::Read(_) => process.forget(),
            }
            if process.is_held() {
                let command = process.command().unwrap_or_default();
                found.held.push(HeldProcess { pid, command });
            }
        }
        Ok(found)
    }

    /// The processes of [`Self::held`] that are none of the VMs that were found.
    pub fn hidden(&self) -> impl Iterator<Item = &HeldProcess> {
        self.held.iter().filter(|held| self.vms.iter().all(|vm| vm.pid != held.pid))
    }

    fn count_unreadable(&mut self, process: &Process) {
        self.unreadable += 1;
        let vcpu_threads =
            process.threads().iter().filter(|one| vcpu::number_of(&one.name).is_some()).count();
        if vcpu_threads > 0 {
            let command = process.command().unwrap_or_default();
            let vcpu_threads = u32::try_from(vcpu_threads).unwrap_or(u32::MAX);
            self.likely.push(LikelyVm { pid: process.pid, command, vcpu_threads });
        } else {
            process.forget_threads();
        }
    }
}

/// The first 256 characters of the VM's name on the command line of process `pid`. Does not check that the process has a
/// VM.
#[must_use]
pub fn name_of(root: &Path, pid: i32) -> Option<String> {
    named(&Process::new(&Root::directory(root), pid))?.2.map(|name| name::shortened(&name).to_owned())
}

/// The first 256 characters of the name of the VM of process `pid`, and its names in its manager, from the command line and
/// control group of the process. Does not check that the process has a VM. `None` if there is no such process, it is exiting,
/// or it is a kernel thread.
#[must_use]
pub fn names_of(root: &Path, pid: i32) -> Option<(Option<String>, Management)> {
    let root = &Root::directory(root);
    let process = Process::new(root, pid);
    let (vmm, arguments, name) = named(&process)?;
    let management = Management::of(vmm, name.as_deref(), &arguments, &process.control_groups());
    Some((name.map(|name| name::shortened(&name).to_owned()), management))
}

/// The thread that created the vhost worker with this ID and name (`comm`), if the worker is a kernel thread: always before
/// Linux 6.4, optionally since 6.17. `None` for all other threads.
#[must_use]
pub fn owner_of_worker(root: &Path, tid: i32, name: &str) -> Option<i32> {
    let root = &Root::directory(root);
    thread::owner_of_worker(&Process::new(root, tid), name)
}

/// The VMM of a process, its arguments, and the VM's full name in them: names in Kubernetes are parts of it and may be longer
/// than 256 characters. `None` as for [`names_of`].
fn named(process: &Process) -> Option<(Vmm, Vec<String>, Option<String>)> {
    let (arguments, executable) = (process.arguments(), process.executable());
    // Kernel threads have no memory. A process that is exiting releases its memory first, and its descriptors
    // last.
    if arguments.is_empty() && executable.is_none() {
        return None;
    }
    let vmm = Vmm::of(executable.as_deref(), &process.command()?, &arguments);
    let name = name::of(vmm, &arguments);
    Some((vmm, arguments, name))
}

fn is_number(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_digit())
}

impl Vm {
    /// The values of the named counters in the VM's debugfs directories, summed; empty if debugfs cannot be read.
    #[must_use]
    pub fn counters(&self, root: &Root, names: &[&str]) -> BTreeMap<String, u64> {
        let mut found: BTreeMap<String, u64> = BTreeMap::new();
        for home in &self.debugfs {
            for &name in names {
                let text = root.text(&format!("{}/{name}", home.display()), "a count");
                if let Some(count) = text.ok().and_then(|text| text.parse::<u64>().ok()) {
                    let sum = found.entry(name.to_owned()).or_default();
                    *sum = sum.saturating_add(count);
                }
            }
        }
        found
    }

    /// Reads the facts of a process; `None` if it has ended or is exiting.
    fn read(
        process: &Process,
        descriptors: Descriptors,
        boot: Option<u64>,
        kernel_workers: &[NamedThread],
        directories: &[debugfs::Directory],
    ) -> Option<Self> {
        let command = process.command()?;
        let start_ticks = process.start_ticks()?;
        let (vmm, arguments, name) = named(process)?;
        let named = process.threads();
        let threads: Vec<i32> = named.iter().map(|one| one.tid).collect();
        let directories = debugfs::of_process(directories, &threads, &descriptors.vms);
        Some(Self {
            pid: process.pid,
            management: Management::of(vmm, name.as_deref(), &arguments, &process.control_groups()),
            name: name::shortened(name.as_deref().unwrap_or(&command)).to_owned(),
            started: boot.and_then(|boot| boot.checked_add(start_ticks / process::TICKS_PER_SECOND)),
            vcpus: vcpu::joined(&descriptors, &named, &directories),
            vhost: thread::vhost(&named, kernel_workers, &threads),
            iothreads: if vmm == Vmm::Qemu { thread::iothreads(&named) } else { Vec::new() },
            monitors: if vmm == Vmm::Qemu { monitor::of(&arguments) } else { Vec::new() },
            devices: device::of(vmm, &arguments),
            debugfs: directories.iter().map(|one| one.path.clone()).collect(),
            vm_fds: descriptors.vms,
            vfio: descriptors.vfio,
            has_vdpa: descriptors.has_vdpa,
            vmm,
            command,
            arguments,
            start_ticks,
            threads,
        })
    }
}

#[cfg(test)]
#[path = "vms_tests.rs"]
mod tests;
