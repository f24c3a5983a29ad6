//! Disks of `-drive if=`, `-hda` and similar options.

use super::argument::place;
use super::backends::Backends;
use super::items::Item;
use super::reading::Reading;
use crate::{Backend, Device, DeviceKind, Set};

/// The default interface of a `-drive`: IDE on PCs (`block_default_type` of the machine).
pub(super) fn interface<'a>(reading: &Reading<'_>, item: &'a Item) -> &'a str {
    let default = if reading.definition.is_microvm() { "virtio" } else { "ide" };
    item.value("if").unwrap_or(default)
}

/// The disk of an option; `None` for `if=none` and firmware, which are not devices.
pub(super) fn device(
    reading: &Reading<'_>,
    item: &Item,
    backends: &Backends,
    number: usize,
) -> Option<Device> {
    let cdrom = item.value("media") == Some("cdrom");
    let virtio = if reading.definition.is_microvm() { "virtio-blk-device" } else { "virtio-blk-pci" };
    let model = match (item.name.as_str(), interface(reading, item)) {
        ("cdrom", _) => "ide-cd",
        ("fda" | "fdb", _) | ("drive", "floppy") => "floppy",
        ("sd", _) | ("drive", "sd") => "sd-card",
        ("drive", "virtio") => virtio,
        ("drive", "scsi") => {
            if cdrom {
                "scsi-cd"
            } else {
                "scsi-hd"
            }
        }
        ("drive", "ide") if cdrom => "ide-cd",
        ("drive", "xen") => "xen-disk",
        ("drive", "none" | "pflash" | "mtd") => return None,
        _ => "ide-hd",
    };
    let mut device = Device::new(DeviceKind::Disk, model, item.place.clone());
    device.backend = Some(Set::new(Backend::Vmm, item.place.clone()));
    if item.name == "drive" {
        device.id = item.text("id");
        device.properties = item.pairs();
        backends.describe_disk(reading, number, &mut device);
    } else {
        device.source = Some(Set::new(item.said.clone(), item.place.clone()));
    }
    Some(device)
}

/// An image without an option: the first IDE disk.
pub(super) fn image(reading: &Reading<'_>, argument: usize) -> Device {
    let image = &reading.command.arguments[argument];
    let place = place(image.written.clone(), image.line, &reading.text.bytes);
    let device = Device::new(DeviceKind::Disk, "ide-hd", place.clone());
    let backend = Some(Set::new(Backend::Vmm, place.clone()));
    Device { backend, source: Some(Set::new(image.text.clone(), place)), ..device }
}
