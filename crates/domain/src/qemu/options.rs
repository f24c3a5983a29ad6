//! QEMU's options, with and without an argument.
//!
//! The names are those that `qemu-options.hx` of QEMU 4.0 to 10.0 defines for the system emulators of x86,
//! including those removed within these versions. Proxmox adds `-id`.

/// Options with an argument.
const WITH_ARGUMENT: &[&str] = &[
    "accel",
    "acpitable",
    "action",
    "add-fd",
    "append",
    "audio",
    "audiodev",
    "balloon",
    "bios",
    "blockdev",
    "boot",
    "bt",
    "cdrom",
    "chardev",
    "chroot",
    "clock",
    "compat",
    "cpu",
    "d",
    "D",
    "debugcon",
    "device",
    "dfilter",
    "display",
    "drive",
    "dtb",
    "dump-vmstate",
    "echr",
    "fda",
    "fdb",
    "fsdev",
    "fw_cfg",
    "g",
    "gdb",
    "global",
    "hda",
    "hdachs",
    "hdb",
    "hdc",
    "hdd",
    "icount",
    "id",
    "incoming",
    "initrd",
    "iscsi",
    "k",
    "kernel",
    "L",
    "loadvm",
    "m",
    "M",
    "machine",
    "mem-path",
    "mon",
    "monitor",
    "msg",
    "mtdblock",
    "name",
    "net",
    "netdev",
    "nic",
    "numa",
    "object",
    "option-rom",
    "overcommit",
    "parallel",
    "pflash",
    "pidfile",
    "plugin",
    "prom-env",
    "qmp",
    "qmp-pretty",
    "qtest",
    "qtest-log",
    "readconfig",
    "realtime",
    "redir",
    "rotate",
    "rtc",
    "run-with",
    "runas",
    "sandbox",
    "sd",
    "seed",
    "semihosting-config",
    "serial",
    "set",
    "shim",
    "smb",
    "smbios",
    "smp",
    "soundhw",
    "spice",
    "startdate",
    "tb-size",
    "tftp",
    "bootp",
    "tpmdev",
    "trace",
    "usbdevice",
    "uuid",
    "vga",
    "virtfs",
    "virtioconsole",
    "vnc",
    "watchdog",
    "watchdog-action",
    "writeconfig",
    "xen-domid",
];

/// Options without an argument.
const WITHOUT_ARGUMENT: &[&str] = &[
    "alt-grab",
    "async-teardown",
    "audio-help",
    "ctrl-grab",
    "curses",
    "daemonize",
    "enable-fips",
    "enable-hax",
    "enable-hvf",
    "enable-kvm",
    "enable-nesting",
    "enable-sync-profile",
    "full-screen",
    "h",
    "help",
    "jitdump",
    "localtime",
    "mem-prealloc",
    "no-acpi",
    "no-fd-bootchk",
    "no-frame",
    "no-hpet",
    "no-kvm",
    "no-kvm-irqchip",
    "no-kvm-pit",
    "no-kvm-pit-reinjection",
    "no-quit",
    "no-reboot",
    "no-shutdown",
    "no-user-config",
    "nodefaults",
    "nodefconfig",
    "nographic",
    "nouserconfig",
    "old-param",
    "one-insn-per-tb",
    "only-migratable",
    "perfmap",
    "portrait",
    "preconfig",
    "rtc-td-hack",
    "s",
    "S",
    "sdl",
    "semihosting",
    "show-cursor",
    "singlestep",
    "snapshot",
    "tdf",
    "trace-unassigned",
    "usb",
    "version",
    "virtfs_synth",
    "win2k-hack",
    "xen-attach",
    "xen-create",
    "xen-domid-restrict",
];

/// Tests whether an option takes an argument; `None` for names that QEMU does not have.
pub(super) fn takes_argument(name: &str) -> Option<bool> {
    if WITH_ARGUMENT.contains(&name) {
        Some(true)
    } else if WITHOUT_ARGUMENT.contains(&name) {
        Some(false)
    } else {
        None
    }
}

/// The name of an option, without its one or two dashes; `None` for a word that is not an option.
pub(super) fn name(argument: &str) -> Option<&str> {
    // As in QEMU's `lookup_opt`, a lone dash is a file name.
    let name = argument.strip_prefix('-')?;
    let name = name.strip_prefix('-').unwrap_or(name);
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_option_is_of_both_kinds_and_letters_have_their_case() {
        for option in WITH_ARGUMENT {
            assert!(!WITHOUT_ARGUMENT.contains(option), "{option}");
        }
        assert_eq!(takes_argument("D"), Some(true));
        assert_eq!(takes_argument("s"), Some(false));
        assert_eq!(takes_argument("S"), Some(false));
        assert_eq!(takes_argument("machine=q35"), None);
    }

    #[test]
    fn one_dash_or_two() {
        assert_eq!(name("-m"), Some("m"));
        assert_eq!(name("--machine"), Some("machine"));
        assert_eq!(name("-"), None);
        assert_eq!(name("--"), None);
        assert_eq!(name("disk.img"), None);
    }
}
