//! Counters from KVM's binary statistics, through descriptors of the VMM.

use super::Found;
use super::taking::Taker;
use host::kvm_statistics::{StatisticsError, StatisticsFile};
use host::vms::Vm;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io;
use std::os::fd::AsFd as _;
use std::path::PathBuf;

/// The beginning of the name of a vCPU's statistics.
const NAME: &[u8] = b"anon_inode:kvm-vcpu-stats:";

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
    // on a file system of its own (FUSE) can take forever. So can that of a file that it puts in place of another.
    let home = PathBuf::from(format!("/proc/{pid}"));
    files::look(&home, move || read_each(pid, open))
        .map_err(|source| DescriptorError::Process { pid, source })?
}

fn read_each(pid: i32, open: Vec<(u32, i32)>) -> Result<Found, DescriptorError> {
    let none = DescriptorError::None { pid };
    let process = pidfd_open(Pid::from_raw(pid).ok_or(none)?, PidfdFlags::empty())
        .map_err(|source| DescriptorError::Process { pid, source: source.into() })?;
    let numbers: Vec<i32> = open.iter().map(|&(_, fd)| fd).collect();
    let taker = Taker::start(process.as_fd(), &numbers, NAME)
        .map_err(|source| DescriptorError::Process { pid, source })?;
    let mut found = Found::default();
    for (vcpu, fd) in open {
        let file = taker.receive().map_err(|error| not_taken(pid, fd, error))?;
        // The process may have closed it and reused the number.
        let file = file.ok_or(DescriptorError::Other { fd, pid })?;
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

fn not_taken(pid: i32, fd: i32, error: Errno) -> DescriptorError {
    let next = match error {
        Errno::PERM | Errno::ACCESS => "run as root; kernel.yama.ptrace_scope may forbid it to others",
        Errno::BADF => "the VM has changed, so read it again",
        Errno::NOSYS => "it takes Linux 5.6",
        Errno::MFILE => "raise the limit of open files (ulimit -n)",
        _ => "see the cause",
    };
    DescriptorError::Take { fd, pid, next, source: error.into() }
}
