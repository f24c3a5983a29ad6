//! Backends of devices, with their queues and threads.

use super::order::{DOMAIN, INTERFACE, before};
use super::{Made, Step};
use crate::DeviceKind;
use crate::xml::{New, Node, Replacement};

/// The number of a libvirt I/O thread, given as `3` or, as in QEMU, `iothread3`.
pub(super) fn number(iothread: &str) -> Option<u32> {
    iothread.strip_prefix("iothread").unwrap_or(iothread).parse().ok().filter(|number| *number > 0)
}

impl<'t> Step<'t> {
    /// Sets attributes of an element's `<driver>`, which is created if it does not exist.
    fn driver(&self, element: Node<'t>, order: &[&str], attributes: &[(&str, &str)]) -> Vec<Replacement> {
        match element.child("driver") {
            Some(driver) => {
                let set = attributes.iter();
                set.flat_map(|(name, value)| self.style.set_attribute(driver, name, value)).collect()
            }
            None => {
                let new = New::named("driver");
                let new = attributes.iter().fold(new, |new, (name, value)| new.with(*name, *value));
                self.style.insert(element, order, &new)
            }
        }
    }

    /// The element of a virtio network interface with a backend on the host.
    fn tap(&self, device: usize) -> Result<Node<'t>, String> {
        let element = self.element(device)?;
        let model = &self.definition.devices[device].model;
        if self.definition.devices[device].kind != DeviceKind::Network {
            return Err(format!("The device {model} is not a network interface."));
        }
        if !model.starts_with("virtio-net") {
            return Err(format!(
                "{model} is emulated by QEMU completely; only virtio-net can have it. Change the model first."
            ));
        }
        match element.get("type") {
            Some(
                kind @ ("user" | "udp" | "server" | "client" | "mcast" | "vhostuser" | "vdpa" | "hostdev"),
            ) => Err(format!("An interface of type {kind} has no tap device that vhost could serve.")),
            _ => Ok(element),
        }
    }

    pub(super) fn vhost(&self, device: usize, on: bool) -> Result<Made, String> {
        let name = if on { "vhost" } else { "qemu" };
        Ok(Made::of(self.driver(self.tap(device)?, &[INTERFACE, &["model"]].concat(), &[("name", name)])))
    }

    pub(super) fn queues(&self, device: usize, queues: u32) -> Result<Made, String> {
        if queues == 0 {
            return Err("A device has at least one queue.".into());
        }
        let element = self.element(device)?;
        let what = &self.definition.devices[device];
        let order: Vec<&str> = match what.kind {
            DeviceKind::Network if what.model.starts_with("virtio-net") => {
                if element.get("type") == Some("user") {
                    return Err("An interface of type user has one queue.".into());
                }
                // The kernel opens a tap only by the kind that it was made as (`tun_set_iff` in `drivers/net/tun.c`).
                let present = what.queues.as_ref().map_or(1, |set| set.value);
                if element.find("target@managed") == Some("no") && (present > 1) != (queues > 1) {
                    let kind = if queues > 1 { "with" } else { "without" };
                    return Err(format!(
                        "The tap exists before libvirt starts the domain (managed='no'), and its kind must fit. Make it \
                         {kind} multi_queue (`ip tuntap add`), then set <driver queues=> yourself."
                    ));
                }
                [INTERFACE, &["model"]].concat()
            }
            DeviceKind::Disk
                if what.model.starts_with("virtio-blk") || what.model.starts_with("vhost-user-blk") =>
            {
                Vec::new()
            }
            DeviceKind::Controller if what.model.starts_with("virtio-scsi") => Vec::new(),
            DeviceKind::Disk if what.model.starts_with("scsi-") => {
                return Err("A SCSI disk has no queues of its own; its controller has.".into());
            }
            _ => return Err(format!("{} has no queues to choose; virtio devices have.", what.model)),
        };
        let number = queues.to_string();
        let made = Made::of(self.driver(element, &order, &[("queues", &number)]));
        let vcpus = self.definition.vcpus.maximum.as_ref().map_or(u32::MAX, |count| count.value);
        if queues > vcpus {
            return Ok(made.noting(format!("More queues ({queues}) than vCPUs ({vcpus}) are of no use.")));
        }
        Ok(made)
    }

    pub(super) fn iothread(&self, device: usize, iothread: &str) -> Result<Made, String> {
        let element = self.element(device)?;
        let what = &self.definition.devices[device];
        let served = match (what.kind, what.model.as_str()) {
            (DeviceKind::Disk, model) if model.starts_with("virtio-blk") => element,
            (DeviceKind::Controller, model) if model.starts_with("virtio-scsi") => element,
            (DeviceKind::Disk, model) if model.starts_with("scsi-") => self.controller_of(element)?,
            (_, model) => {
                return Err(format!(
                    "{model} is served by QEMU's main loop alone; virtio disks can have a thread."
                ));
            }
        };
        if served.find("driver@ioeventfd") == Some("off") {
            return Err(
                "QEMU refuses an I/O thread without an ioeventfd. Remove ioeventfd='off' first.".into()
            );
        }
        if served.child("driver/iothreads").is_some() {
            return Err("The disk's queues are spread over I/O threads already (<driver><iothreads>).".into());
        }
        let mut made = Made::default();
        let threads = &self.definition.iothreads;
        let taken: Vec<u32> = threads.iter().filter_map(|thread| number(&thread.id)).collect();
        let own = threads.iter().filter(|thread| !thread.unknown_to_libvirt);
        let own: Vec<u32> = own.filter_map(|thread| number(&thread.id)).collect();
        let wanted = match number(iothread) {
            Some(wanted) if taken.contains(&wanted) && !own.contains(&wanted) => {
                return Err(format!(
                    "The I/O thread iothread{wanted} is made in <qemu:commandline>, where libvirt does not know it. Name \
                     another one."
                ));
            }
            Some(wanted) => wanted,
            None => {
                let free = (1..).find(|number| !taken.contains(number)).unwrap_or(1);
                made = made.noting(format!("libvirt numbers its I/O threads: {iothread} is iothread{free}."));
                free
            }
        };
        if !own.contains(&wanted) {
            made = made.and(self.new_iothread(wanted, own.len()));
        }
        if served.index != element.index {
            made = made
                .noting("A SCSI disk is served by its controller's thread, as all disks of that controller.");
        }
        Ok(made.and(self.driver(served, &[], &[("iothread", &wanted.to_string())])))
    }

    fn controller_of(&self, disk: Node<'t>) -> Result<Node<'t>, String> {
        let index = disk.find("address@controller").unwrap_or("0");
        let devices = self.domain.child("devices").into_iter();
        let mut controllers = devices.flat_map(|devices| devices.all("controller"));
        let found = controllers.find(|controller| {
            controller.get("type") == Some("scsi") && controller.get("index").unwrap_or("0") == index
        });
        found.filter(|controller| controller.get("model").is_some_and(|model| model.starts_with("virtio"))).ok_or_else(
            || format!("The disk's SCSI controller {index} is not a virtio-scsi one, which alone can have a thread."),
        )
    }

    /// Adds an I/O thread. libvirt numbers threads from 1 unless `<iothreadids>` gives other numbers.
    fn new_iothread(&self, wanted: u32, present: usize) -> Vec<Replacement> {
        let count = (present + 1).to_string();
        let mut edits = match self.domain.child("iothreads") {
            Some(said) => self.style.set_text(said, &count),
            None => {
                let new = New::named("iothreads").saying(&count);
                self.style.insert(self.domain, before(DOMAIN, "iothreads"), &new)
            }
        };
        let id = New::named("iothread").with("id", wanted.to_string());
        match self.domain.child("iothreadids") {
            Some(ids) => edits.extend(self.style.insert(ids, &["iothread"], &id)),
            None if usize::try_from(wanted) == Ok(present + 1) => {}
            None => {
                let ids = New::named("iothreadids").holding(id);
                edits.extend(self.style.insert(self.domain, before(DOMAIN, "iothreadids"), &ids));
            }
        }
        edits
    }

    pub(super) fn aio(&self, device: usize, aio: &str) -> Result<Made, String> {
        let element = self.element(device)?;
        if self.definition.devices[device].kind != DeviceKind::Disk {
            return Err(format!("The device {} is not a disk.", self.definition.devices[device].model));
        }
        if !["native", "io_uring", "threads"].contains(&aio) {
            return Err(format!("QEMU reads disks by threads, native or io_uring, and not by {aio:?}."));
        }
        let mut attributes = vec![("io", aio)];
        let mut made = Made::default();
        let cache = element.find("driver@cache").unwrap_or("default");
        if aio == "native" && !["none", "directsync"].contains(&cache) {
            if cache != "default" {
                return Err(format!(
                    "aio=native needs cache='none' or 'directsync', and the disk has {cache:?}."
                ));
            }
            attributes.insert(0, ("cache", "none"));
            made =
                made.noting("aio=native needs cache='none', which was set as well: the host caches nothing.");
        }
        if element.child("driver").is_none() {
            attributes.insert(0, ("name", "qemu"));
        }
        Ok(made.and(self.driver(element, &[], &attributes)))
    }
}
