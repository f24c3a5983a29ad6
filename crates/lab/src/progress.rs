//! How far a long piece of work has come.

use std::time::Duration;

/// A step of building a laboratory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
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
    /// Booting an emulator to see whether it can do what it must.
    SelfTest,
    /// Booting the laboratory and saving it for runs to begin from.
    Snapshot,
}

/// A report of progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// The step under way.
    pub step: Step,
    /// How much of it is done, in the step's unit.
    pub done: u64,
    /// How much there is; 0 while unknown.
    pub total: u64,
}

/// Receives reports of progress.
pub type OnProgress<'a> = &'a mut (dyn FnMut(Progress) + Send);

/// What building takes, to be said before it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effort {
    /// To be downloaded, in MiB.
    pub download_mib: u64,
    /// To be stored, in MiB.
    pub disk_mib: u64,
    /// Usual time on two cores, without the download.
    pub time: Duration,
}

/// What building an image takes.
pub const BUILD_EFFORT: Effort = Effort { download_mib: 180, disk_mib: 1500, time: Duration::from_secs(30) };
