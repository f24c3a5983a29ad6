//! What the host asks of the agent inside; it travels as JSON in the initial RAM disk.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Where the job lies in the initial RAM disk.
pub(crate) const JOB_PATH: &str = "/exitless/job.json";
/// Folder of the files to be put into place, named by their index.
pub(crate) const PUT_FOLDER: &str = "/exitless/put";
/// Folder of the kernel modules, uncompressed.
pub(crate) const MODULE_FOLDER: &str = "/exitless/modules";
/// The statically linked busybox of the initial RAM disk.
pub(crate) const BUSYBOX: &str = "/bin/busybox";
/// Name of the virtio port that QEMU offers for the agent's frames.
pub(crate) const PORT_NAME: &str = "exitless";
/// Where a command starts, and where relative paths of files are taken from.
pub(crate) const HOME: &str = "/root";
/// The argument by which this program knows that it is the agent.
pub(crate) const AGENT_ARGUMENT: &str = "lab-agent";

/// The root file system that a command sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Root {
    /// The initial RAM disk: busybox and this program.
    Bare,
    /// Debian, on the laboratory's disk.
    Disk,
}

/// A terminal's size, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TerminalSize {
    pub(crate) rows: u16,
    pub(crate) columns: u16,
}

/// A file that the host put into the initial RAM disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PlacedFile {
    /// Destination; relative to [`HOME`].
    pub(crate) path: String,
    pub(crate) mode: u32,
}

/// The whole order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) root: Root,
    /// Whether the second disk is the guest image.
    pub(crate) guest_image: bool,
    /// Whether this is the privileged domain of a Xen host.
    pub(crate) xen: bool,
    /// Kernel modules in the order of loading, by file name in [`MODULE_FOLDER`].
    pub(crate) modules: Vec<String>,
    /// Parameters of modules, by the name that the kernel uses (`kvm_intel`).
    pub(crate) module_parameters: BTreeMap<String, String>,
    /// Program and arguments; empty for an interactive shell.
    pub(crate) command: Vec<String>,
    pub(crate) put: Vec<PlacedFile>,
    /// Paths of files and folders to bring out; relative to [`HOME`].
    pub(crate) get: Vec<String>,
    /// Set for an interactive shell.
    pub(crate) terminal: Option<TerminalSize>,
    /// The TERM of the user's terminal.
    pub(crate) terminal_kind: String,
}
