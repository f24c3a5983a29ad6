//! What to do in an emulated host, and what came of it.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::device::Device;
use crate::frames::{Ending, Moment};

/// A file to be put into the emulated host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Put {
    /// The file on this machine.
    pub from: PathBuf,
    /// Its path inside; relative paths begin at root's home, where commands start.
    pub to: String,
}

/// What to do in an emulated host.
#[derive(Debug, Clone)]
pub struct Request {
    /// Program and arguments.
    pub command: Vec<String>,
    /// Files to put in before the command.
    pub put: Vec<Put>,
    /// Files and folders to bring out after it.
    pub get: Vec<String>,
    /// Folder on this machine for what is brought out.
    pub output: PathBuf,
    /// Without Debian's disk: busybox and this program only, which boots faster.
    pub bare: bool,
    /// With the guest image as a second disk, which [`crate::GuestImage::find`] then finds inside. It must have been built.
    pub guest_image: bool,
    /// Devices that the host can assign to guests. With them the host has an IOMMU and Debian's generic kernel, and boots
    /// each time: no snapshot can hold them. [`crate::DeviceImage::find_or_build`] must have made what it boots.
    pub devices: Vec<Device>,
    /// CPUs of the emulated host.
    pub cpus: u16,
    /// Memory of the emulated host in MiB; chosen by the root file system when not given.
    pub memory_mib: Option<u64>,
    /// Limit for the command, in wall time; none when not given.
    pub timeout: Option<Duration>,
    /// Limit for reaching user space, in wall time; [`Lab::boot_limit`](crate::Lab::boot_limit) when not given.
    pub boot_timeout: Option<Duration>,
    /// Further arguments of the emulated host's kernel; `module.parameter=value` also reaches the modules.
    pub kernel_arguments: Vec<String>,
    /// Further arguments of Xen; only for laboratories that have it.
    pub hypervisor_arguments: Vec<String>,
    /// Cycles that an exit and the entry after it cost beside the instructions that handle it; an emulator's own switch
    /// costs nothing.
    pub switch_cycles: u32,
    /// Makes the run the same as every other one with this seed: the clock inside begins at a fixed time, and the kernel's
    /// random numbers by the seed.
    pub seed: Option<u64>,
    /// Boots instead of going on from a snapshot.
    pub boot: bool,
}

impl Request {
    /// A request with the usual limits.
    pub fn new(command: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            command: command.into_iter().map(Into::into).collect(),
            put: Vec::new(),
            get: Vec::new(),
            output: PathBuf::from("."),
            bare: false,
            guest_image: false,
            devices: Vec::new(),
            cpus: 2,
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

/// What happens inside, as it happens.
#[derive(Debug)]
pub enum Happening<'a> {
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
    /// Making what the emulator reads: the boot image, or where there was none yet the whole snapshot.
    pub prepare: f64,
    /// From power-on, or from the restore of a snapshot, to the agent.
    pub boot: f64,
    /// Loading KVM and what the disk needs; 0 after a restore.
    pub modules: f64,
    /// Mounting the root and putting files into place.
    pub root: f64,
    /// The command.
    pub command: f64,
    /// Bringing files out.
    pub files: f64,
    /// Everything, with the emulator's end.
    pub total: f64,
    /// Seconds that passed inside from the kernel's start to the command's end, by the emulated clock.
    pub inside: f64,
}

/// What a run left.
#[derive(Debug, Clone, PartialEq)]
pub struct Finished {
    /// How the command ended.
    pub ending: Ending,
    /// How long each part took.
    pub timings: Timings,
    /// What went wrong without ending the run: files that could not be brought out.
    pub warnings: Vec<String>,
    /// Files and folders brought out, on this machine.
    pub files: Vec<PathBuf>,
}
