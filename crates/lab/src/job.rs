//! What the host asks of the agent inside: how to set the machine up, which travels in the initial RAM disk and is part
//! of a snapshot; and the order, which comes over the channel when the machine is up, and differs from run to run.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Where the set-up lies in the initial RAM disk.
pub(crate) const SETUP_PATH: &str = "/exitless/setup.json";
/// Folder of the kernel modules, uncompressed.
pub(crate) const MODULE_FOLDER: &str = "/exitless/modules";
/// Folder of the kernel and the initial RAM disk of a guest that drives devices, in the host's initial RAM disk.
pub(crate) const DEVICE_GUEST: &str = "/exitless/device-guest";
/// Where a host with devices has that folder.
pub(crate) const DEVICE_GUEST_OFFERED: &str = "/run/exitless/device-guest";
/// The program that becomes the agent of guests, where it is another than this one.
pub(crate) const GUEST_AGENT: &str = "/exitless-agent";
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

/// A file to be put into place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PlacedFile {
    /// Destination; relative to [`HOME`].
    pub(crate) path: String,
    pub(crate) mode: u32,
    pub(crate) bytes: u64,
}

/// What the machine is set up with, before it is asked to do anything.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Setup {
    pub(crate) root: Root,
    /// Whether the second disk is the guest image.
    pub(crate) guest_image: bool,
    /// Whether [`MODULE_FOLDER`] is the kernel's whole folder of modules, with depmod's lists, and [`DEVICE_GUEST`] is there.
    pub(crate) devices: bool,
    /// Whether this is the privileged domain of a Xen host.
    pub(crate) xen: bool,
    /// Kernel modules in the order of loading, by file name in [`MODULE_FOLDER`].
    pub(crate) modules: Vec<String>,
    /// Parameters of modules, by the name that the kernel uses (`kvm_intel`).
    pub(crate) module_parameters: BTreeMap<String, String>,
}

/// What to do in a machine that is set up. The files to be put into place follow it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Order {
    /// Program and arguments; empty for an interactive shell.
    pub(crate) command: Vec<String>,
    pub(crate) put: Vec<PlacedFile>,
    /// Paths of files and folders to bring out; relative to [`HOME`].
    pub(crate) get: Vec<String>,
    /// Set for an interactive shell.
    pub(crate) terminal: Option<TerminalSize>,
    /// The TERM of the user's terminal.
    pub(crate) terminal_kind: String,
    /// What the clock is set to: nanoseconds since 1970.
    pub(crate) clock: u64,
    /// What the kernel's random numbers begin with: a snapshot gives every run the same.
    pub(crate) seed: u64,
    /// Cycles that a VM exit with the entry after it costs beside the instructions that handle it.
    pub(crate) switch_cycles: u32,
}
