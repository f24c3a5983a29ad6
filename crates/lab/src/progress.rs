//! The progress of long work.

use std::time::Duration;

/// A step of building a laboratory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Waiting for another process to finish building.
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
    /// Booting the laboratory and saving it for later runs.
    Snapshot,
}

/// A progress report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// The current step.
    pub step: Step,
    /// The amount of finished work, in the step's unit.
    pub done: u64,
    /// The total amount of work, in the step's unit; 0 while unknown.
    pub total: u64,
}

/// Receives progress reports.
pub type OnProgress<'a> = &'a mut (dyn FnMut(Progress) + Send);

/// The effort of a build, shown before it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effort {
    /// The size of the download, in MiB.
    pub download_mib: u64,
    /// The disk space, in MiB.
    pub disk_mib: u64,
    /// The typical time on two cores, without the download.
    pub time: Duration,
}

/// The effort of building the shared image.
pub const BUILD_EFFORT: Effort = Effort { download_mib: 180, disk_mib: 1500, time: Duration::from_secs(30) };
