//! The recipe of the laboratories' image: only Debian packages of one release.

use sha2::{Digest, Sha256};

/// The Debian release.
pub(crate) const RELEASE: &str = "trixie";
/// Incremented when the steps that turn packages into an image change.
const STEPS: u32 = 7;

/// The requested packages; apt adds their dependencies.
pub(crate) const PACKAGES: [&str; 28] = [
    // The kernel of emulated hosts and of nested guests.
    "linux-image-cloud-amd64",
    // The emulators' firmware; the emulators themselves are compiled from source. And a QEMU for nested VMs.
    "bochsbios",
    "vgabios",
    "qemu-system-x86",
    // For making the disk.
    "e2fsprogs",
    "kmod",
    // Workloads and measuring tools.
    "fio",
    "iozone3",
    "linux-perf",
    "netperf",
    "sysbench",
    "trace-cmd",
    // For use in a shell.
    "bash",
    "busybox-static",
    "coreutils",
    "dash",
    "debianutils",
    "diffutils",
    "findutils",
    "gawk",
    "grep",
    "gzip",
    "iproute2",
    // Terminal descriptions, without which top does not work.
    "ncurses-base",
    "procps",
    "sed",
    "tar",
    "util-linux",
];

/// The archive's components: iozone3 and netperf are in non-free.
pub(crate) const COMPONENTS: &str = "main contrib non-free";

/// The tested versions. Others may work too; the self-test decides.
pub(crate) const PROVEN: [(&str, &str); 2] =
    [("linux-image-cloud-amd64", "6.12.117-1"), ("qemu-system-x86", "1:10.0.13+ds-0+deb13u1")];

/// Folders of the packages that neither hosts nor emulators need.
pub(crate) const LEFT_OUT: [&str; 8] = [
    "usr/share/doc",
    "usr/share/man",
    "usr/share/info",
    "usr/share/locale",
    "usr/share/lintian",
    "usr/share/icons",
    "usr/share/sounds",
    "usr/share/bash-completion",
];

/// Identifies the recipe. An image records the key of the recipe that it was made by.
pub(crate) fn content_key() -> String {
    key([RELEASE, COMPONENTS, &STEPS.to_string()].iter().chain(&PACKAGES).chain(&LEFT_OUT))
}

/// A digest of all parts of a recipe.
pub(crate) fn key<'a>(parts: impl Iterator<Item = &'a &'a str>) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}
