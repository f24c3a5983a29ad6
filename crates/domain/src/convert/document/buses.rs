//! Controllers with libvirt's numbers, and addresses on them.

use crate::xml::New;
use crate::{Definition, Device};

/// libvirt's type and model (if any) of QEMU's controller.
pub(super) fn controller(model: &str) -> Option<(&'static str, Option<&str>)> {
    let plain = model.trim_end_matches("-non-transitional").trim_end_matches("-transitional");
    let plain = plain.strip_suffix("-device").map_or_else(|| plain.to_owned(), |base| format!("{base}-pci"));
    let revision = if model.ends_with("-non-transitional") {
        Some("virtio-non-transitional")
    } else if model.ends_with("-transitional") {
        Some("virtio-transitional")
    } else {
        None
    };
    Some(match plain.as_str() {
        "virtio-scsi-pci" => ("scsi", revision.or(Some("virtio-scsi"))),
        "lsi53c895a" => ("scsi", Some("lsilogic")),
        "mptsas1068" => ("scsi", Some("lsisas1068")),
        "megasas" => ("scsi", Some("lsisas1078")),
        "pvscsi" => ("scsi", Some("vmpvscsi")),
        "qemu-xhci" => ("usb", Some("qemu-xhci")),
        "nec-usb-xhci" => ("usb", Some("nec-xhci")),
        "piix3-usb-uhci" => ("usb", Some("piix3-uhci")),
        "piix4-usb-uhci" => ("usb", Some("piix4-uhci")),
        "usb-ehci" => ("usb", Some("ehci")),
        "virtio-serial-pci" => ("virtio-serial", revision),
        "ich9-ahci" => ("sata", None),
        "isa-fdc" => ("fdc", None),
        "usb-ccid" => ("ccid", None),
        "pcie-root-port" | "ioh3420" => ("pci", Some("pcie-root-port")),
        "pci-bridge" => ("pci", Some("pci-bridge")),
        "pcie-pci-bridge" => ("pci", Some("pcie-to-pci-bridge")),
        "i82801b11-bridge" => ("pci", Some("dmi-to-pci-bridge")),
        "x3130-upstream" => ("pci", Some("pcie-switch-upstream-port")),
        "xio3130-downstream" => ("pci", Some("pcie-switch-downstream-port")),
        "pxb-pcie" => ("pci", Some("pcie-expander-bus")),
        _ => return None,
    })
}

/// The controllers of a definition.
#[derive(Debug, Default)]
pub(super) struct Buses {
    /// The name, type and number of each.
    known: Vec<(String, &'static str, usize)>,
    q35: bool,
}

impl Buses {
    pub(super) fn of(definition: &Definition) -> Self {
        let mut found = Self { known: Vec::new(), q35: definition.is_q35() };
        for device in &definition.devices {
            let (Some((kind, _)), Some(id)) = (controller(&device.model), &device.id) else { continue };
            let count = found.known.iter().filter(|(_, other, _)| *other == kind).count();
            // The first PCI bus and q35's first SATA controller are part of the machine.
            let own = kind == "pci" || kind == "sata" && found.q35;
            found.known.push((id.clone(), kind, count + usize::from(own)));
        }
        found
    }

    /// The number of the controller with that name.
    pub(super) fn number(&self, id: &str) -> Option<usize> {
        self.known.iter().find(|(name, _, _)| name == id).map(|(_, _, number)| *number)
    }

    /// Type and number of the bus in `bus=`: `scsi0.0`, `pci.3`, `pcie.0`.
    pub(super) fn bus(&self, bus: &str) -> Option<(&'static str, usize)> {
        if bus == "pcie.0" || bus == "pci.0" {
            return Some(("pci", 0));
        }
        let named = |id: &str| self.known.iter().find(|(name, _, _)| name == id);
        let found = named(bus).or_else(|| named(bus.rsplit_once('.')?.0));
        found.map(|(_, kind, number)| (*kind, *number))
    }

    /// The `<address>` of a PCI or USB device.
    pub(super) fn address(&self, device: &Device) -> Option<New> {
        let said = |name: &str| property(device, name);
        if device.model.starts_with("virtio-") && device.model.ends_with("-device") {
            return Some(New::named("address").with("type", "virtio-mmio"));
        }
        match said("bus").and_then(|bus| self.bus(bus)) {
            Some(("pci", bus)) => {
                let addr = said("addr")?;
                let (slot, function) = addr.split_once('.').unwrap_or((addr, "0"));
                // Both are hexadecimal, with or without a leading 0x.
                let digits = |text: &str| u32::from_str_radix(text.trim_start_matches("0x"), 16).ok();
                let address = New::named("address")
                    .with("type", "pci")
                    .with("domain", "0x0000")
                    .with("bus", format!("0x{bus:02x}"))
                    .with("slot", format!("0x{:02x}", digits(slot)?))
                    .with("function", format!("0x{:x}", digits(function)?));
                Some(match said("multifunction") {
                    Some("on" | "true") => address.with("multifunction", "on"),
                    _ => address,
                })
            }
            Some(("usb", bus)) => {
                let port = said("port")?;
                Some(
                    New::named("address").with("type", "usb").with("bus", bus.to_string()).with("port", port),
                )
            }
            _ => None,
        }
    }
}

/// The value of a device's property.
pub(super) fn property<'d>(device: &'d Device, name: &str) -> Option<&'d str> {
    let same = |other: &str| other.replace('_', "-") == name.replace('_', "-");
    device.properties.iter().rev().find(|(other, _)| same(other)).map(|(_, value)| value.as_str())
}
