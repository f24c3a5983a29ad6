//! The host's orders for the agent inside: the setup of the machine, which is in the initial RAM disk and
//! part of a snapshot; and the order, which is sent over the channel when the machine is up, and differs
//! between runs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The path of the setup in the initial RAM disk.
pub(crate) const SETUP_PATH: &str = "/exitless/setup.json";
/// Folder of the kernel modules, uncompressed.
pub(crate) const MODULE_FOLDER: &str = "/exitless/modules";
/// The folder, in the host's initial RAM disk, of the kernel and the initial RAM disk of a guest that drives
/// devices.
pub(crate) const DEVICE_GUEST: &str = "/exitless/device-guest";
/// The path of that folder in a host with devices.
pub(crate) const DEVICE_GUEST_OFFERED: &str = "/run/exitless/device-guest";
/// The program that becomes the agent of guests, if it is not this one.
pub(crate) const GUEST_AGENT: &str = "/exitless-agent";
/// The statically linked busybox of the initial RAM disk.
pub(crate) const BUSYBOX: &str = "/bin/busybox";
/// The name of QEMU's virtio port for the agent's frames.
pub(crate) const PORT_NAME: &str = "exitless";
/// The name of the port at which a machine that is to be saved stops.
pub(crate) const STOP_PORT_NAME: &str = "exitless-stop";
/// The working directory of commands, from which relative paths of files start.
pub(crate) const HOME: &str = "/root";
/// The argument that makes this program the agent.
pub(crate) const AGENT_ARGUMENT: &str = "lab-agent";

/// The root file system of a command.
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

/// A file to write in the emulated host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PlacedFile {
    /// Destination; relative to [`HOME`].
    pub(crate) path: String,
    pub(crate) mode: u32,
    pub(crate) bytes: u64,
}

/// The setup of a machine, which is fixed before it gets an order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Setup {
    pub(crate) root: Root,
    /// The second disk is the guest image.
    pub(crate) guest_image: bool,
    /// [`MODULE_FOLDER`] is the kernel's complete folder of modules, with depmod's lists: the disk has those of another
    /// kernel.
    pub(crate) own_modules: bool,
    /// [`DEVICE_GUEST`] exists.
    pub(crate) devices: bool,
    /// This is the control domain of a Xen host.
    pub(crate) xen: bool,
    /// Kernel modules that the channel to the host needs, in the order of loading, by file name in [`MODULE_FOLDER`].
    pub(crate) channel_modules: Vec<String>,
    /// Those that are loaded after them.
    pub(crate) modules: Vec<String>,
    /// Parameters of modules, by the kernel's name of the module (`kvm_intel`).
    pub(crate) module_parameters: BTreeMap<String, String>,
}

/// The order for a machine that is set up. The contents of the files to write follow it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Order {
    /// Program and arguments; empty for an interactive shell.
    pub(crate) command: Vec<String>,
    pub(crate) put: Vec<PlacedFile>,
    /// Paths of files and folders to send back; relative to [`HOME`].
    pub(crate) get: Vec<String>,
    /// The size of the user's terminal; `None` without an interactive shell.
    pub(crate) terminal: Option<TerminalSize>,
    /// TERM of the user's terminal.
    pub(crate) terminal_kind: String,
    /// The time to set the clock to: nanoseconds since 1970.
    pub(crate) clock: u64,
    /// The seed of the kernel's random numbers, which would otherwise be the same in all runs from a
    /// snapshot.
    pub(crate) seed: u64,
    /// The cost of a VM exit and the following entry, in instructions, in addition to those that handle it.
    pub(crate) switch_cycles: u32,
}
