//! Booting Xen in an emulator: by the Multiboot protocol, with the control domain's kernel and initial RAM
//! disk as modules, so that neither a boot loader nor a disk for it is needed.

use std::os::unix::fs::symlink;
use std::path::Path;

use crate::definition::Emulator;
use crate::error::Error;
use crate::tools::Invocation;
use crate::xen_disk::{HYPERVISOR, KERNEL};
use crate::xen_image::XenImage;

/// QEMU's CPU. Xen 4.20 uses MWAIT if it is there, but TCG has no idle states for it, and Xen panics. On
/// QEMU's EPYC, threads of dom0 lose their heap now and then (5 of 12 runs of `exitless stat` crashed, with
/// AVX and without); on this model none of 12 did.
pub(crate) const QEMU_CPU: &str = "phenom,+svm,-monitor";
/// The hypervisor's arguments. Mitigations are expensive on an emulated CPU, and no measurement here needs
/// them.
const ARGUMENTS: &str =
    "console=com1 com1=115200 loglvl=all guest_loglvl=all spec-ctrl=no xpti=no conring_size=128k";
/// Additional arguments for QEMU.
const QEMU_ARGUMENTS: &str = "dom0_max_vcpus=2 bootscrub=off";
/// Additional arguments for Bochs, whose CPU model has MWAIT but no idle states. The firmware has not
/// finished when its ROM enters Xen, so Xen uses the given memory map and does not call the firmware. Memory
/// is zero at power-on.
const BOCHS_ARGUMENTS: &str =
    "dom0_max_vcpus=1 mwait-idle=no max_cstate=0 no-real-mode edd=off bootscrub=off";
/// The control domain's share of the host's memory, in MiB.
const DOM0_MEMORY_MIB: u64 = 832;
/// Name of the kernel in the folder of the run: QEMU treats a space as the end of a module's path.
const KERNEL_LINK: &str = "dom0-kernel";

/// The hypervisor's command line; the user's arguments come last and override the others.
pub(crate) fn hypervisor_arguments(emulator: Emulator, memory_mib: u64, given: &str) -> String {
    let own = match emulator {
        Emulator::Bochs => BOCHS_ARGUMENTS,
        Emulator::Qemu => QEMU_ARGUMENTS,
    };
    format!("{ARGUMENTS} {own} dom0_mem={0}M,max:{0}M {given}", dom0_memory(memory_mib)).trim_end().to_owned()
}

/// Adds the hypervisor and its modules; the emulator must run in `folder`.
pub(crate) fn arguments(
    invocation: &mut Invocation,
    image: &XenImage,
    folder: &Path,
    hypervisor_arguments: &str,
    initial_ram_disk: &Path,
    command_line: &str,
) -> Result<(), Error> {
    let link = folder.join(KERNEL_LINK);
    symlink(image.path(KERNEL), &link).map_err(Error::file("Could not link", &link))?;
    let ram_disk = initial_ram_disk.file_name().unwrap_or_default().to_string_lossy();
    invocation.arg("-kernel").arg(image.path(HYPERVISOR));
    invocation.arg("-append").arg(hypervisor_arguments);
    invocation.arg("-initrd").arg(modules(command_line, &ram_disk));
    Ok(())
}

/// Modules are separated by commas; a comma in an argument is doubled.
fn modules(command_line: &str, ram_disk: &str) -> String {
    format!("{KERNEL_LINK} {},{ram_disk}", command_line.replace(',', ",,"))
}

/// At least a quarter of a small host's memory is left for guests.
fn dom0_memory(memory_mib: u64) -> u64 {
    DOM0_MEMORY_MIB.min(memory_mib * 3 / 4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::MEMORY_MIB;

    #[test]
    fn commas_of_arguments_do_not_end_a_module() {
        assert_eq!(
            modules("initcall_blacklist=a,b quiet", "initrd"),
            "dom0-kernel initcall_blacklist=a,,b quiet,initrd"
        );
    }

    #[test]
    fn a_small_host_keeps_memory_for_guests() {
        assert_eq!((dom0_memory(MEMORY_MIB), dom0_memory(512)), (832, 384));
    }

    #[test]
    fn what_is_given_comes_last() {
        let line = hypervisor_arguments(Emulator::Bochs, MEMORY_MIB, "apicv=0");
        assert!(
            line.starts_with("console=com1 ") && line.ends_with(" dom0_mem=832M,max:832M apicv=0"),
            "{line}"
        );
    }
}
