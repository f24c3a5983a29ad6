//! The request to an emulated host, and its result.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::debian_kernel::DebianKernel;
use crate::device::Device;
use crate::emulator_time::EmulatorTime;
use crate::frames::{Ending, Moment};

/// A file to copy into the emulated host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Put {
    /// The file on this machine.
    pub from: PathBuf,
    /// The path inside. Relative paths are below root's home, the working directory of commands.
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
    /// The folder on this machine for files that are copied out.
    pub output: PathBuf,
    /// Does without the Debian disk: busybox and this program are all there is, and the host boots faster.
    pub bare: bool,
    /// Attaches the guest image as a second disk, where this program finds it. The image must have been
    /// built.
    pub guest_image: bool,
    /// Devices that the host can assign to guests, behind an IOMMU. With devices, a KVM host boots Debian's
    /// generic kernel, and the [`crate::DeviceImage`] must have been built.
    pub devices: Vec<Device>,
    /// The kernel that a KVM host boots instead of its image's. Its [`crate::KernelImage`] must have been
    /// prepared.
    pub kernel: Option<&'static DebianKernel>,
    /// The number of the host's CPUs.
    pub cpus: u16,
    /// The speed of a CPU, in millions of instructions per second of the emulated clock ([`crate::Speed`]);
    /// by default that of the laboratory.
    pub speed: Option<u32>,
    /// The memory of the host in MiB; the default depends on `bare`.
    pub memory_mib: Option<u64>,
    /// The time limit of the command, by the wall clock; none by default.
    pub timeout: Option<Duration>,
    /// The limit on the emulator's time ([`EmulatorTime`]) for reaching user space, and for each later part
    /// of the run except the command; by default [`Lab::boot_limit`](crate::Lab::boot_limit).
    pub boot_timeout: Option<Duration>,
    /// Additional kernel arguments; `module.parameter=value` also applies to modules that the agent loads.
    pub kernel_arguments: Vec<String>,
    /// Additional arguments of Xen; only for laboratories with Xen.
    pub hypervisor_arguments: Vec<String>,
    /// The cost of a VM exit and the next entry, in instructions, in addition to the instructions that handle
    /// the exit. By itself an emulator's world switch costs nothing.
    pub switch_cycles: u32,
    /// Makes the run identical to all other runs with this seed: the clock inside starts at a fixed time, and
    /// the seed determines the kernel's random numbers.
    pub seed: Option<u64>,
    /// Boots instead of restoring a snapshot.
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

/// An event of a run, reported as it happens.
#[derive(Debug)]
pub enum Happening<'a> {
    /// The emulator has been started.
    PoweredOn(EmulatorTime),
    /// The command wrote to its standard output.
    Stdout(&'a [u8]),
    /// The command wrote to its standard error.
    Stderr(&'a [u8]),
    /// The agent reached a point of the run.
    Reached(&'a Moment),
}

/// The wall-clock times of the parts of a run, in seconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Timings {
    /// Making the emulator's files: the boot image, or the snapshot if there was none.
    pub prepare: f64,
    /// From power-on, or from restoring a snapshot, until the agent runs.
    pub boot: f64,
    /// Loading the modules of KVM and the disk; 0 after a restore.
    pub modules: f64,
    /// Mounting the root file system and writing files.
    pub root: f64,
    /// Running the command.
    pub command: f64,
    /// Copying files out.
    pub files: f64,
    /// The whole run, including the emulator's end.
    pub total: f64,
    /// From the start of the emulated kernel to the command's end, by the emulated clock.
    pub inside: f64,
}

/// The result of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Finished {
    /// The end of the command.
    pub ending: Ending,
    /// The duration of each part.
    pub timings: Timings,
    /// Problems that did not end the run, such as files that could not be copied out.
    pub warnings: Vec<String>,
    /// The paths on this machine of files and folders that were copied out.
    pub files: Vec<PathBuf>,
}
