//! The emulated machines: the parts that both emulators share.

mod bochs;
mod qemu;

use std::path::{Path, PathBuf};

use crate::assemble::DISK;
use crate::debian_kernel::KernelImage;
use crate::definition::{Emulator, Lab};
use crate::device::Device;
use crate::device_image::DeviceImage;
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

/// Arguments of every laboratory's kernel. Those on the second and third line turn off work that is expensive
/// on an emulated CPU and that no measurement here needs: self-tests of ciphers, certificates, entropy
/// collection, watchdogs, a look-up of each place of ftrace. The check of the timer (`no_timer_check`) compares with real
/// time, and an emulator that has to wait for a CPU fails it. `oops=panic` is there because a kernel that continued after
/// an oops could hang for ever on locks of the dead thread.
const KERNEL_ARGUMENTS: &str = "console=ttyS0 loglevel=4 panic=-1 oops=panic nokaslr mitigations=off no_timer_check \
    cryptomgr.notests apparmor=0 audit=0 nowatchdog tsc=reliable rcupdate.rcu_expedited=1 \
    initcall_blacklist=load_system_certificate_list,jent_mod_init,bpf_tcp_ca_kfunc_init,bpf_dummy_struct_ops_init,\
    ftrace_check_for_weak_functions \
    rdinit=/init";

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
    /// The guest image, whose root is a second disk.
    pub(crate) guest: Option<GuestImage>,
    /// Devices to be assigned to guests, behind an IOMMU.
    pub(crate) devices: &'a [Device],
    /// The files that a host with devices boots.
    pub(crate) device_image: Option<DeviceImage>,
    /// The kernel that is booted in place of the image's.
    pub(crate) kernel: Option<KernelImage>,
    /// The agent of guests that are started inside, if it is a program of its own.
    pub(crate) guest_agent: Option<GuestAgent>,
    pub(crate) kernel_arguments: String,
    /// Arguments of Xen.
    pub(crate) hypervisor_arguments: String,
    /// The other end of the second serial line, for a shell.
    pub(crate) terminal: Option<PathBuf>,
    /// Bytes of the input, for which the emulator stops the clock; 0 if there is none.
    pub(crate) input: u64,
}

impl Machine<'_> {
    /// The largest size of an initial RAM disk, in bytes.
    pub(crate) fn room(&self) -> u64 {
        room(self.lab.emulator, self.memory_mib)
    }

    /// Writes the files that the emulator reads for a boot to `folder` and returns its command. If `saved` is
    /// given, [`Saving`] can save the machine there when its agent waits for an order.
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

    /// The command that resumes the state in `saved`, which is not changed.
    pub(crate) fn restore(&self, folder: &Path, saved: &Path) -> Result<PowerOn, Error> {
        match self.lab.emulator {
            Emulator::Bochs => self.restore_bochs(folder, saved),
            Emulator::Qemu => self.restore_qemu(folder, saved),
        }
    }

    /// Resumes a restored machine; called when the emulator of a restore in `folder` has been started.
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

    /// Prepares saving the machine in `folder` to `saved`.
    pub(crate) fn saving(&self, folder: &Path, saved: &Path) -> Saving {
        match self.lab.emulator {
            Emulator::Bochs => Saving::Bochs(bochs::Saving::new(folder, saved)),
            Emulator::Qemu => Saving::Qemu(qemu::Saving::new(folder, saved, self.keeps_disk())),
        }
    }

    /// Tests whether the disk is written before the agent waits, so that a snapshot has to include its
    /// changes.
    fn keeps_disk(&self) -> bool {
        self.xen.is_some() && self.with_disk
    }

    fn command_line(&self) -> String {
        // The host's own DMA is not translated, as on real hosts that assign devices to guests. Xen's IOMMU is its own.
        let own = if self.devices.is_empty() || self.xen.is_some() { "" } else { "iommu=pt " };
        // The CPU that Bochs imitates claims 3.5 GHz; Xen measures the frequency, and tells its domains.
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

    /// The file of the host's initial disk.
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

/// A machine that will be saved.
#[derive(Debug)]
pub(crate) enum Saving {
    Bochs(bochs::Saving),
    Qemu(qemu::Saving),
}

impl Saving {
    /// Prepares saving; called when the emulator has been started.
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
