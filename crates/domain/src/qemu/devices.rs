//! The devices of a command: `-device` and its short forms.

use super::backends::Backends;
use super::items::Item;
use super::machine::iommu_model;
use super::models;
use super::reading::{Origin, Reading};
use super::{drives, networks};
use crate::{Backend, Device, DeviceKind, Set};

/// The most devices of one `-soundhw`: QEMU knew fewer cards.
const SOUND_CARDS: usize = 32;

/// A device from a short form.
fn of_option(item: &Item, kind: DeviceKind, model: &str) -> Device {
    Device { id: item.text("id"), properties: item.pairs(), ..Device::new(kind, model, item.place.clone()) }
}

/// Adds all devices of the command to the definition, in order.
pub(super) fn read(reading: &mut Reading<'_>, backends: &Backends) {
    let mut found = Vec::new();
    for number in 0..reading.items.len() {
        let item = &reading.items[number];
        let origin = Origin { item: Some(number), ..Origin::default() };
        match item.name.as_str() {
            "device" => found.extend(device(reading, number, backends)),
            "drive" | "hda" | "hdb" | "hdc" | "hdd" | "cdrom" | "fda" | "fdb" | "sd" => {
                found.extend(drives::device(reading, item, backends, number).map(|device| (device, origin)));
            }
            "nic" | "net" => found.extend(networks::device(reading, number, backends)),
            _ => found.extend(short(reading, item).into_iter().map(|device| (device, origin.clone()))),
        }
    }
    for &image in &reading.command.images {
        let origin = Origin { image: Some(image), ..Origin::default() };
        found.push((drives::image(reading, image), origin));
    }
    (reading.definition.devices, reading.origins) = found.into_iter().unzip();
    if backends.is_exhausted() {
        let doubt = "The backends of all devices are too long; those of the last ones were not read.";
        reading.definition.doubts.push(doubt.to_owned());
    }
    inherit(reading);
}

/// The devices of options without a separate backend.
fn short(reading: &Reading<'_>, item: &Item) -> Vec<Device> {
    let said = item.said.as_str();
    let first = said.split(',').next().unwrap_or_default();
    let one = |kind, model: &str| vec![of_option(item, kind, model)];
    match item.name.as_str() {
        "vga" => models::display(first)
            .map(|model| of_option(item, DeviceKind::Display, model))
            .into_iter()
            .collect(),
        "serial" | "parallel" if first == "none" => Vec::new(),
        "serial" | "parallel" => {
            let serial = item.name == "serial";
            let (kind, model) =
                if serial { (DeviceKind::Serial, "isa-serial") } else { (DeviceKind::Other, "isa-parallel") };
            let device = Device::new(kind, model, item.place.clone());
            vec![Device { source: Some(Set::new(said.to_owned(), item.place.clone())), ..device }]
        }
        "soundhw" => {
            let cards = said.split(',').take(SOUND_CARDS).map(models::sound);
            cards.map(|model| Device::new(DeviceKind::Sound, model, item.place.clone())).collect()
        }
        "audio" => item
            .value("model")
            .map(|card| of_option(item, DeviceKind::Sound, models::sound(card)))
            .into_iter()
            .collect(),
        "usbdevice" => {
            let name = first.split(':').next().unwrap_or_default();
            let name = if name == "keyboard" { "kbd" } else { name };
            let model = format!("usb-{name}");
            one(models::kind(&model), &model)
        }
        "usb" => one(DeviceKind::Controller, usb_controller(reading)),
        "balloon" if first == "virtio" => one(DeviceKind::Other, "virtio-balloon-pci"),
        "virtfs" => one(DeviceKind::Other, "virtio-9p-pci"),
        "watchdog" => one(DeviceKind::Other, first),
        _ => Vec::new(),
    }
}

fn usb_controller(reading: &Reading<'_>) -> &'static str {
    if reading.definition.is_q35() { "ich9-usb-ehci1" } else { "piix3-usb-uhci" }
}

/// A `-device`; `None` for an IOMMU.
fn device(reading: &Reading<'_>, number: usize, backends: &Backends) -> Option<(Device, Origin)> {
    let item = &reading.items[number];
    let driver = item.value("driver").unwrap_or_default();
    if driver.is_empty() || iommu_model(driver).is_some() {
        return None;
    }
    let model = models::full(driver);
    let mut origin = Origin { item: Some(number), ..Origin::default() };
    let mut device = of_option(item, models::kind(model), model);
    device.iothreads = iothreads(reading, item);
    device.queues = reading.number(item, "num-queues");
    match device.kind {
        DeviceKind::Assigned => {
            device.source = reading.set(item, "host").or_else(|| reading.set(item, "sysfsdev"));
        }
        DeviceKind::Network => {
            origin.backend = item.value("netdev").and_then(|name| backends.network(name));
            if let Some(backend) = origin.backend {
                networks::join(reading, item, backends, backend, &mut device);
            }
        }
        _ => {
            origin.backend = item.value("drive").and_then(|name| backends.disk(name));
            if let Some(backend) = origin.backend {
                backends.describe_disk(reading, backend, &mut device);
            }
        }
    }
    let is_vhost_user =
        device.model.starts_with("vhost-user-") || device.resource.as_deref() == Some("vhost-user");
    if is_vhost_user && !backends.is_exhausted() {
        let backend = origin.backend.map_or(item, |backend| &reading.items[backend]);
        device.reconnects = reconnects(reading, backend, backends);
    }
    let node = device.resource.as_deref().filter(|_| device.kind == DeviceKind::Disk).unwrap_or_default();
    if let Some(backend) = backend_of(model).or_else(|| backend_of(node)) {
        device.backend = Some(Set::new(backend, item.place.clone()));
    } else if device.backend.is_none() && device.kind == DeviceKind::Disk {
        device.backend = Some(Set::new(Backend::Vmm, item.place.clone()));
    }
    Some((device, origin))
}

/// The backend, if the model of the device or the driver of its block node determines it.
fn backend_of(model: &str) -> Option<Backend> {
    if model.starts_with("vhost-user-") || model == "virtio-blk-vhost-user" {
        Some(Backend::VhostUser)
    } else if model.starts_with("vhost-vdpa-") || model == "virtio-blk-vhost-vdpa" {
        Some(Backend::Vdpa)
    } else if model.starts_with("vhost-scsi") || model.starts_with("vhost-vsock") {
        Some(Backend::Vhost)
    } else {
        None
    }
}

/// See [`Device::reconnects`].
fn reconnects(reading: &Reading<'_>, item: &Item, backends: &Backends) -> Option<bool> {
    let number = backends.character(item.value("chardev")?).filter(|&number| backends.may_read(number))?;
    let socket = &reading.items[number];
    let set = |key: &str| reading.number(socket, key).is_some_and(|set| set.value > 0);
    let connects = socket.value("backend") == Some("socket") && socket.value("path").is_some();
    connects
        .then(|| socket.properties.switch("server") == Some(true) || set("reconnect") || set("reconnect-ms"))
}

/// The I/O threads of a device: one, or one for each of some queues (QEMU 9.0 and later).
fn iothreads(reading: &Reading<'_>, item: &Item) -> Vec<Set<String>> {
    let mapped = item.properties.list.iter().filter(|property| {
        property.key.starts_with("iothread-vq-mapping.") && property.key.ends_with(".iothread")
    });
    let mapped: Vec<_> =
        mapped.map(|property| Set::new(property.value.clone(), reading.place(item, property))).collect();
    if mapped.is_empty() { reading.set(item, "iothread").into_iter().collect() } else { mapped }
}

/// The index of the controller of a SCSI disk.
pub(super) fn controller(reading: &Reading<'_>, device: &Device) -> Option<usize> {
    let bus = device.properties.iter().rev().find(|(key, _)| key == "bus").map(|(_, bus)| bus.as_str());
    let name = bus.map(|bus| bus.split('.').next().unwrap_or(bus));
    reading.definition.devices.iter().position(|other| {
        other.model.starts_with("virtio-scsi")
            && name.is_none_or(|name| other.id.as_deref().is_none_or(|id| id == name))
    })
}

/// SCSI disks are served by the I/O threads of their controller.
fn inherit(reading: &mut Reading<'_>) {
    // Limit the lookups: each searches all devices, and a hostile command line may have many of both.
    const LOOKED_UP: usize = 1024;
    // Limit the copies as well, in bytes.
    let mut left = 16_usize << 20;
    let disks: Vec<usize> = (0..reading.definition.devices.len())
        .filter(|&number| reading.definition.devices[number].model.starts_with("scsi-"))
        .take(LOOKED_UP)
        .collect();
    for disk in disks {
        let device = &reading.definition.devices[disk];
        if let (true, Some(controller)) = (device.iothreads.is_empty(), controller(reading, device)) {
            let threads = &reading.definition.devices[controller].iothreads;
            let size = |set: &Set<String>| size_of::<Set<String>>() + set.value.len() + set.place.text.len();
            let Some(rest) = left.checked_sub(threads.iter().map(size).sum()) else { break };
            left = rest;
            reading.definition.devices[disk].iothreads = threads.clone();
        }
    }
}
