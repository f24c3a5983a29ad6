//! QEMU's names of device models: their kinds and short forms.

use crate::DeviceKind;

/// The full name of a model, which may have a short form (`qdev_alias_table` in `system/qdev-monitor.c`).
pub(super) fn full(name: &str) -> &str {
    match name {
        "virtio-blk" => "virtio-blk-pci",
        "virtio-net" => "virtio-net-pci",
        "virtio-scsi" => "virtio-scsi-pci",
        "virtio-balloon" => "virtio-balloon-pci",
        "virtio-rng" => "virtio-rng-pci",
        "virtio-serial" => "virtio-serial-pci",
        "virtio-gpu" => "virtio-gpu-pci",
        "virtio-gpu-gl" => "virtio-gpu-gl-pci",
        "virtio-9p" => "virtio-9p-pci",
        "virtio-crypto" => "virtio-crypto-pci",
        "virtio-keyboard" => "virtio-keyboard-pci",
        "virtio-mouse" => "virtio-mouse-pci",
        "virtio-tablet" => "virtio-tablet-pci",
        "virtio-input-host" => "virtio-input-host-pci",
        "virtio-sound" => "virtio-sound-pci",
        "vhost-scsi" => "vhost-scsi-pci",
        "e1000-82540em" => "e1000",
        "ahci" => "ich9-ahci",
        "lsi" => "lsi53c895a",
        other => other,
    }
}

/// The model of `-net nic,model=` and `-nic model=`.
pub(super) fn network(name: &str) -> &str {
    if name == "virtio" { "virtio-net-pci" } else { full(name) }
}

/// The model of `-vga`; `None` for none.
pub(super) fn display(name: &str) -> Option<&str> {
    Some(match name {
        "std" => "VGA",
        "cirrus" => "cirrus-vga",
        "vmware" => "vmware-svga",
        "qxl" => "qxl-vga",
        "virtio" => "virtio-vga",
        "none" => return None,
        other => other,
    })
}

/// The model of a sound card in `-soundhw`.
pub(super) fn sound(name: &str) -> &str {
    match name {
        "hda" => "intel-hda",
        "ac97" => "AC97",
        "es1370" => "ES1370",
        "virtio" => "virtio-sound-pci",
        "pcspk" => "isa-pcspk",
        other => other,
    }
}

const NETWORK: &[&str] = &[
    "e1000",
    "rtl8139",
    "pcnet",
    "ne2k",
    "i82",
    "vmxnet",
    "igb",
    "tulip",
    "usb-net",
    "virtio-net",
    "spapr-vlan",
    "lan9118",
    "smc91c111",
    "xen-net",
];
const DISPLAY: &[&str] = &[
    "VGA",
    "cirrus-vga",
    "isa-vga",
    "isa-cirrus-vga",
    "qxl",
    "vmware-svga",
    "virtio-vga",
    "virtio-gpu",
    "bochs-display",
    "ati-vga",
    "secondary-vga",
    "ramfb",
    "vhost-user-gpu",
    "vhost-user-vga",
];
const DISK: &[&str] = &[
    "virtio-blk",
    "vhost-user-blk",
    "ide-hd",
    "ide-cd",
    "ide-drive",
    "ide-cf",
    "scsi-hd",
    "scsi-cd",
    "scsi-block",
    "scsi-generic",
    "scsi-disk",
    "nvme",
    "usb-storage",
    "usb-bot",
    "usb-uas",
    "floppy",
    "sd-card",
    "xen-disk",
    "nvdimm",
    "virtio-pmem",
];
const CONTROLLER: &[&str] = &[
    "virtio-scsi",
    "vhost-scsi",
    "vhost-user-scsi",
    "lsi53c",
    "megasas",
    "mpt",
    "pvscsi",
    "am53c974",
    "dc390",
    "ich9-ahci",
    "piix",
    "ich9-usb",
    "ich9-ehci",
    "ich9-uhci",
    "nec-usb-xhci",
    "qemu-xhci",
    "usb-ehci",
    "pci-ohci",
    "usb-hub",
    "pci-bridge",
    "pcie-root-port",
    "pcie-pci-bridge",
    "pxb",
    "ioh3420",
    "x3130",
    "xio3130",
    "i82801b11-bridge",
    "isa-ide",
    "isa-fdc",
    "sdhci-pci",
    "usb-ccid",
    "virtio-serial",
    "xen-platform",
];
const SERIAL: &[&str] = &[
    "isa-serial",
    "pci-serial",
    "usb-serial",
    "virtconsole",
    "virtserialport",
    "isa-debugcon",
    "usb-braille",
];
const SOUND: &[&str] = &[
    "intel-hda",
    "ich9-intel-hda",
    "hda-",
    "AC97",
    "ES1370",
    "sb16",
    "adlib",
    "gus",
    "cs4231a",
    "usb-audio",
    "virtio-sound",
    "isa-pcspk",
];
const INPUT: &[&str] = &[
    "usb-tablet",
    "usb-mouse",
    "usb-kbd",
    "usb-wacom",
    "virtio-keyboard",
    "virtio-mouse",
    "virtio-tablet",
    "virtio-input",
    "virtio-multitouch",
    "vhost-user-input",
    "i8042",
    "vmmouse",
];
const ASSIGNED: &[&str] = &[
    "vfio-pci",
    "vfio-user-pci",
    "vfio-ap",
    "vfio-ccw",
    "vfio-platform",
    "usb-host",
    "pci-assign",
    "kvm-pci-assign",
];

/// The kind of a model.
pub(super) fn kind(model: &str) -> DeviceKind {
    let one_of = |names: &[&str]| names.iter().any(|name| model.starts_with(name));
    if one_of(ASSIGNED) {
        // A host's USB device is behind the VMM's USB controller, which raises the interrupts.
        if model == "usb-host" { DeviceKind::Other } else { DeviceKind::Assigned }
    } else if one_of(&["i82801b11"]) {
        DeviceKind::Controller
    } else if one_of(DISK) {
        DeviceKind::Disk
    } else if one_of(NETWORK) {
        DeviceKind::Network
    } else if one_of(DISPLAY) {
        DeviceKind::Display
    } else if one_of(CONTROLLER) {
        DeviceKind::Controller
    } else if one_of(SERIAL) {
        DeviceKind::Serial
    } else if one_of(SOUND) {
        DeviceKind::Sound
    } else if one_of(INPUT) {
        DeviceKind::Input
    } else {
        DeviceKind::Other
    }
}
