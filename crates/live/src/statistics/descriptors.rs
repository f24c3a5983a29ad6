//! Counters from KVM's binary statistics, through descriptors of the VMM.

use super::Found;
use host::kvm_statistics::{StatisticsError, StatisticsFile};
use host::vms::Vm;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

/// The error of reading the descriptors.
#[derive(Debug, thiserror::Error)]
pub(super) enum DescriptorError {
    #[error("Process {pid} has no descriptor of statistics open; QEMU has since 8.1, on Linux 5.14 or later")]
    None { pid: i32 },
    #[error("Process {pid} cannot be opened; see whether the VM still runs")]
    Process {
        pid: i32,
        #[source]
        source: io::Error,
    },
    #[error("Descriptor {fd} cannot be taken from process {pid}; {next}")]
    Take {
        fd: i32,
        pid: i32,
        next: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("Descriptor {fd} of process {pid} is not the statistics of a vCPU any more; read the VM again")]
    Other { fd: i32, pid: i32 },
    #[error("Statistics of vCPU {vcpu} (descriptor {fd} of process {pid}) cannot be read")]
    Statistics {
        vcpu: u32,
        fd: i32,
        pid: i32,
        #[source]
        source: StatisticsError,
    },
}

/// The counters of each vCPU. The descriptors are not kept open, because they would keep the VM's memory after its
/// end.
pub(super) fn read(vm: &Vm) -> Result<Found, DescriptorError> {
    let pid = vm.pid;
    let open: Vec<(u32, i32)> =
        vm.vcpus.iter().filter_map(|vcpu| Some((vcpu.number, vcpu.statistics_fd?))).collect();
    if open.is_empty() {
        return Err(DescriptorError::None { pid });
    }
    // A process in execve(2) blocks pidfd_getfd(2) until it has closed its own descriptors, and the close of a file
    // on a file system of its own (FUSE) can take forever.
    let home = PathBuf::from(format!("/proc/{pid}"));
    files::look(&home, move || read_each(pid, open))
        .map_err(|source| DescriptorError::Process { pid, source })?
}

fn read_each(pid: i32, open: Vec<(u32, i32)>) -> Result<Found, DescriptorError> {
    let none = DescriptorError::None { pid };
    let process = pidfd_open(Pid::from_raw(pid).ok_or(none)?, PidfdFlags::empty())
        .map_err(|source| DescriptorError::Process { pid, source: source.into() })?;
    let mut found = Found::default();
    for (vcpu, fd) in open {
        let file = take(&process, pid, fd)?;
        let counters = StatisticsFile::new(file)
            .and_then(|file| file.read_cumulative())
            .map_err(|source| DescriptorError::Statistics { vcpu, fd, pid, source })?;
        found.add(&counters);
        let of_vcpu = found.vcpus.entry(vcpu).or_default();
        for (name, value) in counters {
            let sum = of_vcpu.entry(name).or_default();
            *sum = sum.saturating_add(value);
        }
    }
    found.name_units();
    Ok(found)
}

/// Duplicates a descriptor of the process, and checks that it is a vCPU's: the process may have closed it and reused
/// the number.
fn take(process: &OwnedFd, pid: i32, fd: i32) -> Result<File, DescriptorError> {
    let file = pidfd_getfd(process, fd, PidfdGetfdFlags::empty()).map_err(|error| {
        let next = match error {
            Errno::PERM | Errno::ACCESS => "run as root; kernel.yama.ptrace_scope may forbid it to others",
            Errno::BADF => "the VM has changed, so read it again",
            Errno::NOSYS => "it takes Linux 5.6",
            _ => "see the cause",
        };
        DescriptorError::Take { fd, pid, next, source: error.into() }
    })?;
    let file = File::from(file);
    let name = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let is_of_vcpu = name.is_ok_and(|name| name.to_string_lossy().starts_with("anon_inode:kvm-vcpu-stats:"));
    if is_of_vcpu { Ok(file) } else { Err(DescriptorError::Other { fd, pid }) }
}
