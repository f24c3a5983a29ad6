//! Default devices of the machine.
//!
//! The rules are those of `qemu_disable_default_devices`, `default_list` and `default_drive` in QEMU's `system/vl.c`.

use super::reading::{Origin, Reading};
use crate::{Device, DeviceKind, Place};

/// Drivers that replace a default device, as `-device` or `-global`.
const SERIAL: &[&str] = &["isa-serial"];
const PARALLEL: &[&str] = &["isa-parallel"];
const FLOPPY: &[&str] = &["isa-fdc", "floppy"];
const CDROM: &[&str] = &["ide-cd", "ide-hd", "ide-drive", "scsi-cd", "scsi-hd"];
const DISPLAY: &[&str] = &[
    "VGA",
    "isa-vga",
    "cirrus-vga",
    "isa-cirrus-vga",
    "vmware-svga",
    "qxl-vga",
    "virtio-vga",
    "virtio-vga-gl",
    "ati-vga",
    "vhost-user-vga",
];

/// Adds the default devices after those of the text.
pub(super) fn add(reading: &mut Reading<'_>) {
    let definition = &reading.definition;
    let (q35, i440fx, microvm) = (definition.is_q35(), definition.is_i440fx(), definition.is_microvm());
    if reading.has(&["nodefaults"]) || !(q35 || i440fx || microvm) {
        return;
    }
    let drivers = |names: &[&str]| {
        let devices =
            reading.items.iter().filter(|item| item.name == "device").filter_map(|item| item.value("driver"));
        let mut globals = definition.globals.iter().map(|global| global.value.0.as_str());
        devices.into_iter().any(|driver| names.contains(&driver))
            || globals.any(|driver| names.contains(&driver))
    };
    let mut found = Vec::new();
    let mut push = |kind, model: &str| found.push(Device::new(kind, model, Place::default()));
    if !microvm && !reading.has(&["vga"]) && !drivers(DISPLAY) {
        push(DeviceKind::Display, "VGA");
    }
    if !reading.has(&["net", "nic", "netdev"])
        && let Some(model) = definition.default_network_model()
    {
        push(DeviceKind::Network, model);
    }
    if !microvm && !drivers(CDROM) && !second_channel_taken(reading) {
        push(DeviceKind::Disk, "ide-cd");
    }
    if i440fx && !drivers(FLOPPY) && !reading.has(&["fda"]) {
        push(DeviceKind::Disk, "floppy");
    }
    let serial = definition.machine.properties.iter().rev().find(|set| set.value.0 == "isa-serial");
    let serial = !microvm || serial.is_none_or(|set| set.value.1 != "off");
    if serial && !reading.has(&["serial"]) && !drivers(SERIAL) {
        push(DeviceKind::Serial, "isa-serial");
    }
    if !microvm && !reading.has(&["parallel"]) && !drivers(PARALLEL) {
        push(DeviceKind::Other, "isa-parallel");
    }
    reading.origins.extend(found.iter().map(|_: &Device| Origin::default()));
    reading.definition.devices.append(&mut found);
}

/// Tests whether the default CD drive's place, index 2 of the IDE interface, is in use.
fn second_channel_taken(reading: &Reading<'_>) -> bool {
    const PLACE: u32 = 2;
    let units = if reading.definition.is_q35() { 1 } else { 2 };
    let mut used = std::collections::BTreeSet::new();
    for item in &reading.items {
        let place = match item.name.as_str() {
            "hda" => Some(0),
            "hdb" => Some(1),
            "hdc" | "cdrom" => Some(2),
            "drive" if super::drives::interface(reading, item) == "ide" => {
                let number = |key| item.properties.number(key);
                match (number("index"), number("bus"), number("unit")) {
                    (Some(index), _, _) => Some(index),
                    // The first free place; only places up to the CD drive's matter.
                    (None, None, None) => (0..=PLACE).find(|place| !used.contains(place)),
                    (None, bus, unit) => {
                        Some(bus.unwrap_or(0).saturating_mul(units).saturating_add(unit.unwrap_or(0)))
                    }
                }
            }
            _ => None,
        };
        used.extend(place);
    }
    used.contains(&PLACE)
}
