//! Changes the model of a device.

use super::super::drives;
use super::super::items::Item;
use super::super::machine::iommu_model;
use super::super::models::{self, full, kind};
use super::conversion;
use super::editor::{Editor, Outcome, Value};
use crate::{Device, DeviceKind};

/// Properties of every device: those of `-device` itself and of PCI devices (`pci_props` in `hw/pci/pci.c`).
const ALL: &[&str] = &[
    "driver",
    "id",
    "addr",
    "multifunction",
    "romfile",
    "rombar",
    "romsize",
    "acpi-index",
    "failover_pair_id",
];
/// Properties of all network interfaces (`DEFINE_NIC_PROPERTIES`), and their boot order.
const NETWORK: &[&str] = &["netdev", "mac", "bootindex", "bus"];
/// Properties of all disks (`DEFINE_BLOCK_PROPERTIES`), and their names.
const DISK: &[&str] = &[
    "drive",
    "bootindex",
    "serial",
    "logical_block_size",
    "physical_block_size",
    "min_io_size",
    "opt_io_size",
    "discard_granularity",
    "write-cache",
    "share-rw",
    "werror",
    "rerror",
    "account-invalid",
    "account-failed",
];
/// Properties of all display adapters.
const DISPLAY: &[&str] = &["edid", "xres", "yres", "xmax", "ymax", "bus", "refresh_rate"];

/// Properties that a model keeps from another one of its kind.
fn keeps(kind: DeviceKind, key: &str) -> bool {
    let own = match kind {
        DeviceKind::Network => NETWORK,
        DeviceKind::Disk => DISK,
        DeviceKind::Display => DISPLAY,
        _ => &[],
    };
    let same = |name: &&str| super::super::properties::same_name(name, key);
    ALL.iter().chain(own).any(same)
}

/// Sets the model of a device.
pub(super) fn change(editor: &mut Editor<'_>, device: usize, model: &str) -> Outcome {
    let model = full(model);
    let old = &editor.reading.definition.devices[device];
    let origin = &editor.reading.origins[device];
    if old.model == model {
        return Ok(());
    }
    if model.is_empty() || model.contains([',', '=', '{', '$']) || iommu_model(model).is_some() {
        return Err(format!(
            "{model:?} is not a model of a device like this one. `-device help` lists them."
        ));
    }
    if old.kind != kind(model) {
        return Err(format!(
            "{} cannot become {model}: they are not for the same purpose. Choose another model.",
            old.model
        ));
    }
    if is_cdrom(old) {
        return Err(format!(
            "{} holds CDs, which {model} cannot change. Put the drive on a virtio-scsi-pci controller, as scsi-cd.",
            old.model
        ));
    }
    let Some(number) = origin.item else {
        return if origin.image.is_some() { disk(editor, device, model) } else { own(editor, device, model) };
    };
    match editor.item(number).name.as_str() {
        "device" => of_device(editor, number, device, model),
        "nic" | "net" => editor.set(number, "model", Value::Text(model)),
        "vga" => display(editor, number, model),
        "drive" | "hda" | "hdb" | "hdc" | "hdd" => disk(editor, device, model),
        name => Err(format!("-{name} leaves no choice of the model. Write the device with -device.")),
    }
}

/// Tests whether a disk is a drive for CDs.
pub(super) fn is_cdrom(device: &Device) -> bool {
    device.model.ends_with("-cd")
        || device.properties.iter().any(|(key, value)| key == "media" && value == "cdrom")
}

fn of_device(editor: &mut Editor<'_>, number: usize, device: usize, model: &str) -> Outcome {
    let old = &editor.reading.definition.devices[device];
    let (from, to) = (bus(&old.model), bus(model));
    if to == "scsi" {
        return Err(format!(
            "{model} hangs on a SCSI controller. Choose virtio-blk-pci, or write both with -device."
        ));
    }
    let moves = from != to;
    let kind = old.kind;
    let dropped = editor.drop_properties(number, |key| {
        let own = match kind {
            // Models of one family have the same properties.
            DeviceKind::Network => old.model.starts_with("virtio-net") && model.starts_with("virtio-net"),
            DeviceKind::Disk => old.model.starts_with("virtio-blk") && model.starts_with("virtio-blk"),
            _ => false,
        };
        let place = key == "addr" || key == "bus" || key == "multifunction";
        if place { moves } else { !own && !keeps(kind, key) }
    })?;
    if !dropped.is_empty() {
        let lacks = format!("{model} takes none of these properties of {}, which were dropped", old.model);
        editor.notes.push(format!("{lacks}: {}.", dropped.join(", ")));
    }
    if moves
        && to == "pci"
        && let Some(slot) = free_slot(editor)
    {
        editor.set(number, "addr", Value::Text(&slot))?;
    }
    editor.set(number, "driver", Value::Text(model))
}

/// The last slot of the first PCI bus that no device names. QEMU gives a device without an address the first free slot,
/// which may be one that a later device names. `None` if no device names a slot: then QEMU chooses.
fn free_slot(editor: &Editor<'_>) -> Option<String> {
    // Slots of the chipset: LPC at 1f, USB at 1a and 1d, sound at 1b (QEMU `hw/i386/pc_q35.c`).
    const LAST: u32 = 0x1e;
    const CHIPSET: [u32; 3] = [0x1a, 0x1b, 0x1d];
    let devices = editor.reading.items.iter().filter(|item| item.name == "device");
    let taken: Vec<u32> = devices.filter_map(|item| slot(item.value("addr")?)).collect();
    // The text already contains the changes before this one.
    let free = |slot: &u32| !taken.contains(slot) && !CHIPSET.contains(slot);
    if taken.is_empty() { None } else { (1..=LAST).rev().find(free).map(|slot| format!("{slot:#x}")) }
}

/// The slot of a PCI address: `0x1e`, `1e.0`.
pub(super) fn slot(addr: &str) -> Option<u32> {
    let slot = addr.split('.').next().unwrap_or(addr);
    u32::from_str_radix(slot.trim_start_matches("0x"), 16).ok()
}

/// The bus of a model.
fn bus(model: &str) -> &'static str {
    match model {
        _ if model.ends_with("-device") => "virtio",
        _ if model.starts_with("ide-") => "ide",
        _ if model.starts_with("scsi-") => "scsi",
        _ if model.starts_with("usb-") => "usb",
        _ if model.starts_with("isa-") || model == "ne2k_isa" => "isa",
        "floppy" => "floppy",
        "sd-card" => "sd",
        _ => "pci",
    }
}

/// A disk of `-drive`, `-hda` or of an image alone.
fn disk(editor: &mut Editor<'_>, device: usize, model: &str) -> Outcome {
    let interface = match model {
        "virtio-blk-pci" | "virtio-blk-device" => "virtio",
        "ide-hd" => "ide",
        other => {
            return Err(format!(
                "-drive has no disk of model {other}. Choose virtio-blk-pci, or write it with -device."
            ));
        }
    };
    let old = editor.reading.definition.devices[device].model.as_str();
    if !matches!(old, "ide-hd" | "scsi-hd" | "virtio-blk-pci" | "virtio-blk-device") {
        return Err(format!("{old} cannot become {model}. Write the disk with -drive and -device."));
    }
    // All of these options are for IDE.
    if conversion::into_drive(editor, device, interface == "ide")? {
        return Ok(());
    }
    let Some(number) = editor.reading.origins[device].item else { return Ok(()) };
    let moves = drives::interface(editor.reading, editor.item(number)) != interface;
    if moves {
        // QEMU gives the disk the first unit that no option before it has (`drive_new` in `blockdev.c`).
        let named = |item: &Item| {
            let other = item.name == "drive" && drives::interface(editor.reading, item) == interface;
            other && ["index", "unit"].iter().any(|key| item.value(key).is_some())
        };
        if editor.reading.items[number + 1..].iter().any(named) {
            return Err(format!(
                "A later disk with if={interface} names its place, which QEMU could give to this one. Remove index= or \
                 unit= there first."
            ));
        }
        editor.set(number, "if", Value::Text(interface))?;
    }
    let drops = |key: &str| matches!(key, "bus" | "unit") || (moves && key == "index");
    let dropped = editor.drop_properties(number, drops)?;
    if !dropped.is_empty() {
        let lost = dropped.join(" and ");
        editor.notes.push(format!("Dropped, as the disk's place at the old interface: {lost}."));
    }
    Ok(())
}

/// The value of `-vga` for a model.
fn vga(model: &str) -> Option<&'static str> {
    ["std", "cirrus", "vmware", "qxl", "virtio"].into_iter().find(|word| models::display(word) == Some(model))
}

fn display(editor: &mut Editor<'_>, number: usize, model: &str) -> Outcome {
    let word = vga(model)
        .ok_or_else(|| format!("-vga has no word for {model}. Write it with -device and -vga none."))?;
    editor.set(number, "vga", Value::Text(word))
}

/// Replaces a default device of the machine by an option.
fn own(editor: &mut Editor<'_>, device: usize, model: &str) -> Outcome {
    let old = &editor.reading.definition.devices[device];
    match (old.kind, vga(model)) {
        (DeviceKind::Display, Some(word)) => editor.add_last("vga", word),
        // The default network of a VM.
        (DeviceKind::Network, _) => editor.add_last("nic", &format!("user,model={model}")),
        _ => {
            return Err(format!(
                "The machine brings {} along. Leave it out with -nodefaults, and write the devices wanted with -device.",
                old.model
            ));
        }
    }
    Ok(())
}
