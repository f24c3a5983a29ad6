//! A guest's network interface.

use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A network interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NetPlan {
    /// The device model of the interface.
    #[serde(default)]
    pub model: NetModel,
    /// The backend on the host.
    #[serde(default)]
    pub backend: NetBackend,
    /// The number of queue pairs.
    #[serde(default = "one")]
    pub queues: u32,
    /// The bridge of backend = "bridge"; br0 if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bridge: Option<String>,
    /// The socket paths of backend = "vhost-user", with {guest} for each guest's number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<String>,
    /// The I/O workers of backend = "iocm", which all guests share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<IoWorkers>,
}

/// The I/O workers of `exitless iocm serve` when it is started for the study.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct IoWorkers {
    /// The assignment of guests' devices to workers.
    #[serde(default)]
    pub arrangement: IoArrangement,
    /// The number of shared workers; 1 if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
}

/// The assignment of guests' devices to I/O workers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum IoArrangement {
    /// A fixed number of workers shares all devices.
    #[default]
    Shared,
    /// One worker for each device, as in vhost.
    PerDevice,
    /// `exitless iocm monitor` decides on the number of workers and their CPUs while the guests run.
    Monitor,
}

/// The device model of a network interface.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NetModel {
    /// virtio-net.
    #[default]
    VirtioNet,
    /// Intel's 82540EM. Debian's cloud kernel has no driver for it: give another kernel.
    E1000,
    /// Realtek's 8139. Debian's cloud kernel has no driver for it: give another kernel.
    Rtl8139,
    /// VMware's vmxnet3, whose registers QEMU emulates in user space: the only emulated interface that
    /// Debian's cloud kernel has a driver for.
    Vmxnet3,
    /// No network.
    None,
}

/// The backend of a guest's network interface on the host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NetBackend {
    /// QEMU's own network stack, without root: the guest reaches the host at 10.0.2.2, and the host does not
    /// reach the guest.
    #[default]
    User,
    /// A tap device for each guest, created for the study with its own addresses, served by QEMU. Needs root.
    Tap,
    /// A tap device in an existing bridge.
    Bridge,
    /// Like tap, served by the kernel's vhost-net.
    Vhost,
    /// A vhost-user device, such as one of `exitless iocm`.
    VhostUser,
    /// Like tap, served by `exitless iocm serve`, which is started for the study. Needs root.
    Iocm,
}

impl NetBackend {
    /// Tests whether a process other than QEMU accesses the guest's memory.
    pub(crate) fn is_vhost_user(self) -> bool {
        matches!(self, Self::VhostUser | Self::Iocm)
    }
}

impl NetPlan {
    /// Reports problems that depend on neither the host nor the guest, by calling `require` with a condition and the
    /// message to report if it is false.
    pub(super) fn problems(&self, require: &mut impl FnMut(bool, &str)) {
        let virtio = self.model == NetModel::VirtioNet;
        require(
            virtio || !(self.backend == NetBackend::Vhost || self.backend.is_vhost_user()),
            "guests.net.backend = \"vhost\", \"vhost-user\" and \"iocm\" serve virtio-net only",
        );
        require(
            self.queues == 1 || (virtio && self.backend != NetBackend::User),
            "guests.net.queues above 1 need virtio-net and a backend other than \"user\"",
        );
        require(
            self.backend != NetBackend::VhostUser || self.socket.is_some(),
            "guests.net.backend = \"vhost-user\" needs socket, the path of the device's socket",
        );
        require(
            self.socket.as_deref().is_none_or(|socket| Path::new(socket).is_absolute()),
            "guests.net.socket must be an absolute path: each QEMU runs in a folder of its own",
        );
        require(
            self.workers.is_none() || self.backend == NetBackend::Iocm,
            "guests.net.workers needs backend = \"iocm\"",
        );
        let workers = self.workers.unwrap_or_default();
        require(
            workers.count.is_none_or(|count| {
                workers.arrangement == IoArrangement::Shared && (1..=256).contains(&count)
            }),
            "guests.net.workers.count must be 1 to 256, and needs arrangement = \"shared\"",
        );
    }
}

fn one() -> u32 {
    1
}
