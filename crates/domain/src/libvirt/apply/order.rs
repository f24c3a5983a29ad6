//! The order in which libvirt writes elements (`virDomainDefFormatInternalSetRootName` and the functions that
//! it calls). libvirt's schema accepts most elements in any order; new ones are inserted where `virsh
//! dumpxml` would print them.

pub(super) const DOMAIN: &[&str] = &[
    "name",
    "uuid",
    "hwuuid",
    "genid",
    "title",
    "description",
    "metadata",
    "maxMemory",
    "memory",
    "currentMemory",
    "blkiotune",
    "memtune",
    "memoryBacking",
    "vcpu",
    "vcpus",
    "iothreads",
    "iothreadids",
    "defaultiothread",
    "cputune",
    "numatune",
    "resource",
    "sysinfo",
    "bootloader",
    "bootloader_args",
    "os",
    "features",
    "cpu",
    "clock",
    "on_poweroff",
    "on_reboot",
    "on_crash",
    "on_lockfailure",
    "pm",
    "perf",
    "idmap",
    "devices",
    "seclabel",
    "launchSecurity",
    "keywrap",
];

pub(super) const FEATURES: &[&str] = &[
    "pae",
    "acpi",
    "apic",
    "viridian",
    "privnet",
    "hap",
    "hyperv",
    "kvm",
    "xen",
    "pvspinlock",
    "capabilities",
    "pmu",
    "vmport",
    "gic",
    "smm",
    "ioapic",
    "hpt",
];

pub(super) const DEVICES: &[&str] = &[
    "emulator",
    "disk",
    "controller",
    "lease",
    "filesystem",
    "interface",
    "smartcard",
    "serial",
    "parallel",
    "console",
    "channel",
    "input",
    "tpm",
    "graphics",
    "sound",
    "audio",
    "video",
    "hostdev",
    "redirdev",
    "redirfilter",
    "hub",
    "watchdog",
    "memballoon",
    "rng",
    "nvram",
    "panic",
    "shmem",
    "memory",
    "iommu",
    "vsock",
    "crypto",
];

pub(super) const INTERFACE: &[&str] =
    &["mac", "source", "virtualport", "backenddomain", "script", "downscript", "target", "guest", "model"];

/// The names that precede one in an order.
pub(super) fn before<'o>(order: &'o [&'o str], name: &str) -> &'o [&'o str] {
    let position = order.iter().position(|other| *other == name);
    &order[..position.unwrap_or(order.len())]
}
