//! The recipe of the guest image: only Debian packages of the laboratories' release.

use crate::recipe::{self, COMPONENTS, RELEASE};

/// Incremented when the steps that turn packages into the image change.
const STEPS: u32 = 3;

/// Requested packages; apt adds their dependencies.
pub(crate) const PACKAGES: [&str; 29] = [
    "linux-image-cloud-amd64",
    // For making the image, and for using file systems in guests.
    "e2fsprogs",
    "kmod",
    // Workloads of plans.
    "apache2-utils",
    "fio",
    "iozone3",
    "mosquitto",
    "mosquitto-clients",
    "netperf",
    "nginx-light",
    "openssh-server",
    "sysbench",
    "wrk",
    // For shell scripts.
    "bash",
    "busybox-static",
    "coreutils",
    "dash",
    "debianutils",
    "ethtool",
    "findutils",
    "gawk",
    "grep",
    "gzip",
    "hostname",
    "iproute2",
    "procps",
    "sed",
    "tar",
    "util-linux",
];

/// Folders of the packages that guests do not need: fio uses Python only for plotting scripts, and modules
/// are in the initial RAM disk.
pub(crate) const LEFT_OUT: [&str; 16] = [
    "boot",
    "etc/systemd",
    "usr/lib/modules",
    "usr/lib/python3",
    "usr/lib/python3.13",
    "usr/lib/systemd",
    "usr/lib/udev",
    "usr/lib/x86_64-linux-gnu/gconv",
    "usr/lib/x86_64-linux-gnu/systemd",
    "usr/share/debconf",
    "usr/share/mime",
    "usr/share/perl",
    "usr/share/perl5",
    "usr/share/polkit-1",
    "usr/share/python3",
    "usr/share/zoneinfo",
];

/// Modules that a guest may request by name; their dependencies are added.
pub(crate) const MODULES: [&str; 14] = [
    "ahci",
    "ata_piix",
    "overlay",
    "sd_mod",
    "tun",
    "virtio_balloon",
    "virtio_blk",
    "virtio_mmio",
    "virtio_net",
    "virtio_rng",
    "virtio_scsi",
    "vmxnet3",
    "xen_blkfront",
    "xen_netfront",
];

/// Identifies the recipe.
pub(crate) fn content_key() -> String {
    let steps = STEPS.to_string();
    let parts = [RELEASE, COMPONENTS, &steps];
    recipe::key(parts.iter().chain(&PACKAGES).chain(&LEFT_OUT).chain(&MODULES))
}
