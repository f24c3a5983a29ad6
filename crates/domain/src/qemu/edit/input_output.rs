//! Backends of devices, with their queues, threads and I/O methods.

use super::super::backends::{Backends, lowest_property};
use super::super::devices::controller;
use super::super::properties::{Property, switch};
use super::conversion;
use super::editor::{Editor, Outcome, Value};
use crate::{Backend, DeviceKind};

/// The item of a virtio network interface's tap; an error for other devices and backends.
fn tap(editor: &Editor<'_>, device: usize, what: &str) -> Result<usize, String> {
    let interface = &editor.reading.definition.devices[device];
    if interface.kind != DeviceKind::Network {
        return Err(format!("{} is not a network interface. Name one.", interface.model));
    }
    if !interface.model.starts_with("virtio-net") {
        return Err(format!(
            "{} cannot have {what}. Change its model to virtio-net-pci first.",
            interface.model
        ));
    }
    let number = editor.reading.origins[device].backend.ok_or_else(|| {
        "The interface has no network behind it that is written here. Give it a -netdev tap.".to_owned()
    })?;
    match editor.item(number).value("type") {
        Some("tap") => Ok(number),
        Some("vhost-user" | "vhost-vdpa") => Err("Another process or the hardware does its work already. \
                                                  Leave it as it is."
            .to_owned()),
        Some(other) => Err(format!("-netdev {other} cannot have {what}. Make it a tap first.")),
        None => Err("The kind of its network is not set. Make it a tap.".to_owned()),
    }
}

/// Switches vhost for a network interface.
pub(super) fn vhost(editor: &mut Editor<'_>, device: usize, on: bool) -> Outcome {
    let wanted = if on { Backend::Vhost } else { Backend::Vmm };
    if editor.reading.definition.devices[device].backend.as_ref().map(|set| set.value) == Some(wanted) {
        return Ok(());
    }
    let number = tap(editor, device, "vhost")?;
    editor.set(number, "vhost", Value::Switch(on))?;
    if on {
        return Ok(());
    }
    // QEMU refuses vhost descriptors if vhost is off.
    let drops = |key: &str| matches!(key, "vhostfd" | "vhostfds" | "vhostforce");
    let dropped = editor.drop_properties(number, drops)?;
    if !dropped.is_empty() {
        editor.notes.push(format!("Dropped with vhost: {}.", dropped.join(", ")));
    }
    Ok(())
}

/// Sets the number of a device's queues.
pub(super) fn queues(editor: &mut Editor<'_>, device: usize, queues: u32) -> Outcome {
    if queues == 0 {
        return Err("A device has one queue at least. Say one or more.".to_owned());
    }
    let this = &editor.reading.definition.devices[device];
    if this.queues.as_ref().map_or(1, |set| set.value) == queues
        && (this.kind == DeviceKind::Network || this.queues.is_some())
    {
        return Ok(());
    }
    let of_option =
        editor.reading.origins[device].item.filter(|&number| editor.item(number).name == "device");
    match (this.model.as_str(), of_option) {
        (_, number) if this.kind == DeviceKind::Network => pairs(editor, device, number, queues),
        (model, Some(number)) if model.starts_with("virtio-blk") || model.starts_with("vhost-user-blk") => {
            editor.set(number, "num-queues", Value::Number(queues))
        }
        (model, Some(number)) if model.starts_with("virtio-scsi") || model.starts_with("vhost-scsi") => {
            editor.set(number, "num_queues", Value::Number(queues))
        }
        (model, None) if model.starts_with("virtio-blk") => conversion::longer(editor, device),
        (model, _) if model.starts_with("scsi-") => {
            Err("A SCSI disk has the queues of its controller. Change those of the controller.".to_owned())
        }
        (model, _) => Err(format!("{model} has no choice of queues. Change it to a virtio model first.")),
    }
}

fn pairs(editor: &mut Editor<'_>, device: usize, of_device: Option<usize>, queues: u32) -> Outcome {
    let number = tap(editor, device, "several queues")?;
    let Some(of_device) = of_device else {
        return Err("-nic and -net cannot switch on several queues of the interface. \
                    Write it with -netdev and -device."
            .to_owned());
    };
    if let Some(key) =
        ["fd", "fds", "vhostfd", "vhostfds"].into_iter().find(|key| editor.item(number).value(key).is_some())
    {
        return Err(format!(
            "The tap is handed over open ({key}=), a descriptor for each queue. Change it where QEMU is started from."
        ));
    }
    if editor.item(number).value("helper").is_some() {
        return Err("The program of helper= opens the tap, with one queue. Make a tap with `ip tuntap add ... multi_queue`, \
                    and name it by ifname= and script=no instead."
            .to_owned());
    }
    // Without a script nothing sets up a tap that QEMU makes, so it is there before. The kernel opens it only by the
    // kind that it was made as, with one queue or with several (`tun_set_iff` in `drivers/net/tun.c`).
    let tap = editor.item(number);
    let is_there = tap.value("ifname").is_some() && matches!(tap.value("script"), Some("no" | ""));
    let present = Backends::queues(editor.reading, tap).map_or(1, |set| set.value);
    if is_there && (present > 1) != (queues > 1) {
        let kind = if queues > 1 { "with" } else { "without" };
        return Err(format!(
            "The tap exists before QEMU starts (script=no), and its kind must fit. Make it {kind} multi_queue (`ip \
             tuntap add`), then set queues= of the tap and mq= of the device yourself."
        ));
    }
    editor.set(number, "queues", Value::Number(queues))?;
    if queues > 1 || editor.item(of_device).value("mq").is_some() {
        editor.set(of_device, "mq", Value::Switch(queues > 1))?;
    }
    if editor.item(of_device).value("vectors").is_some() {
        // Two for each pair, one for the configuration and one for control (`virtio_net_pci_realize`).
        editor.set(of_device, "vectors", Value::Number(queues.saturating_mul(2).saturating_add(2)))?;
    }
    Ok(())
}

/// Gives a disk an I/O thread.
pub(super) fn iothread(editor: &mut Editor<'_>, device: usize, iothread: &str) -> Outcome {
    if iothread.is_empty()
        || !iothread.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
    {
        return Err(format!(
            "{iothread:?} cannot be the name of an object. Use letters, digits, dashes and dots."
        ));
    }
    let this = &editor.reading.definition.devices[device];
    if this.iothreads.iter().any(|set| set.value == iothread) {
        return Ok(());
    }
    let device = if this.model.starts_with("scsi-") {
        let controller = controller(editor.reading, this).ok_or_else(|| {
            "The disk's SCSI controller has no I/O threads. Put it on a virtio-scsi-pci.".to_owned()
        })?;
        editor.notes.push("The I/O thread serves all disks of the SCSI controller.".to_owned());
        controller
    } else {
        device
    };
    let this = &editor.reading.definition.devices[device];
    if !["virtio-blk", "virtio-scsi"].iter().any(|family| this.model.starts_with(family)) {
        return Err(format!("{} has no I/O threads. Change its model to virtio-blk-pci first.", this.model));
    }
    let Some(number) =
        editor.reading.origins[device].item.filter(|&number| editor.item(number).name == "device")
    else {
        return conversion::longer(editor, device);
    };
    // QEMU refuses an I/O thread without an ioeventfd (`virtio_blk_vq_aio_context_init`, `virtio_scsi_dataplane_setup`).
    if editor.item(number).properties.switch("ioeventfd") == Some(false) {
        return Err("ioeventfd=off leaves the device to the main loop, and QEMU refuses an I/O thread beside it. Remove \
                    ioeventfd=off first."
            .to_owned());
    }
    // QEMU refuses both properties together (`hw/block/virtio-blk.c`).
    let maps = |property: &Property| property.key.replace('_', "-").starts_with("iothread-vq-mapping");
    if editor.item(number).properties.list.iter().any(maps) {
        return Err(
            "A list says which I/O thread serves which queue (iothread-vq-mapping). Change that list yourself."
                .to_owned(),
        );
    }
    if !editor.reading.definition.iothreads.iter().any(|thread| thread.id == iothread) {
        if editor.reading.items.iter().any(|item| item.name == "object" && item.value("id") == Some(iothread))
        {
            return Err(format!("The object {iothread} is not an I/O thread. Choose another name."));
        }
        let given = editor.given(number)?;
        editor.add_before(given, "object", &format!("iothread,id={iothread}"));
    }
    editor.set(number, "iothread", Value::Text(iothread))
}

/// Sets the I/O method of a disk.
pub(super) fn aio(editor: &mut Editor<'_>, device: usize, aio: &str) -> Outcome {
    if !matches!(aio, "threads" | "native" | "io_uring") {
        return Err(format!("QEMU has no way called {aio:?}. Say threads, native or io_uring."));
    }
    let this = &editor.reading.definition.devices[device];
    if this.kind != DeviceKind::Disk {
        return Err(format!("{} is not a disk. Name one.", this.model));
    }
    let now = this.aio.as_ref().map_or("threads", |set| set.value.as_str());
    if now == aio {
        return Ok(());
    }
    let origin = &editor.reading.origins[device];
    let backend =
        origin.backend.or_else(|| origin.item.filter(|&number| editor.item(number).name == "drive"));
    let Some(backend) = backend else {
        return if conversion::into_drive(editor, device, true)? {
            Ok(())
        } else {
            Err("What is behind the disk is not written here. Give it a -blockdev.".to_owned())
        };
    };
    let number = Backends::of(editor.reading).lowest(editor.reading, backend);
    let item = editor.item(number);
    if item.name == "blockdev" {
        let driver = lowest_property(item, "driver").map_or("no driver", |property| property.value.as_str());
        if !matches!(driver, "file" | "host_device") {
            return Err(format!("A disk of {driver} is not read from a file. Leave it as it is."));
        }
    }
    beside_file(editor, number, "aio", Value::Text(aio))?;
    if aio == "native" { direct(editor, device, number) } else { Ok(()) }
}

/// Sets a property of the block node with the file.
fn beside_file(editor: &mut Editor<'_>, number: usize, name: &str, value: Value<'_>) -> Outcome {
    let item = editor.item(number);
    if let Some(property) = lowest_property(item, name) {
        return editor.set(number, &property.key, value);
    }
    let file = lowest_property(item, "filename");
    let prefix = file.and_then(|property| property.key.strip_suffix("filename")).unwrap_or("");
    match file {
        Some(file) if item.properties.json => editor.write_beside(number, file, name, value),
        _ => editor.set(number, &format!("{prefix}{name}"), value),
    }
}

/// `aio=native` requires that the host's page cache is bypassed, or QEMU does not start (`raw_open_common`).
fn direct(editor: &mut Editor<'_>, device: usize, number: usize) -> Outcome {
    let item = editor.item(number);
    let cache = editor.reading.definition.devices[device].cache.as_ref().map(|set| set.value.as_str());
    if item.name != "blockdev" && matches!(cache, Some("none" | "directsync")) {
        return Ok(());
    }
    if lowest_property(item, "cache.direct").is_some_and(|property| switch(&property.value) == Some(true)) {
        return Ok(());
    }
    let note = "The host's page cache is bypassed now (cache.direct), because aio=native requires it.";
    editor.notes.push(note.to_owned());
    if item.name != "blockdev" {
        return editor.set(number, "cache", Value::Text("none"));
    }
    if item.properties.json
        && lowest_property(item, "cache.direct").is_none()
        && let Some(sibling) = lowest_property(item, "cache.no-flush")
    {
        return editor.write_beside(number, sibling, "direct", Value::Switch(true));
    }
    beside_file(editor, number, "cache.direct", Value::Switch(true))
}
