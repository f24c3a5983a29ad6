//! The progress of long work.

use std::time::Duration;

/// A step of building a laboratory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Waiting until another process has built.
    Waiting,
    /// Reading the package lists.
    Lists,
    /// Downloading packages; counted in bytes.
    Download,
    /// Unpacking packages; counted in packages.
    Unpack,
    /// Making the kernel, the modules and the disk; counted in parts.
    Assemble,
    /// Compiling an emulator; counted in files.
    Compile,
    /// Booting an emulator to check that it works.
    SelfTest,
    /// Booting the laboratory and saving it as the start of runs.
    Snapshot,
}

/// A report of progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// The current step.
    pub step: Step,
    /// The finished part, in the step's unit.
    pub done: u64,
    /// The complete work, in the step's unit; 0 while unknown.
    pub total: u64,
}

/// Receives reports of progress.
pub type OnProgress<'a> = &'a mut (dyn FnMut(Progress) + Send);

/// The effort of a build, which is shown before it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effort {
    /// Download size, in MiB.
    pub download_mib: u64,
    /// Disk space, in MiB.
    pub disk_mib: u64,
    /// Typical time on two cores, without the download.
    pub time: Duration,
}

/// The effort of building an image.
pub const BUILD_EFFORT: Effort = Effort { download_mib: 180, disk_mib: 1500, time: Duration::from_secs(30) };
