//! Errors of counting, each with its next step.

use crate::FormatError;
use std::io;
use std::path::{Path, PathBuf};

/// A failure to attach to, or read from, the kernel's tracepoints.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No tracefs is mounted in the usual places.
    #[error(
        "No tracefs at {first} nor at {second}; mount it with `mount -t tracefs tracefs {first}` (needs root)"
    )]
    NoTracefs {
        /// The usual place.
        first: PathBuf,
        /// Its place on older kernels, below debugfs.
        second: PathBuf,
    },
    /// The user may not access tracefs.
    #[error("{path} may not be read; run as root{}", or_remount(home))]
    TracefsDenied {
        /// The path that was tried.
        path: PathBuf,
        /// The directory of tracefs.
        home: PathBuf,
    },
    /// The kernel does not have the tracepoint, or not at the moment.
    #[error("No tracepoint {event}: {path} is missing; {next}")]
    NoEvent {
        /// The event as `system:name`.
        event: String,
        /// Its format file.
        path: PathBuf,
        /// The next step for the user.
        next: &'static str,
    },
    /// A file of the kernel could not be read.
    #[error("Cannot read {path}, expected {expected}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The expected content.
        expected: &'static str,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A format file is not as expected.
    #[error(
        "Cannot understand {path}; the kernel is newer than this program, or the file is not a format file"
    )]
    Format {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: FormatError,
    },
    /// A tracepoint lacks a field, or its size is not supported.
    #[error("Tracepoint {event} has no usable field `{field}`; this kernel's event is not supported")]
    Field {
        /// The event.
        event: String,
        /// The field.
        field: &'static str,
    },
    /// `perf_event_open` failed.
    #[error("Cannot count {event} of thread {thread}; {next}")]
    Open {
        /// The event.
        event: String,
        /// The thread.
        thread: i32,
        /// The next step for the user.
        next: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The ring buffer could not be mapped.
    #[error("Cannot map a buffer of {bytes} bytes for thread {thread}; {next}")]
    Map {
        /// The thread.
        thread: i32,
        /// The buffer's size.
        bytes: usize,
        /// The next step for the user.
        next: &'static str,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// An operation on open events failed: starting, stopping, reading or redirecting.
    #[error("Cannot {action} the events of thread {thread}; the kernel refused what it allowed at first")]
    Control {
        /// The thread.
        thread: i32,
        /// The operation that was tried.
        action: &'static str,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The kernel is locked down in confidentiality mode.
    #[error(
        "The kernel is locked down (confidentiality): no eBPF program may read its memory, and tracefs is empty, also \
         for root; boot without lockdown=confidentiality (integrity is no obstacle); `exitless doctor` says more"
    )]
    LockedDown,
    /// No vendor module of KVM is loaded.
    #[error("KVM is not loaded: there is neither kvm_intel nor kvm_amd; `exitless doctor` says why")]
    NoKvm,
    /// The kernel did not load the programs.
    #[error("The eBPF programs could not be loaded: {cause}; {next}")]
    Load {
        /// The message of the kernel or the loader.
        cause: String,
        /// The next step for the user.
        next: &'static str,
    },
    /// The kernel's verifier rejected a program.
    #[error(
        "The kernel's verifier refused eBPF program {program}: {reason}; {}",
        saved(log.as_deref())
    )]
    Rejected {
        /// The program.
        program: String,
        /// The last line of the verifier's log.
        reason: String,
        /// The path of the complete log.
        log: Option<PathBuf>,
    },
    /// A loaded program could not be attached.
    #[error("The eBPF program for {event} could not be attached: {cause}")]
    Attach {
        /// The tracepoint.
        event: &'static str,
        /// The message of the kernel.
        cause: String,
    },
    /// An element of a map could not be read or written.
    #[error("The counts in the kernel could not be reached")]
    KernelMap {
        /// The cause.
        #[source]
        cause: aya::maps::MapError,
    },
    /// The kernel does not measure the programs' CPU time.
    #[error("The kernel does not measure eBPF programs (Linux 5.8 and CAP_SYS_ADMIN are needed)")]
    Cost {
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// An event for a CPU could not be opened, filtered, mapped or read.
    #[error("Cannot {action} {event} on CPU {cpu}; {next}")]
    OnCpu {
        /// The operation that was tried.
        action: &'static str,
        /// The event.
        event: String,
        /// The CPU.
        cpu: u32,
        /// The next step for the user.
        next: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The system refused another thread.
    #[error(
        "Cannot start a thread that {does}; raise the limit of processes (`ulimit -u`, or the cgroup's pids.max)"
    )]
    Thread {
        /// The thread's work.
        does: &'static str,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// None of the requested events exists.
    #[error("There is nothing to trace: {0}")]
    NothingToTrace(String),
}

/// The command with which a group gets access. The root of tracefs has mode 0700 (fs/tracefs/inode.c), so the group alone is
/// not enough. Below debugfs it does not help, whose root has the same mode.
fn or_remount(home: &Path) -> String {
    if home.ends_with("debug/tracing") {
        return String::new();
    }
    format!(
        ", or give your group access with `mount -o remount,mode=750,gid=GROUP {}` (needs root)",
        home.display()
    )
}

fn saved(log: Option<&Path>) -> String {
    match log {
        Some(path) => format!("its whole log is in {}", path.display()),
        None => "its log could not be saved".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_gets_access_to_tracefs_by_its_mode_too() {
        let told = |home: &str| {
            let path = Path::new(home).join("events/kvm/kvm_exit/format");
            Error::TracefsDenied { path, home: home.into() }.to_string()
        };
        let usual = told("/sys/kernel/tracing");
        assert!(usual.contains("mode=750,gid=GROUP /sys/kernel/tracing`"), "{usual}");
        let debugfs = told("/sys/kernel/debug/tracing");
        assert!(debugfs.ends_with("run as root"), "{debugfs}");
    }

    #[test]
    fn without_kvm_only_what_every_command_has_is_named() {
        let said = Error::NoKvm.to_string();
        assert!(said.starts_with("KVM is not loaded") && said.contains("exitless doctor"), "{said}");
        assert!(!said.contains("--wait") && !said.contains("modprobe"), "{said}");
    }
}
