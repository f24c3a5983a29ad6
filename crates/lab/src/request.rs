//! The request to an emulated host, and its result.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::debian_kernel::DebianKernel;
use crate::device::Device;
use crate::emulator_time::EmulatorTime;
use crate::frames::{Ending, Moment};

/// A file to be put into the emulated host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Put {
    /// The file on this machine.
    pub from: PathBuf,
    /// Its path inside; relative paths start at root's home, the working directory of commands.
    pub to: String,
}

/// A request to an emulated host.
#[derive(Debug, Clone)]
pub struct Request {
    /// Program and arguments.
    pub command: Vec<String>,
    /// Files to copy in before the command starts.
    pub put: Vec<Put>,
    /// Files and folders to copy out after it ends.
    pub get: Vec<String>,
    /// Folder on this machine for the files that are copied out.
    pub output: PathBuf,
    /// No Debian disk: only busybox and this program, which boots faster.
    pub bare: bool,
    /// The guest image is a second disk, which this program finds inside. It must have been built.
    pub guest_image: bool,
    /// Devices that the host can assign to guests. With devices the host has an IOMMU. One of KVM has Debian's generic kernel
    /// then, and the [`crate::DeviceImage`] must have been built.
    pub devices: Vec<Device>,
    /// The kernel that a host of KVM boots in place of its image's. Its [`crate::KernelImage`] must have been built.
    pub kernel: Option<&'static DebianKernel>,
    /// CPUs of the emulated host.
    pub cpus: u16,
    /// Millions of instructions that a CPU executes in a second of the emulated clock ([`crate::Speed`]); by default the
    /// laboratory's.
    pub speed: Option<u32>,
    /// Memory of the emulated host in MiB; by default it depends on the root file system.
    pub memory_mib: Option<u64>,
    /// Time limit for the command, in wall time; by default there is none.
    pub timeout: Option<Duration>,
    /// Limit on the time of the emulator ([`EmulatorTime`]) for reaching user space, and for each later part of the run but
    /// the command; by default [`Lab::boot_limit`](crate::Lab::boot_limit).
    pub boot_timeout: Option<Duration>,
    /// Additional arguments of the emulated host's kernel; `module.parameter=value` also applies to modules.
    pub kernel_arguments: Vec<String>,
    /// Additional arguments of Xen; only for laboratories with Xen.
    pub hypervisor_arguments: Vec<String>,
    /// The cost of a VM exit and the following entry, in instructions, in addition to those that handle it; an emulator's own
    /// switch costs nothing.
    pub switch_cycles: u32,
    /// Makes the run identical to every other run with this seed: the clock inside starts at a fixed time,
    /// and the seed determines the kernel's random numbers.
    pub seed: Option<u64>,
    /// Boots instead of resuming a snapshot.
    pub boot: bool,
}

impl Request {
    /// A request with the default limits.
    pub fn new(command: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            command: command.into_iter().map(Into::into).collect(),
            put: Vec::new(),
            get: Vec::new(),
            output: PathBuf::from("."),
            bare: false,
            guest_image: false,
            devices: Vec::new(),
            kernel: None,
            cpus: 2,
            speed: None,
            memory_mib: None,
            timeout: None,
            boot_timeout: None,
            kernel_arguments: Vec::new(),
            hypervisor_arguments: Vec::new(),
            switch_cycles: 0,
            seed: None,
            boot: false,
        }
    }
}

/// An event of a run, reported when it happens.
#[derive(Debug)]
pub enum Happening<'a> {
    /// The emulator of the run was started.
    PoweredOn(EmulatorTime),
    /// The command wrote to its standard output.
    Stdout(&'a [u8]),
    /// The command wrote to its standard error.
    Stderr(&'a [u8]),
    /// The agent reached a point of the run.
    Reached(&'a Moment),
}

/// Wall time of the parts of a run, in seconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Timings {
    /// Making the emulator's files: the boot image, or the complete snapshot if there was none.
    pub prepare: f64,
    /// From power-on, or from the restore of a snapshot, until the agent runs.
    pub boot: f64,
    /// Loading KVM and the disk's modules; 0 after a restore.
    pub modules: f64,
    /// Mounting the root and writing files.
    pub root: f64,
    /// The command.
    pub command: f64,
    /// Copying files out.
    pub files: f64,
    /// The complete run, including the emulator's end.
    pub total: f64,
    /// Seconds from the start of the kernel inside to the command's end, by the emulated clock.
    pub inside: f64,
}

/// The result of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Finished {
    /// The command's end.
    pub ending: Ending,
    /// Duration of each part.
    pub timings: Timings,
    /// Problems that did not end the run: files that could not be copied out.
    pub warnings: Vec<String>,
    /// Files and folders that were copied out, on this machine.
    pub files: Vec<PathBuf>,
}
