//! Parts of the host that commands use, and the check of each.

use std::path::Path;

use exits::with_causes_in_brackets;
use host::Root;
use host::vms::Vms;
use hotspots::KernelSymbols;
use live::{Collector, Profiler, Sampling, Watch};
use probe::MicroVm;
use serde::Serialize;

/// A part of the host that commands use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// `/dev/kvm` opens for reading and writing.
    Device,
    /// A micro VM can be created.
    MicroVm,
    /// The eBPF programs pass the verifier and can be attached (to system calls, which every kernel has).
    Programs,
    /// The eBPF programs can be attached to KVM's events.
    Exits,
    /// The kernel's type information (BTF); without it the stable tracepoints are used.
    Types,
    /// perf's events of tracepoints on all CPUs, with tracefs.
    PerfEvents,
    /// Stacks can be sampled on all CPUs.
    Sampling,
    /// The addresses of the kernel's functions.
    Symbols,
    /// Processes of other users can be inspected.
    Processes,
    /// The kernel's log.
    KernelLog,
    /// io_uring; without it threads do the disk I/O.
    IoUring,
    /// The control tree can be mounted (FUSE).
    Tree,
    /// The user is root.
    Root,
}

const HOST: &str = "/";

impl Part {
    /// All parts, in the order in which they are tried.
    pub const ALL: &[Self] = &[
        Self::Device,
        Self::MicroVm,
        Self::Programs,
        Self::Exits,
        Self::Types,
        Self::PerfEvents,
        Self::Sampling,
        Self::Symbols,
        Self::Processes,
        Self::KernelLog,
        Self::IoUring,
        Self::Tree,
        Self::Root,
    ];

    /// Its title for people.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Device => "/dev/kvm",
            Self::MicroVm => "a micro VM",
            Self::Programs => "eBPF programs",
            Self::Exits => "KVM's exit events",
            Self::Types => "the kernel's BTF",
            Self::PerfEvents => "perf events of tracepoints",
            Self::Sampling => "sampling all CPUs",
            Self::Symbols => "kernel addresses",
            Self::Processes => "other users' processes",
            Self::KernelLog => "the kernel log",
            Self::IoUring => "io_uring",
            Self::Tree => "mounting with FUSE",
            Self::Root => "root",
        }
    }

    /// The capabilities that a user other than root needs, on Linux 5.8 and later.
    #[must_use]
    pub const fn capabilities(self) -> &'static [&'static str] {
        match self {
            // Access to /dev/kvm depends on the device's group; io_uring and BTF need no capability.
            Self::Device | Self::MicroVm | Self::Types | Self::IoUring | Self::Root => &[],
            Self::Programs | Self::Exits | Self::Sampling => &["CAP_BPF", "CAP_PERFMON"],
            // Only root can read tracefs.
            Self::PerfEvents => &["CAP_DAC_READ_SEARCH", "CAP_PERFMON"],
            Self::Symbols | Self::KernelLog => &["CAP_SYSLOG"],
            Self::Processes => &["CAP_DAC_READ_SEARCH", "CAP_SYS_PTRACE"],
            // udev lets everybody open /dev/fuse (systemd's 50-udev-default.rules).
            Self::Tree => &["CAP_SYS_ADMIN"],
        }
    }

    /// Tries the part. The error has the reason and the next step.
    pub(crate) fn check(self) -> Result<(), String> {
        let host = Path::new(HOST);
        match self {
            Self::Device => host::kvm::usable(host).access.map_err(|obstacle| obstacle.to_string()),
            Self::MicroVm => MicroVm::new(&probe::Config::default())
                .map(drop)
                .map_err(|error| with_causes_in_brackets(&error)),
            Self::Programs => taken(Collector::attach_to_system_calls(&Watch::default())),
            Self::Exits => taken(Collector::attach(host, &Watch { accesses: true, ..Watch::default() })),
            Self::Types => live::type_information(host),
            Self::PerfEvents => taken(live::trace::try_all_cpus(host)),
            Self::Sampling => {
                taken(Profiler::attach_to_system_calls(&Watch::default(), &Sampling::default()))
            }
            Self::Symbols => symbols(host),
            Self::Processes => processes(host),
            Self::KernelLog => Root::live().may_read_log().map_err(|absence| absence.why),
            Self::IoUring => iocm::worker::io_uring().map_err(|error| {
                format!("{error}; threads do the disk I/O instead (kernel.io_uring_disabled, seccomp)")
            }),
            Self::Tree => iocm::control::mount::can_mount().map_err(|error| with_causes_in_brackets(&error)),
            Self::Root => match rustix::process::geteuid().is_root() {
                true => Ok(()),
                false => {
                    Err("this user is not root, whom changes of the host and their journal need".to_owned())
                }
            },
        }
    }
}

fn taken<T>(outcome: Result<T, live::Error>) -> Result<(), String> {
    outcome.map(drop).map_err(|error| with_causes_in_brackets(&error))
}

fn symbols(host: &Path) -> Result<(), String> {
    let path = host.join("proc/kallsyms");
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    if KernelSymbols::parse(&text).are_hidden() {
        return Err("the kernel hides the addresses of its functions; run as root or with CAP_SYSLOG \
                    (kernel.kptr_restrict)"
            .to_owned());
    }
    Ok(())
}

fn processes(host: &Path) -> Result<(), String> {
    let found = Vms::discover(host).map_err(|error| with_causes_in_brackets(&error))?;
    match found.unreadable {
        0 => Ok(()),
        number => Err(format!(
            "VMs of other users are not seen, for this user may not inspect their processes (here {number}); run as \
             root or with CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH; in a container its AppArmor profile or SELinux can \
             forbid it too"
        )),
    }
}
