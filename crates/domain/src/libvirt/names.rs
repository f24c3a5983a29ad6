//! QEMU's names of the devices of libvirt's elements (libvirt `qemu_command.c`, `qemu_domain.c`).

use crate::xml::Node;

/// libvirt's default model of an interface on x86 (`qemuDomainDefaultNetModel`).
const DEFAULT_NETWORK: &str = "rtl8139";

/// The name of a virtio device, which contains its bus and its virtio revision.
pub(crate) fn virtio(node: Node<'_>, base: &str) -> String {
    let model = node.find("@model").or_else(|| node.find("model@type")).unwrap_or_default();
    let bus = match node.find("address@type") {
        Some("ccw") => return format!("{base}-ccw"),
        Some("virtio-mmio") => return format!("{base}-device"),
        _ => "-pci",
    };
    match model.strip_prefix("virtio-") {
        Some(revision @ ("transitional" | "non-transitional")) => format!("{base}{bus}-{revision}"),
        _ => format!("{base}{bus}"),
    }
}

/// The bus of a disk: as given, or by the name in the guest (libvirt `virDiskNameToBusDeviceIndex`).
pub(crate) fn disk_bus<'t>(disk: Node<'t>) -> &'t str {
    disk.find("target@bus").unwrap_or_else(|| match disk.find("target@dev").unwrap_or_default().get(..2) {
        Some("vd") => "virtio",
        Some("sd") => "scsi",
        Some("fd") => "fdc",
        Some("xv") => "xen",
        Some("ub") => "usb",
        _ => "ide",
    })
}

pub(crate) fn disk(disk: Node<'_>) -> String {
    let optical = disk.find("@device") == Some("cdrom");
    let kind = if optical { "cd" } else { "hd" };
    match (disk_bus(disk), disk.find("@type")) {
        ("virtio", Some("vhostuser")) => virtio(disk, "vhost-user-blk"),
        ("virtio", Some("vhostvdpa")) => virtio(disk, "virtio-blk-vhost-vdpa"),
        ("virtio", _) => virtio(disk, "virtio-blk"),
        ("scsi", _) if disk.find("@device") == Some("lun") => "scsi-block".into(),
        ("scsi", _) => format!("scsi-{kind}"),
        ("ide" | "sata", _) => format!("ide-{kind}"),
        ("fdc", _) => "floppy".into(),
        ("usb", _) => "usb-storage".into(),
        ("nvme", _) => "nvme-ns".into(),
        ("xen", _) => "xen-disk".into(),
        ("sd", _) => "sd-card".into(),
        (other, _) => other.into(),
    }
}

pub(crate) fn interface(interface: Node<'_>) -> String {
    if interface.find("@type") == Some("hostdev") {
        return "vfio-pci".into();
    }
    match interface.find("model@type").unwrap_or(DEFAULT_NETWORK) {
        model if model == "virtio" || model.starts_with("virtio-") && model.ends_with("transitional") => {
            virtio(interface, "virtio-net")
        }
        "netfront" => "xen-net-device".into(),
        model => model.into(),
    }
}

/// The name of a controller; `None` if it is part of the machine.
pub(crate) fn controller(controller: Node<'_>, machine: &str) -> Option<String> {
    let model = controller.find("@model");
    let first = matches!(controller.find("@index"), None | Some("0"));
    let q35 = machine.contains("q35");
    Some(match (controller.find("@type")?, model) {
        ("usb", Some("none")) | ("pci", Some("pcie-root" | "pci-root")) | ("isa", _) => return None,
        // libvirt's default model depends on the machine; piix3's is the fallback.
        ("usb", None | Some("piix3-uhci")) => "piix3-usb-uhci".into(),
        ("usb", Some("piix4-uhci")) => "piix4-usb-uhci".into(),
        ("usb", Some("ehci")) => "usb-ehci".into(),
        ("usb", Some("vt82c686b-uhci")) => "vt82c686b-usb-uhci".into(),
        ("usb", Some("pci-ohci")) => "pci-ohci".into(),
        ("usb", Some("nec-xhci")) => "nec-usb-xhci".into(),
        ("usb", Some("qemu-xhci")) => "qemu-xhci".into(),
        ("usb", Some(model)) if model.starts_with("ich9-") => model.replacen("ich9-", "ich9-usb-", 1),
        ("scsi", Some("virtio-scsi" | "virtio-transitional" | "virtio-non-transitional")) => {
            virtio(controller, "virtio-scsi")
        }
        ("scsi", None | Some("auto" | "lsilogic")) => "lsi53c895a".into(),
        ("scsi", Some("lsisas1068")) => "mptsas1068".into(),
        ("scsi", Some("lsisas1078")) => "megasas".into(),
        ("scsi", Some("vmpvscsi")) => "pvscsi".into(),
        ("scsi", Some("ncr53c90")) => "esp".into(),
        ("virtio-serial", _) => virtio(controller, "virtio-serial"),
        ("sata", _) if first && q35 => return None,
        ("sata", _) => "ich9-ahci".into(),
        ("ide", _) if first && !q35 => return None,
        ("ide", _) => "piix3-ide".into(),
        ("fdc", _) if !q35 => return None,
        ("fdc", _) => "isa-fdc".into(),
        ("ccid", _) => "usb-ccid".into(),
        ("nvme", _) => "nvme".into(),
        ("pci", Some("pci-bridge")) => "pci-bridge".into(),
        ("pci", Some("dmi-to-pci-bridge")) => "i82801b11-bridge".into(),
        ("pci", Some("pcie-to-pci-bridge")) => "pcie-pci-bridge".into(),
        ("pci", Some("pcie-switch-upstream-port")) => "x3130-upstream".into(),
        ("pci", Some("pcie-switch-downstream-port")) => "xio3130-downstream".into(),
        ("pci", Some("pci-expander-bus")) => "pxb".into(),
        ("pci", Some("pcie-expander-bus")) => "pxb-pcie".into(),
        // `<model name=>` selects QEMU's model; `pcie-root-port` is libvirt's choice for new domains.
        ("pci", Some("pcie-root-port")) => {
            controller.find("model@name").unwrap_or("pcie-root-port").to_owned()
        }
        (_, Some(model)) => model.into(),
        (kind, None) => kind.into(),
    })
}

/// The name of a display adapter; the first one, or the one marked as primary, has VGA registers.
pub(crate) fn video(video: Node<'_>, primary: bool) -> Option<String> {
    let accelerated = video.find("model/acceleration@accel3d") == Some("yes");
    let suffix = if accelerated { "-gl" } else { "" };
    if video.find("driver@name") == Some("vhostuser") {
        return Some(if primary { "vhost-user-vga".into() } else { "vhost-user-gpu-pci".into() });
    }
    Some(match video.find("model@type")? {
        "none" => return None,
        "vga" => "VGA".into(),
        "cirrus" => "cirrus-vga".into(),
        "vmvga" => "vmware-svga".into(),
        "bochs" => "bochs-display".into(),
        "qxl" if primary => "qxl-vga".into(),
        "virtio" if primary && video.find("address@type") != Some("ccw") => format!("virtio-vga{suffix}"),
        "virtio" => virtio(video, &format!("virtio-gpu{suffix}")),
        other => other.into(),
    })
}

pub(crate) fn sound(sound: Node<'_>) -> String {
    match sound.find("@model").unwrap_or("ich6") {
        "ich6" => "intel-hda".into(),
        "ich9" => "ich9-intel-hda".into(),
        "ac97" => "AC97".into(),
        "es1370" => "ES1370".into(),
        "usb" => "usb-audio".into(),
        "virtio" => "virtio-sound-pci".into(),
        other => other.into(),
    }
}

pub(crate) fn input(input: Node<'_>) -> String {
    let kind = input.find("@type").unwrap_or("mouse");
    let bus = input.find("@bus").unwrap_or(if kind == "tablet" { "usb" } else { "ps2" });
    match (kind, bus) {
        ("evdev", _) => "input-linux".into(),
        ("passthrough", _) => virtio(input, "virtio-input-host"),
        ("keyboard", "usb") => "usb-kbd".into(),
        ("keyboard", "ps2") => "ps2-kbd".into(),
        (kind, "virtio") => virtio(input, &format!("virtio-{kind}")),
        (kind, bus) => format!("{bus}-{kind}"),
    }
}

/// The name of a serial line, parallel port, console or channel.
pub(crate) fn character(device: Node<'_>) -> String {
    let target = device.find("target@type");
    match (device.name(), target) {
        ("serial", Some("usb-serial")) => "usb-serial".into(),
        ("serial", Some("pci-serial")) => "pci-serial".into(),
        ("serial", Some("isa-debug")) => "isa-debugcon".into(),
        ("serial", _) => device.find("target/model@name").unwrap_or("isa-serial").to_owned(),
        ("parallel", _) => "isa-parallel".into(),
        ("console", Some("virtio")) => "virtconsole".into(),
        ("channel", Some("virtio")) => "virtserialport".into(),
        (_, other) => other.unwrap_or("isa-serial").to_owned(),
    }
}

/// The names of all other devices.
pub(crate) fn other(device: Node<'_>) -> Option<String> {
    let model = device.find("@model");
    Some(match (device.name(), model) {
        ("memballoon", Some("none")) => return None,
        ("memballoon", Some("xen")) => "xen-balloon".into(),
        ("memballoon", _) => virtio(device, "virtio-balloon"),
        // Part of the south bridge, enabled by `-global ICH9-LPC.noreboot=off`.
        ("watchdog", Some("itco")) => return None,
        ("watchdog", Some(model)) => model.into(),
        ("rng", Some("random")) => "rng-random".into(),
        ("rng", _) => virtio(device, "virtio-rng"),
        ("vsock", _) => virtio(device, "vhost-vsock"),
        ("tpm", Some("tpm-spapr-proxy")) => "spapr-tpm-proxy".into(),
        ("tpm", model) => model.unwrap_or("tpm-tis").into(),
        ("filesystem", _) if device.find("driver@type") == Some("virtiofs") => {
            virtio(device, "vhost-user-fs")
        }
        ("filesystem", _) if device.find("driver@type") == Some("mtp") => "usb-mtp".into(),
        ("filesystem", _) => virtio(device, "virtio-9p"),
        ("crypto", _) => virtio(device, "virtio-crypto"),
        ("shmem", _) => device.find("model@type").unwrap_or("ivshmem").to_owned(),
        ("memory", Some("dimm")) => "pc-dimm".into(),
        ("memory", Some("virtio-mem" | "virtio-pmem")) => format!("{}-pci", model?),
        ("memory", Some("sgx-epc")) => return None,
        ("memory", Some(model)) => model.into(),
        ("panic", Some("hyperv" | "pseries" | "s390")) => return None,
        ("panic", Some("pvpanic")) => "pvpanic-pci".into(),
        ("panic", _) => "pvpanic".into(),
        ("redirdev", _) => "usb-redir".into(),
        ("hub", _) => "usb-hub".into(),
        ("smartcard", _) if device.find("@mode") == Some("passthrough") => "ccid-card-passthru".into(),
        ("smartcard", _) => "ccid-card-emulated".into(),
        ("pstore", _) => "acpi-erst".into(),
        _ => return None,
    })
}

/// A device of the host.
pub(crate) fn assigned(device: Node<'_>) -> String {
    let model = device.find("@model");
    match device.find("@type") {
        Some("usb") => "usb-host".into(),
        Some("scsi") => "scsi-generic".into(),
        Some("scsi_host") => virtio(device, "vhost-scsi"),
        Some("mdev") => model.unwrap_or("vfio-pci").into(),
        _ => "vfio-pci".into(),
    }
}
