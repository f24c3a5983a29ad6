//! Guests that are started for the study, one QEMU each.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{NetModel, NetPlan, Size};
use crate::study::Span;

/// How each guest's QEMU is started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct QemuPlan {
    /// How many run at once: one point of the study each, in ascending order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counts: Vec<u32>,
    /// vCPUs of each guest.
    #[serde(default = "one")]
    pub vcpus: u32,
    /// Memory of each guest.
    #[serde(default = "memory")]
    pub memory: Size,
    /// QEMU's machine type: q35, pc, microvm or one with a version.
    #[serde(default = "machine")]
    pub machine: String,
    /// QEMU's CPU model and its features, as for -cpu; "host" with KVM and "max" without, if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<String>,
    /// What runs the guest's CPUs.
    #[serde(default)]
    pub accel: Accelerator,
    /// Where the interrupt controllers are; QEMU's choice for the machine type if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub irqchip: Option<Irqchip>,
    /// The i8254 timer; QEMU's choice for the machine type if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pit: Option<Pit>,
    /// A disk of its own for what is measured; without it, files live in the guest's memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskPlan>,
    /// A network interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub net: Option<NetPlan>,
    /// CPUs of the host on which vCPUs are held: the first vCPU of the first guest on the first, and so on, over all
    /// guests, beginning anew at the end of the list. `[2]` puts the vCPUs of all guests on CPU 2.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pin: Vec<u32>,
    /// Arguments for the guest's kernel beyond those it is always given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernel_arguments: Vec<String>,
    /// Arguments for QEMU beyond those made from this table.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<String>,
    /// QEMU's program; qemu-system-x86_64 on the search path if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<PathBuf>,
    /// Another kernel than the guest image's: it must have virtio, overlay and ext4 built in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<PathBuf>,
    /// Within which a guest must answer after its start.
    #[serde(default = "start_limit")]
    pub start_limit: Span,
}

/// What runs a guest's CPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Accelerator {
    /// The CPU's virtualization, by KVM.
    #[default]
    Kvm,
    /// QEMU's emulator: to try a plan where there is no KVM. Its figures say nothing of interrupt virtualization.
    Tcg,
}

/// Where the interrupt controllers are (QEMU's kernel-irqchip).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Irqchip {
    /// The local APICs in KVM; I/O APIC, PIC and PIT in QEMU.
    Split,
    /// All of them in KVM.
    On,
    /// All of them in QEMU.
    Off,
}

/// The i8254 timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Pit {
    /// There is one.
    On,
    /// There is none.
    Off,
    /// KVM's, which drops ticks that the guest missed instead of making up for them: KVM's making up for them inhibits
    /// AVIC. Only with irqchip = "on".
    Discard,
}

/// A disk for what is measured. The guest makes a file system on it and mounts it where scripts start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DiskPlan {
    /// How the guest sees it.
    #[serde(default)]
    pub bus: DiskBus,
    /// A block device or raw image that is used as it is, and overwritten; with {guest} in it, each guest's number stands
    /// there. A fresh image for each guest if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Size of a fresh image. It takes room as it is written.
    #[serde(default = "disk_size")]
    pub size: Size,
    /// How QEMU reads and writes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aio: Option<Aio>,
    /// QEMU's use of the host's page cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<DiskCache>,
    /// Whether it has an I/O thread of its own in QEMU.
    #[serde(default)]
    pub iothread: bool,
    /// Queues, where the bus has several; QEMU's choice if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queues: Option<u16>,
}

/// How a guest sees its disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DiskBus {
    /// virtio-blk.
    #[default]
    VirtioBlk,
    /// virtio-scsi.
    VirtioScsi,
    /// The machine's ATA: PIIX on pc, AHCI on q35.
    Ide,
    /// NVMe.
    Nvme,
    /// No disk.
    None,
}

/// How QEMU reads and writes a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Aio {
    /// Worker threads.
    Threads,
    /// Linux's io_submit, which needs cache = "none" or "directsync".
    Native,
    /// io_uring.
    IoUring,
}

/// QEMU's use of the host's page cache for a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DiskCache {
    /// The host's cache is passed by.
    None,
    /// The host caches reads and writes.
    Writeback,
    /// The host caches reads.
    Writethrough,
    /// Passed by, and every write waits for the disk.
    Directsync,
    /// The guest's flushes are ignored.
    Unsafe,
}

impl QemuPlan {
    /// Whether the machine is of QEMU's type microvm, which has no PCI by itself.
    pub fn is_microvm(&self) -> bool {
        self.machine.split(',').next() == Some("microvm")
    }

    /// The disk, unless it is said to be none.
    pub fn disk(&self) -> Option<&DiskPlan> {
        self.disk.as_ref().filter(|disk| disk.bus != DiskBus::None)
    }

    /// The network interface, unless it is said to be none.
    pub fn net(&self) -> Option<&NetPlan> {
        self.net.as_ref().filter(|net| net.model != NetModel::None)
    }

    pub(super) fn problems(&self, problems: &mut Vec<String>) {
        let mut require = |good: bool, problem: &str| {
            if !good {
                problems.push(problem.to_owned());
            }
        };
        require((1..=288).contains(&self.vcpus), "guests.vcpus must be 1 to 288");
        require(
            self.memory >= Size::mib(128),
            "guests.memory is less than 128M, with which the guest image does not start",
        );
        require(
            !self.is_microvm() || self.accel == Accelerator::Kvm,
            "guests.machine = \"microvm\" needs accel = \"kvm\": it has no timer by which Linux could find the frequency of \
             an emulated CPU's TSC",
        );
        if self.pit == Some(Pit::Discard) {
            require(
                self.accel == Accelerator::Kvm && matches!(self.irqchip, None | Some(Irqchip::On)),
                "guests.pit = \"discard\" is a setting of KVM's PIT; it needs accel = \"kvm\" and irqchip = \"on\"",
            );
        }
        if let Some(disk) = self.disk() {
            require(
                disk.aio != Some(Aio::Native)
                    || matches!(disk.cache, Some(DiskCache::None | DiskCache::Directsync)),
                "guests.disk.aio = \"native\" needs cache = \"none\" or \"directsync\", as QEMU refuses it otherwise",
            );
            require(
                !disk.iothread || matches!(disk.bus, DiskBus::VirtioBlk | DiskBus::VirtioScsi),
                "guests.disk.iothread works with bus = \"virtio-blk\" and \"virtio-scsi\" only",
            );
            require(
                !self.is_microvm() || disk.bus != DiskBus::Ide,
                "guests.disk.bus = \"ide\" needs machine = \"pc\" or \"q35\": microvm has no ATA",
            );
        }
        if let Some(net) = self.net() {
            net.problems(self, &mut require);
        }
    }
}

fn one() -> u32 {
    1
}

fn memory() -> Size {
    Size::mib(512)
}

fn disk_size() -> Size {
    Size::mib(1024)
}

fn machine() -> String {
    "q35".to_owned()
}

fn start_limit() -> Span {
    Span::seconds(180)
}
