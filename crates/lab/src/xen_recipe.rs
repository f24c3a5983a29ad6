//! The recipe of the Xen host's image: only Debian packages of the laboratories' release.

use crate::recipe::{self, COMPONENTS, RELEASE};

/// Incremented when the steps that turn packages into the image change.
const STEPS: u32 = 7;

/// The requested packages; apt adds their dependencies.
pub(crate) const PACKAGES: [&str; 32] = [
    // The cloud kernel of the other laboratories lacks CONFIG_XEN_DOM0.
    "linux-image-amd64",
    "xen-hypervisor-4.20-amd64",
    "xen-utils-4.20",
    // The device model of HVM guests.
    "qemu-system-xen",
    // For making the disk, and for Xen's scripts.
    "e2fsprogs",
    "kmod",
    "pciutils",
    // Workloads.
    "fio",
    "iozone3",
    "netperf",
    "sysbench",
    // For use in a shell.
    "bash",
    "busybox-static",
    "coreutils",
    "cpio",
    "dash",
    "debianutils",
    "diffutils",
    "ethtool",
    "findutils",
    "gawk",
    "grep",
    "gzip",
    "hostname",
    "iproute2",
    "ncurses-base",
    "procps",
    "psmisc",
    "sed",
    "tar",
    "time",
    "util-linux",
];

/// The tested versions. Others may work too; the self-test decides.
pub(crate) const PROVEN: [(&str, &str); 2] =
    [("xen-hypervisor-4.20-amd64", "4.20.4+63-g7abfd2bce2-0+deb13u1"), ("linux-image-amd64", "6.12.117-1")];

/// Folders of the packages that the control domain does not need: fio uses Python only for plotting scripts,
/// Xen only for pygrub and for migration streams of old versions.
pub(crate) const LEFT_OUT: [&str; 15] = [
    "usr/lib/python3",
    "usr/lib/python3.13",
    "usr/lib/systemd",
    "usr/lib/udev",
    "usr/lib/x86_64-linux-gnu/dri",
    "usr/lib/x86_64-linux-gnu/gconv",
    "usr/lib/x86_64-linux-gnu/systemd",
    "usr/share/debconf",
    "usr/share/iso-codes",
    "usr/share/mime",
    "usr/share/misc",
    "usr/share/perl",
    "usr/share/perl5",
    "usr/share/xml",
    "usr/share/zoneinfo",
];

/// Modules that the control domain loads before its disk is available; their dependencies are loaded first.
pub(crate) const EARLY_MODULES: [&str; 7] =
    ["crc32c_generic", "ext4", "xen_evtchn", "xen_gntalloc", "xen_gntdev", "xen_privcmd", "xenfs"];

/// The modules of QEMU's disk.
pub(crate) const VIRTIO_MODULES: [&str; 1] = ["virtio_blk"];

/// The modules of Bochs's disks. Load `sd_mod` first: disks that were found before it get their names in
/// random order, and disks are identified by name here.
pub(crate) const ATA_MODULES: [&str; 2] = ["sd_mod", "ata_piix"];

/// Modules that stay on the disk for `modprobe`, with their dependencies.
pub(crate) const LATER_MODULES: [&str; 11] = [
    "bridge",
    "igb",
    "iptable_filter",
    "loop",
    "overlay",
    "tun",
    "veth",
    "xen_acpi_processor",
    "xen_blkback",
    "xen_netback",
    "xen_pciback",
];

/// The modules of guests with assigned devices.
pub(crate) const GUEST_MODULES: [&str; 2] = ["igbvf", "nvme"];

/// Identifies the recipe.
pub(crate) fn content_key() -> String {
    let steps = STEPS.to_string();
    let parts = [RELEASE, COMPONENTS, &steps];
    let modules = EARLY_MODULES.iter().chain(&VIRTIO_MODULES).chain(&ATA_MODULES).chain(&LATER_MODULES);
    let modules = modules.chain(&GUEST_MODULES);
    recipe::key(parts.iter().chain(&PACKAGES).chain(&LEFT_OUT).chain(modules))
}
