//! Boots Xen in QEMU or Bochs by the Multiboot protocol, with the control domain's kernel and initial RAM
//! disk as modules. This needs neither a boot loader nor a boot disk.

use std::os::unix::fs::symlink;
use std::path::Path;

use crate::definition::Emulator;
use crate::error::Error;
use crate::tools::Invocation;
use crate::xen_disk::{HYPERVISOR, KERNEL};
use crate::xen_image::XenImage;

/// QEMU's CPU. Without `-monitor`, Xen 4.20 would use MWAIT, for which TCG has no idle states, and panic. On
/// QEMU's EPYC, threads of dom0 sometimes lose their heap (5 of 12 runs of `exitless stat` crashed, with and
/// without AVX); on this model none of 12 did.
pub(crate) const QEMU_CPU: &str = "phenom,+svm,-monitor";
/// Xen's arguments. Mitigations are expensive on an emulated CPU, and no measurement here needs them.
const ARGUMENTS: &str =
    "console=com1 com1=115200 loglvl=all guest_loglvl=all spec-ctrl=no xpti=no conring_size=128k";
/// Additional arguments of Xen in QEMU.
const QEMU_ARGUMENTS: &str = "dom0_max_vcpus=2 bootscrub=off";
/// Additional arguments of Xen in Bochs. Its CPU model has MWAIT but no idle states. The ROM enters Xen
/// before the firmware has finished, so Xen must use the given memory map and not call the firmware.
/// Scrubbing is unnecessary, because memory is zero at power-on.
const BOCHS_ARGUMENTS: &str =
    "dom0_max_vcpus=1 mwait-idle=no max_cstate=0 no-real-mode edd=off bootscrub=off";
/// The control domain's memory, in MiB.
const DOM0_MEMORY_MIB: u64 = 832;
/// The kernel's file name in the folder of the run; not a path, because QEMU treats a space as the end of a
/// module's path.
const KERNEL_LINK: &str = "dom0-kernel";

/// Xen's command line. The user's arguments come last, so that they override the others.
pub(crate) fn hypervisor_arguments(emulator: Emulator, memory_mib: u64, given: &str) -> String {
    let own = match emulator {
        Emulator::Bochs => BOCHS_ARGUMENTS,
        Emulator::Qemu => QEMU_ARGUMENTS,
    };
    format!("{ARGUMENTS} {own} dom0_mem={0}M,max:{0}M {given}", dom0_memory(memory_mib)).trim_end().to_owned()
}

/// Adds Xen and its modules to QEMU's command line. QEMU must run in `folder`.
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

/// Formats QEMU's list of modules, which are separated by commas; a comma within an argument is doubled.
fn modules(command_line: &str, ram_disk: &str) -> String {
    format!("{KERNEL_LINK} {},{ram_disk}", command_line.replace(',', ",,"))
}

/// The control domain's memory in MiB; leaves at least a quarter of a small host's memory to guests.
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
