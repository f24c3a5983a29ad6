//! The disk from which a guest starts.

use super::super::items::Item;
use super::super::reading::Reading;
use super::model::{is_cdrom, slot};
use crate::{Device, DeviceKind};
use std::collections::HashSet;

/// The lowest free place of each family: on PCI the chipset, the display and the network come before.
const FREE: [u32; 5] = [0, 3, 3, 3, 3];

/// The file of the hard disk from which the guest starts if only the kinds and the places of disks decide it. SeaBIOS
/// sorts disks without `bootindex` by their drivers, then by their places (`bootentry_add` in `src/boot.c`). A slot that
/// QEMU chooses is taken to be the lowest free one.
pub(super) fn disk<'a>(reading: &'a Reading<'_>) -> Option<&'a str> {
    let devices = &reading.definition.devices;
    let mut disks: Vec<usize> = (0..devices.len()).filter(|&number| is_hard(&devices[number])).collect();
    let has_index =
        |&number: &usize| devices[number].properties.iter().any(|(key, _)| key.as_str() == "bootindex");
    if reading.has(&["kernel"]) || disks.iter().any(has_index) {
        return None;
    }
    disks.sort_by_key(|&number| turn(reading, number));
    let virtio_scsi = devices.iter().any(|device| device.model.starts_with("virtio-scsi"));
    let (mut taken, mut free) = (HashSet::new(), FREE);
    let mut first: Option<((usize, u32), usize)> = None;
    for number in disks {
        let family = family(&devices[number].model, virtio_scsi);
        let place = place(reading, number).unwrap_or_else(|| {
            while taken.contains(&(family, free[family])) {
                free[family] += 1;
            }
            free[family]
        });
        taken.insert((family, place));
        if first.is_none_or(|(least, _)| (family, place) < least) {
            first = Some(((family, place), number));
        }
    }
    let (_, number) = first?;
    let named = item(reading, number).and_then(|item| item.value("drive"));
    devices[number].source.as_ref().map(|set| set.value.as_str()).or(named)
}

fn is_hard(device: &Device) -> bool {
    let other = ["floppy", "nvdimm", "virtio-pmem"];
    device.kind == DeviceKind::Disk
        && !is_cdrom(device)
        && !other.iter().any(|name| device.model.starts_with(name))
}

/// The rank of a disk's driver in SeaBIOS (`DTYPE_` in `src/block.h`).
fn family(model: &str, virtio_scsi: bool) -> usize {
    match model {
        _ if model.starts_with("ide-") => 0,
        _ if model.starts_with("scsi-") && virtio_scsi => 1,
        _ if model.starts_with("virtio-blk") || model.starts_with("vhost-user-blk") => 2,
        _ if model.starts_with("usb-") => 3,
        _ => FREE.len() - 1,
    }
}

/// The option of a device; `None` for an image alone.
fn item<'a>(reading: &'a Reading<'_>, device: usize) -> Option<&'a Item> {
    reading.origins[device].item.map(|number| &reading.items[number])
}

fn is_ide(reading: &Reading<'_>, device: usize) -> bool {
    reading.definition.devices[device].model.starts_with("ide-")
}

/// The turn in which QEMU makes a device: the machine's IDE disks come before `-device`, and other disks of `-drive` after
/// it (`drive_new` in `blockdev.c` adds an option to the list of `-device`). Those in JSON come last
/// (`qemu_create_cli_devices` in `system/vl.c`).
fn turn(reading: &Reading<'_>, device: usize) -> u8 {
    let of_option = item(reading, device).filter(|item| item.name == "device");
    match of_option {
        Some(item) if item.properties.json => 2,
        _ => u8::from(of_option.is_some() == is_ide(reading, device)),
    }
}

/// The place on the bus, if it is given.
fn place(reading: &Reading<'_>, device: usize) -> Option<u32> {
    // Buses other than the first one come after it.
    const OTHER_BUS: u32 = 0x100;
    // An image alone is -hda.
    let Some(item) = item(reading, device) else { return Some(0) };
    let number = |key| item.properties.number(key);
    let units = if reading.definition.is_q35() { 1 } else { 2 };
    let at = |bus: u32, unit: Option<u32>| bus.saturating_mul(units).saturating_add(unit.unwrap_or(0));
    let bus = item.value("bus");
    match (item.name.as_str(), is_ide(reading, device)) {
        ("hda", _) => Some(0),
        ("hdb", _) => Some(1),
        ("hdc", _) => Some(2),
        ("hdd", _) => Some(3),
        ("drive", true) => number("index").or_else(|| match (number("bus"), number("unit")) {
            (None, None) => None,
            (bus, unit) => Some(at(bus.unwrap_or(0), unit)),
        }),
        ("device", true) => {
            let (name, bus) = bus?.rsplit_once('.')?;
            let before = if name == "ide" { 0 } else { OTHER_BUS };
            Some(at(bus.parse().ok()?, number("unit")).saturating_add(before))
        }
        ("device", false) => {
            let slot = item.value("addr").and_then(slot);
            let is_first = matches!(bus, None | Some("pci.0" | "pcie.0"));
            if is_first { slot } else { Some(OTHER_BUS.saturating_add(slot.unwrap_or(0))) }
        }
        _ => None,
    }
}
