//! Guests that are started for the study, one QEMU each.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{NetModel, NetPlan, Size};
use crate::Span;

/// The settings of each guest's QEMU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct QemuPlan {
    /// Numbers of guests that run at once: one point of the study each, in ascending order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counts: Vec<u32>,
    /// The number of vCPUs of each guest.
    #[serde(default = "one")]
    pub vcpus: u32,
    /// The memory of each guest.
    #[serde(default = "memory")]
    pub memory: Size,
    /// QEMU's machine type: q35, pc, microvm or one with a version.
    #[serde(default = "machine")]
    pub machine: String,
    /// QEMU's CPU model and its features, as for -cpu; "host" with KVM and "max" without, if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<String>,
    /// The accelerator.
    #[serde(default)]
    pub accel: Accelerator,
    /// QEMU's kernel-irqchip; its default for the machine type if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub irqchip: Option<Irqchip>,
    /// The i8254 timer; QEMU's default for the machine type if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pit: Option<Pit>,
    /// A disk for the measured files; without it, files are in the guest's memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskPlan>,
    /// A network interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub net: Option<NetPlan>,
    /// CPUs of the host to which vCPUs are pinned, in turn over the vCPUs of all guests, starting again at
    /// the end of the list. `[2]` pins the vCPUs of all guests to CPU 2.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pin: Vec<u32>,
    /// Further arguments for the guest's kernel.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernel_arguments: Vec<String>,
    /// Further arguments for QEMU.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<String>,
    /// QEMU's program; qemu-system-x86_64 on the search path if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<PathBuf>,
    /// A kernel to use instead of the guest image's: it must have virtio, overlay and ext4 built in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<PathBuf>,
    /// The time within which a guest must answer after its start.
    #[serde(default = "start_limit")]
    pub start_limit: Span,
}

/// The accelerator of a guest's CPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Accelerator {
    /// Hardware virtualization by KVM.
    #[default]
    Kvm,
    /// QEMU's emulator: to try a plan without KVM. Its figures say nothing about interrupt virtualization.
    Tcg,
}

/// The irqchip mode (QEMU's kernel-irqchip).
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
    /// Present.
    On,
    /// Absent.
    Off,
    /// KVM's, which drops ticks that the guest missed instead of reinjecting them: reinjection inhibits AVIC.
    /// Only with irqchip = "on".
    Discard,
}

/// A disk for the measured files. The guest makes a file system on it and mounts it where scripts start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DiskPlan {
    /// The disk's bus.
    #[serde(default)]
    pub bus: DiskBus,
    /// A block device or raw image to use, which is overwritten; {guest} stands for each guest's number. A
    /// fresh image for each guest if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The size of a fresh image. It is sparse.
    #[serde(default = "disk_size")]
    pub size: Size,
    /// QEMU's I/O method.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aio: Option<Aio>,
    /// QEMU's use of the host's page cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<DiskCache>,
    /// The disk has its own I/O thread in QEMU.
    #[serde(default)]
    pub iothread: bool,
    /// The number of queues, if the bus has several; QEMU's default if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queues: Option<u16>,
    /// The most requests a second, by QEMU's throttling; a tenth of a second's worth may come at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iops: Option<NonZeroU32>,
    /// The most bytes a second, in the same way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<Size>,
}

/// The bus of a guest's disk.
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

/// QEMU's I/O method of a disk.
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
    /// The host's cache is bypassed.
    None,
    /// The host caches reads and writes.
    Writeback,
    /// The host caches reads.
    Writethrough,
    /// The host's cache is bypassed, and every write waits for the disk.
    Directsync,
    /// The guest's flushes are ignored.
    Unsafe,
}

impl QemuPlan {
    /// Tests whether the machine type is microvm, which has no PCI by default.
    pub fn is_microvm(&self) -> bool {
        self.machine.split(',').next() == Some("microvm")
    }

    /// The disk, unless its bus is "none".
    pub fn disk(&self) -> Option<&DiskPlan> {
        self.disk.as_ref().filter(|disk| disk.bus != DiskBus::None)
    }

    /// The network interface, unless its model is "none".
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
            "guests.memory is less than 128M, too little for the guest image",
        );
        require(
            !self.is_microvm() || self.accel == Accelerator::Kvm,
            "guests.machine = \"microvm\" needs accel = \"kvm\": it has no timer by which Linux could find the frequency of \
             an emulated CPU's TSC",
        );
        let is_absolute = |path: Option<&Path>| path.is_none_or(Path::is_absolute);
        require(
            is_absolute(self.kernel.as_deref()),
            "guests.kernel must be an absolute path: each QEMU runs in a folder of its own",
        );
        // A name alone is looked up on the search path.
        let program = self.program.as_deref().filter(|program| program.components().count() > 1);
        require(
            is_absolute(program),
            "guests.program must be an absolute path or a name alone: each QEMU runs in a folder of its own",
        );
        if self.pit == Some(Pit::Discard) {
            require(
                self.accel == Accelerator::Kvm && matches!(self.irqchip, None | Some(Irqchip::On)),
                "guests.pit = \"discard\" is a setting of KVM's PIT; it needs accel = \"kvm\" and irqchip = \"on\"",
            );
        }
        if let Some(disk) = self.disk() {
            require(
                is_absolute(disk.path.as_deref().map(Path::new)),
                "guests.disk.path must be an absolute path: each QEMU runs in a folder of its own",
            );
            require(
                disk.aio != Some(Aio::Native)
                    || matches!(disk.cache, Some(DiskCache::None | DiskCache::Directsync)),
                "guests.disk.aio = \"native\" needs cache = \"none\" or \"directsync\", as QEMU refuses it otherwise",
            );
            require(
                !disk.iothread || matches!(disk.bus, DiskBus::VirtioBlk | DiskBus::VirtioScsi),
                "guests.disk.iothread works only with bus = \"virtio-blk\" and \"virtio-scsi\"",
            );
            require(
                !self.is_microvm() || disk.bus != DiskBus::Ide,
                "guests.disk.bus = \"ide\" needs machine = \"pc\" or \"q35\": microvm has no ATA",
            );
        }
        if let Some(net) = self.net() {
            require(
                matches!(net.model, NetModel::VirtioNet | NetModel::Vmxnet3) || self.kernel.is_some(),
                "guests.net.model: the guest image's kernel has drivers only for virtio-net and vmxnet3; set kernel to another one",
            );
            require(
                net.model != NetModel::Vmxnet3 || !self.is_microvm(),
                "guests.net.model = \"vmxnet3\" needs machine = \"pc\" or \"q35\": it is a PCI device",
            );
            net.problems(&mut require);
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
