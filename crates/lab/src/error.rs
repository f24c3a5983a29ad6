//! Errors of laboratories.

use std::error::Error as _;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// A failure of the laboratory. The exit status of a command inside is none.
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
        /// The action that failed, as the beginning of a sentence: "Could not read".
        action: &'static str,
        /// The object of the action.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Another user could have put programs into the cache.
    #[error(
        "The cache of labs is not used, because others could have put programs there; set XDG_CACHE_HOME to a \
         directory of your own"
    )]
    CachePlace(#[source] files::Error),
    /// A file to copy in does not exist.
    #[error("{path} does not exist and cannot be copied into the lab; nothing was started", path = path.display())]
    PutMissing {
        /// The path as given.
        path: PathBuf,
    },
    /// A folder, pipe or device was given as a file to copy in.
    #[error(
        "{path} is not a regular file and cannot be copied into the lab; pack folders with tar; nothing was started",
        path = path.display()
    )]
    PutNoFile {
        /// The path as given.
        path: PathBuf,
    },
    /// The command and the paths of the files to copy do not fit into one message to the agent.
    #[error(
        "The command and the names of the files for --put and --get take {bytes} bytes as JSON, and a lab accepts {most}; \
         write a long list to a file and copy that in with --put; nothing was started"
    )]
    OrderTooLarge {
        /// The size of the message.
        bytes: usize,
        /// The largest possible size.
        most: usize,
    },
    /// The folder for files that are copied out cannot be written.
    #[error("Could not write to {path}, the folder for what is copied out; nothing was started", path = path.display())]
    NoOutput {
        /// The path as given.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The files that were copied out could not be unpacked.
    #[error("The command in {lab} ended with {status}, but its files could not be unpacked; {}", kept_in(.kept))]
    NotUnpacked {
        /// The laboratory.
        lab: &'static str,
        /// The command's exit status.
        status: i32,
        /// The tar archive of the files; `None` if it could not be kept either.
        kept: Option<PathBuf>,
        /// The cause.
        source: Box<Error>,
    },
    /// This machine lacks a program.
    #[error("{program} is needed to {purpose}, and is not on PATH; {next}")]
    MissingProgram {
        /// The program's name.
        program: &'static str,
        /// The purpose of the program.
        purpose: &'static str,
        /// The next step for the user.
        next: &'static str,
    },
    /// This machine lacks the keys of Debian's archive.
    #[error(
        "{path} is needed to check the signatures of Debian's packages, and is missing; install it with: apt-get install \
         debian-archive-keyring"
    )]
    MissingKeyring {
        /// The path of the keys.
        path: &'static str,
    },
    /// This machine lacks tools for compiling an emulator.
    #[error(
        "{emulator} must be compiled on this machine, and some tools for it are missing; install them with: apt-get install \
         {packages}"
    )]
    MissingPrograms {
        /// The emulator's source package.
        emulator: &'static str,
        /// The missing Debian packages, separated by spaces.
        packages: String,
    },
    /// Arguments for Xen were given, but the laboratory has no Xen.
    #[error(
        "{lab} has no Xen that could take arguments; give those of its kernel by --kernel-argument; \
         labs with Xen are xen and xen-apicv"
    )]
    NotXen {
        /// The laboratory.
        lab: &'static str,
    },
    /// The laboratory's machine cannot have devices for assignment.
    #[error("{lab} cannot have devices: its machine has no IOMMU; use amd-avic, amd-svm or xen")]
    NoDevices {
        /// The laboratory.
        lab: &'static str,
    },
    /// The laboratory's emulator cannot run at this speed.
    #[error("{lab} cannot have CPUs of {given} million instructions a second; possible: {possible}")]
    NoSpeed {
        /// The laboratory.
        lab: &'static str,
        /// The requested speed.
        given: u32,
        /// The possible speeds.
        possible: String,
    },
    /// An option needs a clock that counts instructions, which Debian's QEMU lacks.
    #[error(
        "{option} needs the QEMU that is compiled for labs, but Debian's is in its place; install what `scripts/setup labs` names, then run `exitless lab build {lab}`"
    )]
    ClockInDebiansQemu {
        /// The laboratory.
        lab: &'static str,
        /// The option that needs the clock.
        option: &'static str,
    },
    /// Devices need the QEMU that is compiled for laboratories: Debian's does not remap their interrupts
    /// correctly.
    #[error(
        "Devices need the QEMU that is compiled for labs, but Debian's is in its place; install what `scripts/setup labs` names, then run `exitless lab build {lab}`"
    )]
    DevicesInDebiansQemu {
        /// The laboratory.
        lab: &'static str,
    },
    /// The image of a host with devices has not been built.
    #[error(
        "The kernel of hosts with devices is missing; `exitless lab run amd-avic --device nvme` builds it"
    )]
    NoDeviceImage,
    /// The laboratory cannot have the guest image.
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
    /// A kernel was requested that this laboratory cannot boot.
    #[error("{lab} boots only the kernel of its own image{}; leave out --kernel, or use intel-apicv, amd-svm or amd-avic", .why)]
    OwnKernelOnly {
        /// The laboratory.
        lab: &'static str,
        /// The obstacle if it is not the laboratory itself: " when it has devices".
        why: &'static str,
    },
    /// Debian's archive no longer contains this kernel.
    #[error(
        "Debian's suites {suites} have no package of Linux {name} any more; take another: `exitless lab kernels` lists \
         them. EXITLESS_KERNEL_MIRROR may name a mirror that still has it"
    )]
    KernelIsGone {
        /// The kernel's name.
        name: &'static str,
        /// The suites, separated by commas.
        suites: String,
    },
    /// Debian's mirror does not contain suites of a kernel.
    #[error(
        "The Debian mirror does not have {suites}; set EXITLESS_KERNEL_MIRROR to a mirror that has, e.g. \
         http://archive.debian.org/debian, or take another kernel: `exitless lab kernels` lists them"
    )]
    SuitesAreGone {
        /// The suites, separated by commas.
        suites: String,
    },
    /// The image of a host with this kernel has not been prepared.
    #[error("Linux {name} is not there; `exitless lab run amd-svm --kernel {name} -- true` fetches it")]
    NoKernelImage {
        /// The kernel's name.
        name: &'static str,
    },
    /// The disk has too little free space.
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
    /// The disk has too little free space for a snapshot, even without all other snapshots.
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
    /// The cache cannot be removed while a laboratory uses it.
    #[error(
        "A lab or a study is running and needs files of the cache; nothing was removed. End it, or wait for its end"
    )]
    Running,
    /// A child process for building or booting failed.
    #[error("{program} failed ({status}){}", indented(.output))]
    ProgramFailed {
        /// The program.
        program: String,
        /// Its exit status as text.
        status: String,
        /// The last lines of its output.
        output: String,
    },
    /// A file that was downloaded, or made from Debian's packages, is not as expected.
    #[error("{path}: {problem}; remove the labs with `exitless lab clean` and build it again", path = path.display())]
    Damaged {
        /// The path of the file.
        path: PathBuf,
        /// The problem with it.
        problem: String,
    },
    /// The kernel image cannot be booted directly.
    #[error("Kernel {path}: {problem}", path = path.display())]
    Kernel {
        /// The kernel's path.
        path: PathBuf,
        /// The problem with it.
        problem: String,
    },
    /// The boot image does not fit into the memory of the laboratory.
    #[error(
        "{lab} with {memory_mib} MiB has room for {room_mib} MiB of its boot image, which has {needed_mib} MiB; give --memory \
         {least_mib} or more"
    )]
    TooLarge {
        /// The laboratory.
        lab: &'static str,
        /// Its memory, in MiB.
        memory_mib: u64,
        /// The size of the boot image, in MiB.
        needed_mib: u64,
        /// The space for it, in MiB.
        room_mib: u64,
        /// The smallest memory with enough space, in MiB.
        least_mib: u64,
    },
    /// No program of the emulator passed the self-test.
    #[error("No {emulator} here boots Linux and enters a guest{}", indented(.tried))]
    NoEmulator {
        /// The name of the emulator: Bochs or QEMU.
        emulator: &'static str,
        /// The programs that were tried, each on a line with the reason.
        tried: String,
    },
    /// The kernel of the emulated host panicked.
    #[error("The kernel inside {lab} panicked after {after:.1?}; the last lines of its console:{}", indented(.console))]
    Panic {
        /// The laboratory.
        lab: String,
        /// The elapsed time since power-on.
        after: Duration,
        /// The last lines of the console.
        console: String,
    },
    /// The emulated host made no progress within the time limit, before or after its command.
    #[error(
        "{lab} did not reach {awaited} within {limit:.0?}; the last lines of its console:{}",
        indented(.console)
    )]
    BootHung {
        /// The laboratory.
        lab: String,
        /// The event that did not come: "its user space".
        awaited: &'static str,
        /// The limit on the emulator's time ([`EmulatorTime`](crate::EmulatorTime)).
        limit: Duration,
        /// The last lines of the console.
        console: String,
    },
    /// The command ran longer than allowed.
    #[error("The command in {lab} was still running after {limit:.0?} and was stopped; give --timeout more")]
    TimedOut {
        /// The laboratory.
        lab: String,
        /// The time limit, by the wall clock.
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
        /// The last lines of the console and of the emulator's messages.
        console: String,
    },
    /// A machine could not be restored from its snapshot.
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
    /// The agent could not carry out its order.
    #[error("Inside {lab}: {message}")]
    Agent {
        /// The laboratory.
        lab: String,
        /// The agent's message.
        message: String,
    },
    /// The user pressed Ctrl-C, or the process received a termination signal.
    #[error("Interrupted; what was running was stopped, and its files were removed")]
    Interrupted,
    /// This program is dynamically linked, so it cannot run inside.
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
    /// Tests whether another command line would avoid the error.
    #[must_use]
    pub const fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::UnknownLab { .. }
                | Self::PutMissing { .. }
                | Self::PutNoFile { .. }
                | Self::OrderTooLarge { .. }
                | Self::NoOutput { .. }
                | Self::NotXen { .. }
                | Self::NoDevices { .. }
                | Self::NoSpeed { .. }
                | Self::GuestImage { .. }
                | Self::OwnKernelOnly { .. }
                | Self::TooLarge { .. }
        )
    }

    /// The message, and those of all causes, each on a line.
    pub(crate) fn with_causes(&self) -> String {
        let causes = std::iter::successors(self.source(), |&cause| cause.source());
        causes.fold(self.to_string(), |text, cause| format!("{text}\nbecause: {cause}"))
    }

    /// Returns a closure for `map_err` that adds the action and the path.
    pub(crate) fn file(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { action, path, source }
    }
}

fn kept_in(kept: &Option<PathBuf>) -> String {
    kept.as_ref().map_or_else(
        || "they are lost".to_owned(),
        |path| format!("all are in {}, which `tar --extract` unpacks", path.display()),
    )
}

fn indented(text: &str) -> String {
    text.lines().fold(String::new(), |mut out, line| {
        out.push_str("\n  ");
        out.push_str(line);
        out
    })
}
