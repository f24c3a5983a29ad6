//! Changes the models of devices.

use super::order::{DEVICES, INTERFACE, before};
use super::{Made, Step};
use crate::DeviceKind;
use crate::libvirt::names;
use crate::xml::{New, Node, Replacement};

/// Attributes of `<model>` that only qxl has.
const QXL: [&str; 3] = ["ram", "vgamem", "vram64"];

impl<'t> Step<'t> {
    pub(super) fn device_model(&self, device: usize, model: &str) -> Result<Made, String> {
        let element = self.element(device)?;
        let kind = self.definition.devices[device].kind;
        match (kind, element.name()) {
            (DeviceKind::Disk, _) => self.disk_model(element, model),
            (DeviceKind::Network, _) => self.network_model(element, model),
            (DeviceKind::Display, _) => self.display_model(element, model),
            (DeviceKind::Controller, "controller") => self.controller_model(element, model),
            (DeviceKind::Input, _) => self.input_model(element, model),
            (DeviceKind::Sound, _) => {
                let named = SOUNDS.iter().find(|(qemu, _)| *qemu == model);
                let (_, libvirt) = named.ok_or_else(|| unknown(model, "sound device"))?;
                let edits = self.style.set_attribute(element, "model", libvirt);
                Ok(Made::of(edits).and(self.without_address(element)))
            }
            _ => {
                Err(format!("Another model for <{}> is not written here. Change it by hand.", element.name()))
            }
        }
    }

    /// Removes the address, which identifies the bus, because another model may be on another bus.
    fn without_address(&self, element: Node<'t>) -> Vec<Replacement> {
        element.child("address").map(|address| self.style.remove(address)).unwrap_or_default()
    }

    fn disk_model(&self, disk: Node<'t>, model: &str) -> Result<Made, String> {
        let optical = disk.find("@device") == Some("cdrom");
        let (bus, prefix) = match (model, optical) {
            ("virtio-blk-pci", true) => {
                return Err(
                    "virtio has no CD drive. A CD drive on a virtio-scsi controller (scsi-cd) is the \
                            nearest, or none at all once the guest is installed."
                        .into(),
                );
            }
            ("virtio-blk-pci", false) => ("virtio", "vd"),
            ("scsi-hd", false) | ("scsi-cd", true) => ("scsi", "sd"),
            ("ide-hd", false) | ("ide-cd", true) if self.is_q35() => ("sata", "sd"),
            ("ide-hd", false) | ("ide-cd", true) => ("ide", "hd"),
            ("usb-storage", _) => ("usb", "sd"),
            _ => return Err(unknown(model, "disk")),
        };
        if disk.find("@device") == Some("lun") {
            return Err(
                "A disk of device='lun' passes SCSI commands through, which only a SCSI bus has.".into()
            );
        }
        for only in ["wwn", "vendor", "product"] {
            if bus == "virtio" && disk.child(only).is_some() {
                return Err(format!(
                    "The disk has a <{only}>, which virtio disks do not have. Remove it first."
                ));
            }
        }
        let Some(target) = disk.child("target") else { return Err("The disk has no <target>.".into()) };
        let old = names::disk(disk);
        let mut edits = self.scsi_controller(bus)?;
        let mut made = Made::default();
        if let Some(dev) = target.get("dev").filter(|dev| !dev.starts_with(prefix)) {
            let new = self.free_target(prefix);
            edits.extend(self.style.set_attribute(target, "dev", &new));
            made = made.noting(format!(
                "The disk {dev} is {new} for libvirt now; jobs, backups and `virsh` commands that name it must follow."
            ));
        }
        edits.extend(self.style.set_attribute(target, "bus", bus));
        if bus == "virtio" {
            edits.extend(self.style.remove_attribute(target, "rotation_rate"));
        }
        // Only USB and SCSI disks can be removable; libvirt refuses the attribute for others.
        if !["usb", "scsi"].contains(&bus) {
            edits.extend(self.style.remove_attribute(target, "removable"));
        }
        edits.extend(self.without_address(disk));
        let seen = if bus == "virtio" { "/dev/vdX" } else { "/dev/sdX" };
        Ok(made.and(edits).noting(format!(
            "The guest sees {model} instead of {old}: it needs the driver before the next start (Windows: from the \
             virtio-win CD; Linux: in its initramfs), and names the disk {seen}. Mounts by UUID or label stay."
        )))
    }

    fn is_q35(&self) -> bool {
        self.definition.machine.kind.as_ref().is_some_and(|kind| kind.value.contains("q35"))
    }

    /// The first name with this prefix that no disk has.
    fn free_target(&self, prefix: &str) -> String {
        let devices = self.domain.child("devices");
        let taken: Vec<&str> = devices
            .into_iter()
            .flat_map(|all| all.all("disk"))
            .filter_map(|disk| disk.find("target@dev"))
            .collect();
        let letters = || (b'a'..=b'z').map(char::from);
        let one = letters().map(|last| format!("{prefix}{last}"));
        let two = letters().flat_map(|first| letters().map(move |last| format!("{prefix}{first}{last}")));
        one.chain(two).find(|name| !taken.contains(&name.as_str())).unwrap_or_else(|| format!("{prefix}aaa"))
    }

    /// A virtio-scsi controller for SCSI disks without an address, added if there is none.
    fn scsi_controller(&self, bus: &str) -> Result<Vec<Replacement>, String> {
        let Some(devices) = self.domain.child("devices").filter(|_| bus == "scsi") else {
            return Ok(Vec::new());
        };
        let first = devices.all("controller").find(|controller| {
            controller.get("type") == Some("scsi") && matches!(controller.get("index"), None | Some("0"))
        });
        match first.map(|controller| controller.get("model")) {
            Some(Some("virtio-scsi")) => Ok(Vec::new()),
            Some(_) => {
                Err("The first SCSI controller is not a virtio-scsi one. Change its model first.".into())
            }
            None => {
                let new = New::named("controller")
                    .with("type", "scsi")
                    .with("index", "0")
                    .with("model", "virtio-scsi");
                Ok(self.style.insert(devices, before(DEVICES, "lease"), &new))
            }
        }
    }

    fn network_model(&self, interface: Node<'t>, model: &str) -> Result<Made, String> {
        let libvirt = match model {
            "virtio-net-pci" => "virtio",
            "e1000" | "e1000e" | "igb" | "rtl8139" | "vmxnet3" | "pcnet" | "ne2k_pci" | "usb-net" => model,
            _ => return Err(unknown(model, "network interface")),
        };
        let old = names::interface(interface);
        let edits = match interface.child("model") {
            Some(said) => self.style.set_attribute(said, "type", libvirt),
            None => self.style.insert(
                interface,
                before(INTERFACE, "model"),
                &New::named("model").with("type", libvirt),
            ),
        };
        Ok(Made::of(edits).and(self.without_address(interface)).noting(format!(
            "The guest sees {model} instead of {old}, with the same MAC address: it needs the driver (Windows: from \
             the virtio-win CD), and may give the interface another name, so check its network configuration."
        )))
    }

    fn display_model(&self, video: Node<'t>, model: &str) -> Result<Made, String> {
        let libvirt = match model {
            "VGA" => "vga",
            "cirrus-vga" => "cirrus",
            "qxl-vga" | "qxl" => "qxl",
            "virtio-vga" | "virtio-gpu-pci" => "virtio",
            "vmware-svga" => "vmvga",
            "bochs-display" => "bochs",
            "ramfb" => "ramfb",
            _ => return Err(unknown(model, "display adapter")),
        };
        let said = video.child("model").ok_or("The <video> has no <model>.")?;
        let mut edits = self.style.set_attribute(said, "type", libvirt);
        for only in QXL.iter().filter(|_| libvirt != "qxl") {
            edits.extend(self.style.remove_attribute(said, only));
        }
        Ok(Made::of(edits)
            .and(self.without_address(video))
            .noting(format!("The guest sees {model} as another display adapter.")))
    }

    fn controller_model(&self, controller: Node<'t>, model: &str) -> Result<Made, String> {
        let kind = controller.get("type").unwrap_or_default();
        let libvirt = match (kind, model) {
            ("scsi", "virtio-scsi-pci") => "virtio-scsi",
            ("scsi", "lsi53c895a") => "lsilogic",
            ("scsi", "mptsas1068") => "lsisas1068",
            ("scsi", "megasas") => "lsisas1078",
            ("scsi", "pvscsi") => "vmpvscsi",
            ("usb", "qemu-xhci") => "qemu-xhci",
            ("usb", "nec-usb-xhci") => "nec-xhci",
            _ => return Err(unknown(model, &format!("controller of type {kind}"))),
        };
        let index = controller.get("index").unwrap_or("0");
        let companions = controller.parent().into_iter().flat_map(|devices| devices.all("controller"));
        let companions = companions
            .filter(|other| other.get("type") == Some(kind) && other.get("index").unwrap_or("0") == index);
        if companions.count() > 1 {
            return Err(format!(
                "The {kind} controller {index} is several that work together. Remove its companions first."
            ));
        }
        Ok(Made::of(self.style.set_attribute(controller, "model", libvirt))
            .and(self.without_address(controller))
            .noting(format!(
                "The guest sees {model} as another controller, and needs its driver to start from it."
            )))
    }

    fn input_model(&self, input: Node<'t>, model: &str) -> Result<Made, String> {
        let kind = input.get("type").unwrap_or_default();
        let named = if kind == "keyboard" { "kbd" } else { kind };
        let bus = if model == format!("virtio-{kind}-pci") {
            "virtio"
        } else if model == format!("usb-{named}") {
            "usb"
        } else if model == format!("ps2-{named}") && kind != "tablet" {
            "ps2"
        } else {
            return Err(unknown(model, &format!("input device of type {kind}")));
        };
        Ok(Made::of(self.style.set_attribute(input, "bus", bus)).and(self.without_address(input)))
    }
}

const SOUNDS: [(&str, &str); 6] = [
    ("intel-hda", "ich6"),
    ("ich9-intel-hda", "ich9"),
    ("AC97", "ac97"),
    ("ES1370", "es1370"),
    ("usb-audio", "usb"),
    ("virtio-sound-pci", "virtio"),
];

fn unknown(model: &str, kind: &str) -> String {
    format!("libvirt has no {kind} for QEMU's model {model:?}.")
}
