//! Errors of laboratories.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// A failure of the laboratory itself; the exit status of a command inside is not an error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no laboratory with this name.
    #[error("no lab is called {name:?}; known: {known}")]
    UnknownLab {
        /// The requested name.
        name: String,
        /// The known names, separated by commas.
        known: String,
    },
    /// A file operation on this machine failed.
    #[error("{action} {path}", path = path.display())]
    File {
        /// The failed action, as the beginning of a sentence: "Could not read".
        action: &'static str,
        /// The object of the action.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Others could have put programs into the cache.
    #[error(
        "The cache of labs is not used, because others could have put programs there; set XDG_CACHE_HOME to a \
         directory of your own"
    )]
    CachePlace(#[source] files::Error),
    /// A file to be put into the laboratory does not exist.
    #[error("{path} does not exist and cannot be copied into the lab; nothing was started", path = path.display())]
    PutMissing {
        /// The path as given.
        path: PathBuf,
    },
    /// A folder or a pipe was given as a file to be put into the laboratory.
    #[error(
        "{path} is not a regular file and cannot be copied into the lab; pack folders with tar; nothing was started",
        path = path.display()
    )]
    PutNoFile {
        /// The path as given.
        path: PathBuf,
    },
    /// The host lacks a program.
    #[error("{program} is needed to {purpose}, and is not on PATH; install it with: {install}")]
    MissingProgram {
        /// The program's name.
        program: &'static str,
        /// The purpose for which it is needed.
        purpose: &'static str,
        /// The command that installs it.
        install: &'static str,
    },
    /// An emulator cannot be compiled here.
    #[error(
        "{emulator} must be compiled on this machine, and some tools for it are missing; install them with: apt-get install \
         {packages}"
    )]
    MissingPrograms {
        /// The emulator's source package.
        emulator: &'static str,
        /// Debian packages that are missing, separated by spaces.
        packages: String,
    },
    /// Arguments for Xen were given for a laboratory without Xen.
    #[error(
        "{lab} has no Xen that could take arguments; give those of its kernel by --kernel-argument; \
         labs with Xen are xen and xen-apicv"
    )]
    NotXen {
        /// The laboratory.
        lab: &'static str,
    },
    /// The laboratory's machine cannot have devices to assign.
    #[error("{lab} cannot have devices: its machine has no IOMMU; use amd-avic, amd-svm or xen")]
    NoDevices {
        /// The laboratory.
        lab: &'static str,
    },
    /// The laboratory's emulator cannot count instructions at this speed.
    #[error("{lab} cannot have CPUs of {given} million instructions a second; possible: {possible}")]
    NoSpeed {
        /// The laboratory.
        lab: &'static str,
        /// The requested speed.
        given: u32,
        /// The possible speeds.
        possible: String,
    },
    /// Debian's QEMU in the laboratory's image has no clock that counts instructions.
    #[error(
        "{option} needs the QEMU that is compiled for labs, but Debian's is in its place; install what `scripts/setup` names for it, then run `exitless lab build {lab}`"
    )]
    ClockInDebiansQemu {
        /// The laboratory.
        lab: &'static str,
        /// The option that needs the clock.
        option: &'static str,
    },
    /// QEMU was not compiled here, and Debian's does not remap devices' interrupts as a host needs it.
    #[error(
        "Devices need the QEMU that is compiled for labs, but Debian's is in its place; install what `scripts/setup` names for it, then run `exitless lab build {lab}`"
    )]
    DevicesInDebiansQemu {
        /// The laboratory.
        lab: &'static str,
    },
    /// The image for a host with devices has not been built.
    #[error(
        "The kernel of hosts with devices is missing; `exitless lab run amd-avic --device nvme` builds it"
    )]
    NoDeviceImage,
    /// The guest image cannot be offered to the laboratory.
    #[error("Could not give the lab the guest image: {problem}")]
    GuestImage {
        /// The reason, and a remedy.
        problem: &'static str,
    },
    /// There is no kernel with this name.
    #[error("no kernel for labs is called {name:?}; known: {known}")]
    UnknownKernel {
        /// The requested name.
        name: String,
        /// The known names, separated by commas.
        known: String,
    },
    /// A kernel was asked for where it cannot be booted.
    #[error("{lab} boots only the kernel of its own image{}; leave out --kernel, or use intel-apicv, amd-svm or amd-avic", .why)]
    OwnKernelOnly {
        /// The laboratory.
        lab: &'static str,
        /// The obstacle, if it is not the laboratory: " when it has devices".
        why: &'static str,
    },
    /// Debian's archive no longer has this kernel.
    #[error(
        "Debian's suites {suites} have no package of Linux {name} any more; take another: `exitless lab kernels` lists \
         them. EXITLESS_DEBIAN_MIRROR may name a mirror that still has it"
    )]
    KernelIsGone {
        /// The kernel's name.
        name: &'static str,
        /// The suites, separated by commas.
        suites: String,
    },
    /// The image for a host of this kernel has not been made.
    #[error("Linux {name} is not there; `exitless lab run amd-svm --kernel {name} -- true` fetches it")]
    NoKernelImage {
        /// The kernel's name.
        name: &'static str,
    },
    /// Too little free space on the disk.
    #[error(
        "{path} has {free_mib} MiB free, and building a lab needs {needed_mib} MiB; free some or set \
         XDG_CACHE_HOME to a larger disk",
        path = path.display()
    )]
    NoSpace {
        /// The cache folder.
        path: PathBuf,
        /// Free space, in MiB.
        free_mib: u64,
        /// Required space, in MiB.
        needed_mib: u64,
    },
    /// Too little free space on the disk for a snapshot, whatever is removed.
    #[error(
        "{path} has {free_mib} MiB free, and a new snapshot needs {needed_mib} MiB; free some, set XDG_CACHE_HOME to a larger \
         disk, or give --boot, which saves none",
        path = path.display()
    )]
    NoSpaceToSave {
        /// The cache folder.
        path: PathBuf,
        /// Free space, in MiB.
        free_mib: u64,
        /// Required space, in MiB.
        needed_mib: u64,
    },
    /// The cache cannot be removed below a laboratory that runs.
    #[error("A lab is running and needs its files; nothing was removed. End it, or wait for its end")]
    Running,
    /// A program that was started to build or boot failed.
    #[error("{program} failed ({status}){}", indented(.output))]
    ProgramFailed {
        /// The program.
        program: String,
        /// Its exit status as text.
        status: String,
        /// The last lines of its output.
        output: String,
    },
    /// A file made from Debian's packages is not as expected.
    #[error("{path}: {problem}; remove the labs with `exitless lab clean` and build it again", path = path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The problem with it.
        problem: String,
    },
    /// The kernel image cannot be booted this way.
    #[error("Kernel {path}: {problem}", path = path.display())]
    Kernel {
        /// The kernel's path.
        path: PathBuf,
        /// The problem with it.
        problem: String,
    },
    /// The boot image does not fit into the laboratory's memory.
    #[error(
        "{lab} with {memory_mib} MiB has room for {room_mib} MiB of its boot image, which has {needed_mib} MiB; give --memory \
         {least_mib} or more"
    )]
    TooLarge {
        /// The laboratory.
        lab: &'static str,
        /// Its memory, in MiB.
        memory_mib: u64,
        /// Size of the boot image in MiB.
        needed_mib: u64,
        /// Space for it, in MiB.
        room_mib: u64,
        /// The memory that has enough space, in MiB.
        least_mib: u64,
    },
    /// No emulator passed its self-test.
    #[error("No {emulator} here boots Linux and enters a guest{}", indented(.tried))]
    NoEmulator {
        /// The emulator's name: Bochs or QEMU.
        emulator: &'static str,
        /// One line for each program that was tried, with the reason.
        tried: String,
    },
    /// The emulated kernel panicked.
    #[error("The kernel inside {lab} panicked after {after:.1?}; the last lines of its console:{}", indented(.console))]
    Panic {
        /// The laboratory.
        lab: String,
        /// Wall time since power-on.
        after: Duration,
        /// The last lines of the console.
        console: String,
    },
    /// User space inside, or a later part of the run except for the command, was not reached within the time limit.
    #[error(
        "{lab} did not reach {awaited} within {limit:.0?}; the last lines of its console:{}",
        indented(.console)
    )]
    BootHung {
        /// The laboratory.
        lab: String,
        /// What was waited for: "its user space".
        awaited: &'static str,
        /// The limit on the emulator's time ([`EmulatorTime`](crate::EmulatorTime)).
        limit: Duration,
        /// The last lines of the console.
        console: String,
    },
    /// The command inside ran longer than allowed.
    #[error("The command in {lab} was still running after {limit:.0?} and was stopped; give --timeout more")]
    TimedOut {
        /// The laboratory.
        lab: String,
        /// The time limit, in wall time.
        limit: Duration,
    },
    /// The emulator ended before the command did.
    #[error(
        "The emulator of {lab} ended ({status}) before the command did; the last lines of the console:{}",
        indented(.console)
    )]
    EmulatorEnded {
        /// The laboratory.
        lab: String,
        /// Its exit status as text.
        status: String,
        /// The last lines of the console and of the emulator's own output.
        console: String,
    },
    /// A saved machine did not resume.
    #[error(
        "{lab} did not continue from its snapshot, which was removed unless another run uses it; run the command again to \
         boot and make a new one ({path})",
        path = path.display()
    )]
    Restore {
        /// The laboratory.
        lab: &'static str,
        /// The snapshot's folder.
        path: PathBuf,
        /// The cause.
        source: Box<Error>,
    },
    /// The agent inside failed to carry out its order.
    #[error("Inside {lab}: {message}")]
    Agent {
        /// The laboratory.
        lab: String,
        /// The agent's message.
        message: String,
    },
    /// The user pressed Ctrl-C, or a signal asked to stop.
    #[error("Interrupted; what was running was stopped, and its files were removed")]
    Interrupted,
    /// This program cannot run inside because it is dynamically linked.
    #[error(
        "{path} is dynamically linked and cannot run in the lab; build it with `cargo build --release`, whose \
         configuration links statically",
        path = path.display()
    )]
    NotStatic {
        /// This program.
        path: PathBuf,
    },
}

impl Error {
    /// Returns a closure for `map_err` that adds the action and the path.
    pub(crate) fn file(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { action, path, source }
    }
}

fn indented(text: &str) -> String {
    text.lines().fold(String::new(), |mut out, line| {
        out.push_str("\n  ");
        out.push_str(line);
        out
    })
}
