//! Buses: controllers, addresses on them, and controllers that libvirt adds itself.

use super::{Properties, Writing};
use crate::convert::seen::Part;
use crate::libvirt::names;

/// A number in hexadecimal or decimal digits.
pub(super) fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

impl<'t> Writing<'t, '_> {
    /// `bus=` and `addr=` of a device with a PCI or USB address.
    pub(super) fn address(&self, element: Part<'t, '_>, properties: Properties) -> Properties {
        let Some(address) = element.child("address") else { return properties };
        match address.get("@type") {
            Some("pci") => {
                address.get("@domain");
                let part = |name: &str| address.get(name).and_then(number);
                let (Some(bus), Some(slot)) = (part("@bus"), part("@slot")) else { return properties };
                let function = part("@function").unwrap_or(0);
                let addr =
                    if function == 0 { format!("{slot:#x}") } else { format!("{slot:#x}.{function:#x}") };
                let properties = properties.with("bus", self.pci_bus(bus)).with("addr", addr);
                properties.maybe("multifunction", address.get("@multifunction"))
            }
            Some("usb") => {
                let bus = address.get("@bus").unwrap_or("0");
                let bus = if bus == "0" { "usb.0".to_owned() } else { format!("usb{bus}.0") };
                properties.with("bus", bus).maybe("port", address.get("@port"))
            }
            _ => properties,
        }
    }

    /// QEMU's name of a PCI bus: the machine's own, or that of the controller with this index.
    fn pci_bus(&self, index: u32) -> String {
        if index == 0 {
            return if self.q35 { "pcie.0" } else { "pci.0" }.to_owned();
        }
        let controllers =
            self.domain.child("devices").map(|devices| devices.all("controller")).unwrap_or_default();
        let named = controllers.into_iter().find(|one| {
            one.node.get("type") == Some("pci") && one.node.get("index").and_then(number) == Some(index)
        });
        named.and_then(|one| one.get("alias@name")).map_or_else(|| format!("pci.{index}"), str::to_owned)
    }

    pub(super) fn controllers(&mut self, devices: Part<'t, '_>) {
        let machine = if self.q35 { "q35" } else { "i440fx" };
        let (buses, others): (Vec<_>, Vec<_>) =
            devices.all("controller").into_iter().partition(|one| one.node.get("type") == Some("pci"));
        let mut used: Vec<(&str, u32)> = buses
            .iter()
            .chain(&others)
            .filter_map(|one| Some((one.node.get("type")?, one.node.get("index").and_then(number)?)))
            .collect();
        // QEMU requires a bus before its devices.
        for element in buses.into_iter().chain(others) {
            let kind = element.get("@type").unwrap_or_default();
            let index = match element.get("@index").and_then(number) {
                Some(index) => index,
                // libvirt assigns the first free one.
                None => {
                    let free = (0..).find(|index| !used.contains(&(kind, *index))).unwrap_or(0);
                    used.push((kind, free));
                    free
                }
            };
            element.get("@model");
            element.get("model@name");
            let Some(model) = names::controller(element.node, machine) else {
                // It is a part of the machine, and so is its address.
                element.ignore_all();
                continue;
            };
            let id = match (kind, index) {
                ("usb", 0) => "usb".to_owned(),
                ("pci", _) => format!("pci.{index}"),
                _ => format!("{kind}{index}"),
            };
            let mut properties = Properties::of(&model);
            properties = match kind {
                "usb" => usb(element, &model, properties),
                "pci" => properties
                    .maybe("chassis", chassis(element, &model, index))
                    .maybe("chassis_nr", element.get("target@chassisNr"))
                    .maybe("port", element.get("target@port"))
                    .maybe("bus_nr", element.get("target@busNr"))
                    .maybe("numa_node", element.get("target/node")),
                "scsi" if model.starts_with("virtio") => properties
                    .maybe("num_queues", element.get("driver@queues"))
                    .maybe("cmd_per_lun", element.get("driver@cmd_per_lun"))
                    .maybe("max_sectors", element.get("driver@max_sectors"))
                    .maybe("iothread", element.get("driver@iothread").map(|id| format!("iothread{id}"))),
                "virtio-serial" => properties.maybe("max_ports", element.get("@ports")),
                _ => properties,
            };
            let companion = kind == "usb" && element.has("master");
            let alias = element.get("alias@name").map(str::to_owned);
            if companion {
                // A companion shares the bus of the first controller with its index, and has no name.
                let first = element.get("master@startport").unwrap_or("0").to_owned();
                let properties = properties.with("masterbus", format!("{id}.0")).with("firstport", first);
                let properties = self.address(element, properties);
                self.option("-device", properties.0);
            } else {
                self.device(element, alias.as_deref().unwrap_or(&id), properties);
            }
        }
        self.missing_controllers(devices);
    }

    /// Controllers that libvirt adds to a domain whose devices need them.
    fn missing_controllers(&mut self, devices: Part<'t, '_>) {
        let has = |kind: &str| devices.node.all("controller").any(|one| one.get("type") == Some(kind));
        let uses = |kind: &str, path: &str| {
            devices
                .node
                .children()
                .any(|device| device.name() != "controller" && device.find(path) == Some(kind))
        };
        let usb = uses("usb", "@bus")
            || uses("usb", "address@type")
            || devices.node.all("disk").any(|disk| names::disk_bus(disk) == "usb")
            || devices.node.all("hostdev").any(|device| device.get("type") == Some("usb"));
        if usb && !has("usb") {
            let model = if self.q35 { "qemu-xhci" } else { "piix3-usb-uhci" };
            self.added(model, "usb");
        }
        if uses("virtio", "target@type") && !has("virtio-serial") {
            self.added("virtio-serial-pci", "virtio-serial0");
        }
        if devices.node.all("disk").any(|disk| names::disk_bus(disk) == "scsi") && !has("scsi") {
            self.added("virtio-scsi-pci", "scsi0");
        }
    }

    fn added(&mut self, model: &str, id: &str) {
        self.option("-device", format!("{model},id={id}"));
        self.note(format!(
            "libvirt adds a controller that devices need and the XML does not have: {model}, {id}."
        ));
    }
}

/// A root port needs its own chassis.
fn chassis(element: Part<'_, '_>, model: &str, index: u32) -> Option<String> {
    let said = element.get("target@chassis").map(str::to_owned);
    said.or_else(|| ["pcie-root-port", "ioh3420"].contains(&model).then(|| index.to_string()))
}

fn usb(element: Part<'_, '_>, model: &str, properties: Properties) -> Properties {
    let ports = element.get("@ports");
    match ports.filter(|_| model.ends_with("xhci")) {
        Some(ports) => properties.with("p2", ports).with("p3", ports),
        None => properties,
    }
}
