//! The reason why the kernel rejected a program, in one line, with the next step.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use aya::EbpfError;
use aya::programs::ProgramError;
use exits::{KernelVersion, with_causes};

use crate::Error;

pub(crate) fn not_loaded(error: &EbpfError) -> Error {
    Error::Load { cause: with_causes(error), next: what_next(error, kernel()) }
}

/// The error with the reason in one line; the verifier's log is saved to a file.
pub(crate) fn rejected(program: &str, error: &ProgramError) -> Error {
    let ProgramError::LoadError { io_error, verifier_log } = error else {
        return Error::Load {
            cause: format!("{program}: {}", with_causes(error)),
            next: what_next(error, kernel()),
        };
    };
    let log = verifier_log.to_string();
    if log.trim().is_empty() {
        let cause = format!("the kernel refused program {program}: {io_error}");
        return Error::Load { cause, next: what_next(error, kernel()) };
    }
    let reason = reason_of_rejection(&log).to_owned();
    if is_lockdown(&reason) {
        return Error::LockedDown;
    }
    let saved = save(&std::env::temp_dir(), &log);
    Error::Rejected { program: program.to_owned(), reason, log: saved.ok() }
}

/// Saves a log in a new file. Others may write to the folder too: an existing file, link or FIFO is left alone, and
/// another name is tried.
fn save(folder: &Path, log: &str) -> io::Result<PathBuf> {
    const NAMES: u32 = 100;
    for number in 0..NAMES {
        let path = folder.join(format!("exitless-verifier-{}-{number}.log", std::process::id()));
        match File::options().write(true).create_new(true).open(&path) {
            Ok(mut file) => return file.write_all(log.as_bytes()).map(|()| path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// The last line of the verifier's log before its statistics.
fn reason_of_rejection(log: &str) -> &str {
    let statistics = ["processed ", "verification time ", "stack depth "];
    let mut lines = log.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.rfind(|line| !statistics.iter().any(|start| line.starts_with(start))).unwrap_or(log)
}

/// Tests whether the kernel forbids to read its memory, which only lockdown in confidentiality mode does. Containers do not
/// see the mode (securityfs).
fn is_lockdown(reason: &str) -> bool {
    // "unknown func bpf_probe_read#4", later "program of this type cannot use helper bpf_probe_read#4".
    reason.contains("bpf_probe_read#")
}

/// The version of the running kernel.
fn kernel() -> Option<KernelVersion> {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").ok()?.parse().ok()
}

fn what_next(error: &(dyn std::error::Error + 'static), kernel: Option<KernelVersion>) -> &'static str {
    // Since then, maps count against the cgroup's memory limit instead of RLIMIT_MEMLOCK.
    let locks_maps = kernel.is_some_and(|kernel| kernel < KernelVersion::new(5, 11));
    let mut source = Some(error);
    while let Some(error) = source {
        if let Some(io) = error.downcast_ref::<std::io::Error>() {
            return match io.raw_os_error() {
                Some(libc::EPERM | libc::EACCES) if locks_maps => {
                    "run as root (CAP_SYS_ADMIN is needed, or from Linux 5.8 on CAP_BPF and CAP_PERFMON), and raise \
                     the limit of locked memory (`ulimit -l unlimited`; in a unit of systemd, LimitMEMLOCK=infinity)"
                }
                Some(libc::EPERM | libc::EACCES) => {
                    "run as root (CAP_BPF and CAP_PERFMON are needed; in a container, its seccomp profile and SELinux \
                     must allow bpf(2) too)"
                }
                Some(libc::ENOMEM) => {
                    "free memory, or raise the limit of the control group (in a unit of systemd, MemoryMax=)"
                }
                Some(libc::ENOSYS) => "this kernel was built without eBPF (CONFIG_BPF_SYSCALL)",
                _ => "see the kernel's log",
            };
        }
        source = error.source();
    }
    "see the kernel's log"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verifier_says_why_before_its_statistics() {
        let log = "0: R1=ctx() R10=fp0\n1: (79) r1 = *(u64 *)(r1 +8)\nR1 invalid mem access 'scalar'\n\
                   verification time 37 usec\nstack depth 0\nprocessed 2 insns (limit 1000000)\n";
        assert_eq!(reason_of_rejection(log), "R1 invalid mem access 'scalar'");
        assert_eq!(reason_of_rejection(""), "");
    }

    #[test]
    fn a_kernel_without_the_helper_that_reads_it_is_locked_down() {
        let log = "0: R1=ctx() R10=fp0\n9: (85) call bpf_probe_read#4\n\
                   program of this type cannot use helper bpf_probe_read#4\nprocessed 10 insns (limit 1000000)\n";
        assert!(is_lockdown(reason_of_rejection(log)));
        assert!(is_lockdown("unknown func bpf_probe_read#4"));
        let of_another = "9: (85) call bpf_probe_read#4\nR1 type=scalar expected=fp\nprocessed 10 insns\n";
        assert!(!is_lockdown(reason_of_rejection(of_another)));
    }

    #[test]
    fn what_limits_maps_is_named_by_the_kernels_version() {
        let next = |code, kernel: &str| {
            let io_error = io::Error::from_raw_os_error(code);
            let error = aya::maps::MapError::CreateError { name: "cells".to_owned(), io_error };
            what_next(&error, kernel.parse().ok())
        };
        for (code, kernel, names, names_not) in [
            (libc::EPERM, "5.10.0-30-amd64", "LimitMEMLOCK", "lockdown"),
            (libc::EPERM, "5.11.0", "CAP_BPF", "LimitMEMLOCK"),
            (libc::EPERM, "6.12.1", "CAP_PERFMON", "lockdown"),
            (libc::EPERM, "6.12.1", "seccomp profile", "LimitMEMLOCK"),
            (libc::EACCES, "6.12.1", "SELinux", "LimitMEMLOCK"),
            (libc::ENOMEM, "5.10.0-30-amd64", "MemoryMax", "ulimit"),
            (libc::ENOMEM, "6.12.1", "MemoryMax", "ulimit"),
        ] {
            let said = next(code, kernel);
            assert!(said.contains(names) && !said.contains(names_not), "{code} {kernel}: {said}");
        }
    }

    #[test]
    fn a_log_follows_no_link_and_waits_at_no_fifo() {
        let folder = tempfile::tempdir().unwrap();
        let name = |number: u32| {
            folder.path().join(format!("exitless-verifier-{}-{number}.log", std::process::id()))
        };
        let kept = folder.path().join("kept");
        std::fs::write(&kept, "old").unwrap();
        std::os::unix::fs::symlink(&kept, name(0)).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(name(1)).status().unwrap().success());
        std::os::unix::fs::symlink(folder.path().join("none"), name(2)).unwrap();
        assert_eq!(save(folder.path(), "log").unwrap(), name(3));
        assert_eq!(std::fs::read_to_string(name(3)).unwrap(), "log");
        assert_eq!(std::fs::read_to_string(&kept).unwrap(), "old");
        assert!(!folder.path().join("none").exists());
    }
}
