//! The emulated machines: the parts that both emulators share.

mod bochs;
mod qemu;

use std::path::{Path, PathBuf};

use crate::assemble::{self, DISK};
use crate::debian_kernel::{self, KernelImage};
use crate::definition::{Emulator, Lab};
use crate::device::Device;
use crate::device_image::{self, DeviceImage};
use crate::emulator::EmulatorProgram;
use crate::error::Error;
use crate::guest_agent::GuestAgent;
use crate::guest_image::GuestImage;
use crate::image::Image;
use crate::job::AGENT_ARGUMENT;
use crate::payload;
use crate::process::{PowerOn, Process};
use crate::speed::Speed;
use crate::watch::Watch;
use crate::xen_boot;
use crate::xen_image::XenImage;

/// The arguments of every laboratory's kernel. They turn off work that is expensive on an emulated CPU and
/// that no measurement here needs: self-tests of ciphers, certificates, entropy collection, watchdogs,
/// ftrace's check of each location. The timer check compares with real time, so it fails in an emulator that
/// waits for a CPU; hence `no_timer_check`. `oops=panic`: after an oops the kernel could hang forever on
/// locks of the dead thread.
const KERNEL_ARGUMENTS: &str = concat!(
    "console=ttyS0 loglevel=4 panic=-1 oops=panic nokaslr mitigations=off no_timer_check cryptomgr.notests apparmor=0 \
     audit=0 nowatchdog tsc=reliable rcupdate.rcu_expedited=1 initcall_blacklist=",
    guest::needless_initcalls!(),
    " rdinit=/init"
);

/// A machine that is about to be powered on.
#[derive(Debug)]
pub(crate) struct Machine<'a> {
    pub(crate) lab: &'static Lab,
    pub(crate) image: &'a Image,
    /// The image of a Xen host.
    pub(crate) xen: Option<&'a XenImage>,
    pub(crate) emulator: &'a EmulatorProgram,
    pub(crate) cpus: u16,
    pub(crate) speed: Speed,
    pub(crate) memory_mib: u64,
    pub(crate) with_disk: bool,
    /// The guest image, whose root becomes the second disk.
    pub(crate) guest: Option<GuestImage>,
    /// The devices for assignment to guests, behind an IOMMU.
    pub(crate) devices: &'a [Device],
    /// The boot files of a host with devices.
    pub(crate) device_image: Option<DeviceImage>,
    /// The kernel to boot instead of the image's.
    pub(crate) kernel: Option<KernelImage>,
    /// The agent for nested guests, if it is a program of its own.
    pub(crate) guest_agent: Option<GuestAgent>,
    pub(crate) kernel_arguments: String,
    /// Arguments of Xen.
    pub(crate) hypervisor_arguments: String,
    /// The emulator's side of the second serial line, for a shell.
    pub(crate) terminal: Option<PathBuf>,
    /// The length of the input in bytes, until the end of which the emulator stops the clock; 0 without
    /// input.
    pub(crate) input: u64,
}

impl Machine<'_> {
    /// The largest size of an initial RAM disk, in bytes.
    pub(crate) fn room(&self) -> u64 {
        room(self.lab.emulator, self.memory_mib)
    }

    /// The ELF kernel of a host without Xen.
    fn kernel(&self) -> PathBuf {
        match (&self.device_image, &self.kernel) {
            (Some(image), _) => image.path(device_image::KERNEL),
            (None, Some(kernel)) => kernel.path(debian_kernel::KERNEL),
            (None, None) => self.image.path(assemble::KERNEL),
        }
    }

    /// Writes the files that the emulator needs for a boot to `folder`, and returns the command. With
    /// `saved`, [`Saving`] can save the machine there when its agent waits for an order.
    pub(crate) fn prepare(
        &self,
        folder: &Path,
        initial_ram_disk: &[u8],
        saved: Option<&Path>,
    ) -> Result<PowerOn, Error> {
        match self.lab.emulator {
            Emulator::Bochs => self.boot_bochs(folder, initial_ram_disk, saved),
            Emulator::Qemu => self.boot_qemu(folder, initial_ram_disk, saved),
        }
    }

    /// The command that restores the state in `saved`, which it does not change.
    pub(crate) fn restore(&self, folder: &Path, saved: &Path) -> Result<PowerOn, Error> {
        match self.lab.emulator {
            Emulator::Bochs => self.restore_bochs(folder, saved),
            Emulator::Qemu => self.restore_qemu(folder, saved),
        }
    }

    /// Resumes a restored machine. The emulator must have been started by a command of [`Self::restore`] for
    /// `folder`.
    pub(crate) fn resume(
        &self,
        folder: &Path,
        process: &mut Process,
        watch: &Watch<'_>,
    ) -> Result<(), Error> {
        match self.lab.emulator {
            Emulator::Bochs => Ok(()),
            Emulator::Qemu => qemu::resume(folder, process, watch),
        }
    }

    /// Prepares to save the machine that boots in `folder` to `saved`.
    pub(crate) fn saving(&self, folder: &Path, saved: &Path) -> Saving {
        match self.lab.emulator {
            Emulator::Bochs => Saving::Bochs(bochs::Saving::new(folder, saved)),
            Emulator::Qemu => Saving::Qemu(qemu::Saving::new(folder, saved, self.keeps_disk())),
        }
    }

    /// Tests whether the disk is written before the agent waits for an order, so that a snapshot has to
    /// include the changes.
    fn keeps_disk(&self) -> bool {
        self.xen.is_some() && self.with_disk
    }

    fn command_line(&self) -> String {
        // Pass-through mode for the host's own DMA, as on real hosts that assign devices. Xen manages its
        // IOMMU itself.
        let own = if self.devices.is_empty() || self.xen.is_some() { "" } else { "iommu=pt " };
        // CPUID of Bochs's CPU model reports 3.5 GHz, which is wrong. Not needed below Xen, which measures
        // the frequency and tells its domains.
        let frequency = match (self.lab.emulator, self.xen) {
            (Emulator::Bochs, None) => format!("tsc_early_khz={}", self.speed.tsc_khz()),
            _ => String::new(),
        };
        format!(
            "{KERNEL_ARGUMENTS} {own}{frequency}{} {} -- {AGENT_ARGUMENT}",
            self.lab.kernel_arguments, self.kernel_arguments
        )
    }

    fn hypervisor_arguments(&self) -> String {
        xen_boot::hypervisor_arguments(self.lab.emulator, self.memory_mib, &self.hypervisor_arguments)
    }

    /// The image file of the host's first disk.
    fn disk(&self) -> PathBuf {
        self.xen.map_or_else(|| self.image.path(DISK), |xen| xen.path(DISK))
    }
}

/// The largest size of an initial RAM disk in a machine with this amount of memory, in bytes.
pub(crate) fn room(emulator: Emulator, memory_mib: u64) -> u64 {
    match emulator {
        Emulator::Bochs => payload::room(memory_mib),
        Emulator::Qemu => (memory_mib << 20) / 2,
    }
}

/// A machine that is booted to be saved.
#[derive(Debug)]
pub(crate) enum Saving {
    Bochs(bochs::Saving),
    Qemu(qemu::Saving),
}

impl Saving {
    /// Prepares to save, once the emulator has been started.
    pub(crate) fn begin(&self, process: &mut Process, watch: &Watch<'_>) -> Result<(), Error> {
        match self {
            Self::Bochs(_) => Ok(()),
            Self::Qemu(saving) => saving.begin(process, watch),
        }
    }

    /// Saves the machine, whose agent waits for an order, and ends the emulator.
    pub(crate) fn finish(self, process: &mut Process, watch: &Watch<'_>) -> Result<(), Error> {
        match self {
            Self::Bochs(saving) => saving.finish(process, watch),
            Self::Qemu(saving) => saving.finish(process, watch),
        }
    }
}
