//! Instructions for the agent, in two parts: the setup of the machine, which is in the initial RAM disk and
//! part of a snapshot; and the order, which is sent over the channel once the machine is up, and differs
//! between runs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The path of the setup in the initial RAM disk.
pub(crate) const SETUP_PATH: &str = "/exitless/setup.json";
/// The folder of the uncompressed kernel modules.
pub(crate) const MODULE_FOLDER: &str = "/exitless/modules";
/// The folder in the host's initial RAM disk with the kernel and initial RAM disk of a guest that drives
/// devices.
pub(crate) const DEVICE_GUEST: &str = "/exitless/device-guest";
/// The path at which a host with devices offers that folder.
pub(crate) const DEVICE_GUEST_OFFERED: &str = "/run/exitless/device-guest";
/// The program that becomes the agent of guests, if it is not `exitless` itself.
pub(crate) const GUEST_AGENT: &str = "/exitless-agent";
/// The statically linked busybox of the initial RAM disk.
pub(crate) const BUSYBOX: &str = "/bin/busybox";
/// The name of QEMU's virtio port for the agent's frames.
pub(crate) const PORT_NAME: &str = "exitless";
/// The name of the virtio port at which a machine stops to be saved.
pub(crate) const STOP_PORT_NAME: &str = "exitless-stop";
/// The working directory of commands, and the base of relative paths.
pub(crate) const HOME: &str = "/root";
/// The argument that makes `exitless` the agent.
pub(crate) const AGENT_ARGUMENT: &str = "lab-agent";

/// The root file system of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Root {
    /// The initial RAM disk with busybox and `exitless`.
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

/// A file to write in the emulated host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PlacedFile {
    /// The destination; a relative path is below [`HOME`].
    pub(crate) path: String,
    pub(crate) mode: u32,
    pub(crate) bytes: u64,
}

/// The setup of a machine, fixed before an order is given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Setup {
    pub(crate) root: Root,
    /// A second disk has the guest image.
    pub(crate) guest_image: bool,
    /// [`MODULE_FOLDER`] is the kernel's complete folder of modules with depmod's lists, because the disk
    /// only has modules of another kernel.
    pub(crate) own_modules: bool,
    /// The folder [`DEVICE_GUEST`] exists.
    pub(crate) devices: bool,
    /// This is the control domain of a Xen host.
    pub(crate) xen: bool,
    /// The modules that the channel to the host needs, as file names in [`MODULE_FOLDER`], in loading order.
    pub(crate) channel_modules: Vec<String>,
    /// The modules to load after those.
    pub(crate) modules: Vec<String>,
    /// Parameters of modules, by the kernel's name of the module (`kvm_intel`).
    pub(crate) module_parameters: BTreeMap<String, String>,
}

/// The order for a machine that is set up. The contents of the files to write are sent after it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Order {
    /// The program and its arguments; empty for an interactive shell.
    pub(crate) command: Vec<String>,
    pub(crate) put: Vec<PlacedFile>,
    /// The paths of files and folders to send back; relative paths are below [`HOME`].
    pub(crate) get: Vec<String>,
    /// The size of the user's terminal; `None` without an interactive shell.
    pub(crate) terminal: Option<TerminalSize>,
    /// The value of TERM of the user's terminal.
    pub(crate) terminal_kind: String,
    /// The time to which the clock is set, in nanoseconds since 1970.
    pub(crate) clock: u64,
    /// The seed for the kernel's random number generator, which would otherwise be in the same state in all
    /// runs from a snapshot.
    pub(crate) seed: u64,
    /// The additional cost of a VM exit and the next entry, in instructions; the instructions that handle the
    /// exit are not included.
    pub(crate) switch_cycles: u32,
}
