//! The values that are kept: the names of configuration options of VMs and kernels, and the syntax of their
//! values.
//!
//! All other values are removed: a list of secrets would lack future options.

/// Switches and similar words, which are kept for any name that is no secret's.
const SWITCHES: &[&str] = &[
    "on",
    "off",
    "yes",
    "no",
    "y",
    "n",
    "true",
    "false",
    "none",
    "auto",
    "default",
    "native",
    "threads",
    "split",
    "force",
    "static",
    "host",
    "kvm",
    "tcg",
    "xen",
    "strict",
    "custom",
    "full",
    "writeback",
    "writethrough",
    "unsafe",
    "directsync",
    "unmap",
    "ignore",
    "allow",
    "deny",
    "required",
    "optional",
    "disabled",
    "enabled",
];

/// Properties of QEMU and options of other VMMs whose values are names, models, places of devices, or
/// numbers.
const PROPERTIES: &[&str] = &[
    "accel",
    "addr",
    "aio",
    "backend",
    "base",
    "bios",
    "bootindex",
    "bus",
    "cache",
    "cache.direct",
    "cache.no-flush",
    "canbus",
    "chardev",
    "chassis",
    "clock",
    "cores",
    "cpu",
    "cpus",
    "dbdf",
    "debug-threads",
    "detect-zeroes",
    "dies",
    "discard",
    "drive",
    "driftfix",
    "driver",
    "elevateprivileges",
    "event_idx",
    "fd",
    "fds",
    "first",
    "format",
    "gic-version",
    "guest",
    "host",
    "host-nodes",
    "hugetlb",
    "hugetlbsize",
    "hv-spinlocks",
    "hv-vendor-id",
    "hv_spinlocks",
    "id",
    "if",
    "ifname",
    "index",
    "iothread",
    "iothread-vq-mapping",
    "kernel-irqchip",
    "kernel_irqchip",
    "last",
    "lost_tick_policy",
    "mac",
    "machine",
    "maxcpus",
    "maxmem",
    "media",
    "mem-merge",
    "memdev",
    "memory",
    "memory-backend",
    "mode",
    "model",
    "modules",
    "mq",
    "multifunction",
    "name",
    "netdev",
    "node",
    "node-id",
    "node-name",
    "nodeid",
    "num-queues",
    "numa",
    "obsolete",
    "order",
    "packed",
    "path",
    "pcie-root-port",
    "policy",
    "port",
    "prealloc",
    "props",
    "qom-type",
    "queue-size",
    "queues",
    "read-only",
    "readonly",
    "resourcecontrol",
    "romfile",
    "rombar",
    "script",
    "server",
    "share",
    "size",
    "slots",
    "sockets",
    "spawn",
    "strict",
    "threads",
    "timestamp",
    "tsc-frequency",
    "type",
    "unit",
    "uuid",
    "vcpus",
    "vectors",
    "vendor",
    "version",
    "vhost",
    "vhostfd",
    "vhostfds",
    "vhostforce",
    "virtio-iommu",
    "wait",
    "werror",
    "rerror",
];

/// Options of VMMs whose first word, without a name, is a kind of device or a number.
const KINDS: &[&str] = &[
    "-M",
    "-accel",
    "-audiodev",
    "-blockdev",
    "-boot",
    "-chardev",
    "-cpu",
    "-device",
    "-display",
    "-enable-kvm",
    "-global",
    "-k",
    "-m",
    "-machine",
    "-mon",
    "-name",
    "-netdev",
    "-nic",
    "-numa",
    "-object",
    "-overcommit",
    "-parallel",
    "-qmp",
    "-monitor",
    "-rtc",
    "-sandbox",
    "-serial",
    "-smp",
    "-usbdevice",
    "-uuid",
    "-vga",
    "-vnc",
    "-watchdog-action",
    "--cpus",
    "--memory",
    "--name",
    "--id",
    "--api-sock",
    "--api-socket",
];

/// Options whose value is the path of a file.
const PATHS: &[&str] =
    &["-bios", "-kernel", "-initrd", "-dtb", "-pflash", "-pidfile", "-mem-path", "--kernel", "--initramfs"];
/// Properties whose value is a path.
const PATH_PROPERTIES: &[&str] =
    &["file", "filename", "mem-path", "path", "romfile", "script", "downscript", "socket"];

/// SMBIOS strings of programs that manage VMs: they show in which program's settings a fix must be written.
const MAKERS: &[(&str, &[&str])] = &[
    ("manufacturer", &["OpenStack Foundation", "KubeVirt", "oVirt"]),
    ("product", &["OpenStack Nova", "OpenStack Compute"]),
    ("family", &["KubeVirt", "Virtual Machine"]),
];

/// Attributes of libvirt's XML whose values are kept, in addition to [`PROPERTIES`].
const ATTRIBUTES: &[&str] = &[
    "arch",
    "associativity",
    "autoport",
    "cell",
    "cellid",
    "check",
    "cachetune",
    "code",
    "cpuset",
    "default",
    "dev",
    "domain",
    "emulator",
    "enabled",
    "fallback",
    "feature",
    "function",
    "granularity",
    "io",
    "ioeventfd",
    "iommu",
    "keymap",
    "level",
    "locked",
    "managed",
    "match",
    "maxphysaddr",
    "migratable",
    "mmio",
    "nodeset",
    "offset",
    "partition",
    "persistent",
    "pid",
    "placement",
    "present",
    "primary",
    "priority",
    "reason",
    "removable",
    "scheduler",
    "secure",
    "slot",
    "snapshot",
    "source",
    "start",
    "startport",
    "state",
    "stepping",
    "table",
    "target",
    "tickpolicy",
    "track",
    "tray",
    "units",
    "value_kb",
    "vcpu",
    "vcpupin",
    "virttype",
    "width",
    "xmlns",
];

/// Elements of libvirt's XML whose text is kept.
const TEXTS: &[&str] = &[
    "arch",
    "boot",
    "bootmenu",
    "currentMemory",
    "emulator",
    "emulatorpin",
    "initrd",
    "iothreads",
    "kernel",
    "loader",
    "memory",
    "model",
    "name",
    "nvram",
    "on_crash",
    "on_poweroff",
    "on_reboot",
    "on_lockfailure",
    "shares",
    "type",
    "uuid",
    "vcpu",
    "vendor",
];

/// Arguments of Linux and Xen whose values are kept.
const ARGUMENTS: &[&str] = &[
    "BOOT_IMAGE",
    "acpi",
    "amd_iommu",
    "amd_iommu_intr",
    "amd_pstate",
    "apic",
    "apicv",
    "apparmor",
    "audit",
    "cgroup_disable",
    "clocksource",
    "cma",
    "com1",
    "console",
    "crashkernel",
    "cryptomgr",
    "debug",
    "default_hugepagesz",
    "dom0_max_vcpus",
    "dom0_mem",
    "dom0_vcpus_pin",
    "dom0pvh",
    "earlyprintk",
    "efi",
    "elevator",
    "gnttab_max_frames",
    "hpet",
    "hugepages",
    "hugepagesz",
    "hugetlb",
    "idle",
    "init",
    "initcall_blacklist",
    "intel_idle.max_cstate",
    "intel_iommu",
    "intel_pstate",
    "intremap",
    "iommu",
    "irqaffinity",
    "irqbalance",
    "isolcpus",
    "kvm-amd",
    "kvm-intel",
    "l1tf",
    "lapic",
    "lockdown",
    "loglevel",
    "loglvl",
    "guest_loglvl",
    "maxcpus",
    "mem",
    "memmap",
    "mitigations",
    "module.sig_enforce",
    "nested",
    "net.ifnames",
    "nmi_watchdog",
    "nohz",
    "nohz_full",
    "nosmt",
    "nr_cpus",
    "numa",
    "numa_balancing",
    "oops",
    "page_poison",
    "panic",
    "pci",
    "pcie_aspm",
    "pcid",
    "posted_msi",
    "preempt",
    "processor.max_cstate",
    "pti",
    "rcu_nocbs",
    "rdinit",
    "resume",
    "retbleed",
    "root",
    "rootflags",
    "rootfstype",
    "sched",
    "security",
    "selinux",
    "skew_tick",
    "smt",
    "spec-ctrl",
    "spec_store_bypass_disable",
    "spectre_v2",
    "split_lock_detect",
    "swapaccount",
    "systemd.unified_cgroup_hierarchy",
    "transparent_hugepage",
    "tsc",
    "ucode",
    "vga",
    "video",
    "watchdog",
    "x2apic",
    "x2apic_phys",
    "xen",
    "xpti",
];

/// Modules whose parameters are kept.
const MODULES: &[&str] = &[
    "kvm",
    "kvm_amd",
    "kvm_intel",
    "irqbypass",
    "iommufd",
    "vfio",
    "vfio_iommu_type1",
    "vfio_pci",
    "vhost",
    "vhost_net",
    "vhost_vsock",
    "virtio_blk",
    "virtio_net",
    "tun",
    "nvme",
    "nvme_core",
    "rcupdate",
    "rcutree",
    "workqueue",
    "xen_blkback",
    "xen_netback",
    "xen_pciback",
    "intel_idle",
    "processor",
    "cpuidle",
    "cpufreq",
    "iommu",
    "mlx5_core",
    "ixgbe",
    "i40e",
    "ice",
];

/// Tests whether values with this name are secrets; also those of QEMU's secret objects and of unlocked disks, whose names
/// mean other things in other texts.
pub(super) fn is_secret(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or(name);
    super::is_secret(name) || ["data", "pin"].contains(&last)
}

/// Tests whether a value is harmless with this name: a switch, a number with its unit, a list of CPUs. Passwords can be
/// numbers, so of secrets only switches are harmless.
pub(super) fn is_plain(name: &str, value: &str) -> bool {
    if value.is_empty() || value == super::MARK {
        return true;
    }
    if is_secret(name) {
        return super::SWITCHES.contains(&value);
    }
    let number =
        value.trim_end_matches(['%', 'B', 'b', 'i', 'K', 'k', 'M', 'm', 'G', 'g', 'T', 't', 's', 'n', 'u']);
    let is_number = |text: &str| {
        let digits = text.strip_prefix('-').unwrap_or(text);
        let hex =
            digits.strip_prefix("0x").is_some_and(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()));
        hex || digits.starts_with(|first: char| first.is_ascii_digit())
            && digits.bytes().all(|byte| byte.is_ascii_digit() || b".-,:/".contains(&byte))
    };
    SWITCHES.contains(&value) || value.len() <= 64 && value.len() - number.len() <= 3 && is_number(number)
}

/// Tests for a word without characters that separate a user from an address, or a name from a value.
pub(super) fn is_word(value: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_.+:/-".contains(&byte);
    value.len() <= 256 && !value.contains("//") && value.bytes().all(fits)
}

/// Tests for the absolute path of a file, which is not an address.
pub(super) fn is_path(value: &str) -> bool {
    value.starts_with('/') && is_word(value) && !value.contains(':')
}

/// Tests whether a property of a VM is kept with this value.
pub(super) fn property(name: &str, value: &str) -> bool {
    // In `-global kvm-pit.lost_tick_policy=delay` the last part is the property.
    let last = name.rsplit('.').next().unwrap_or(name);
    is_plain(name, value)
        || PATH_PROPERTIES.contains(&last) && is_path(value)
        || MAKERS.iter().any(|(known, values)| *known == name && values.contains(&value))
        || (PROPERTIES.contains(&last) || PROPERTIES.contains(&name)) && is_word(value)
        // The names of objects that contain secrets are not secret themselves.
        || (name.ends_with("-secret") || name == "tls-creds") && is_word(value)
}

/// Tests whether the first word of an option's value is kept.
pub(super) fn first_word(option: &str, value: &str) -> bool {
    is_plain(option, value)
        || KINDS.contains(&option) && is_word(value)
        || PATHS.contains(&option) && is_path(value)
}

/// Tests whether an attribute of libvirt's XML is kept with this value.
pub(super) fn attribute(name: &str, value: &str) -> bool {
    property(name, value) || ATTRIBUTES.contains(&name) && is_word(value) || name.starts_with("xmlns")
}

/// Tests whether the text of an element of libvirt's XML is kept.
pub(super) fn text(element: &str, value: &str) -> bool {
    let is_name = element == "name" && value.len() <= 256 && !value.contains(['=', '@', '%', '\n']);
    is_name || is_plain(element, value) || TEXTS.contains(&element) && is_word(value)
}

/// Tests whether an argument of a kernel, or of a hypervisor, is kept with this value.
pub(super) fn argument(name: &str, value: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_.+:/-,()\"".contains(&byte);
    // Without the prefix of a file system's ID (`root=UUID=`).
    let value =
        ["UUID=", "PARTUUID=", "LABEL="].iter().find_map(|kind| value.strip_prefix(kind)).unwrap_or(value);
    let module = name.split('.').next().unwrap_or_default().replace('-', "_");
    let known = ARGUMENTS.contains(&name) || name.contains('.') && MODULES.contains(&&module[..]);
    value.split([',', ':']).all(|part| is_plain(name, part))
        || known && value.len() <= 256 && !value.contains("//") && value.bytes().all(fits)
}

/// Tests whether a parameter of a module is kept with this value.
pub(super) fn parameter(module: &str, name: &str, value: &str) -> bool {
    is_plain(name, value) || MODULES.contains(&&module.replace('-', "_")[..]) && is_word(value)
}
