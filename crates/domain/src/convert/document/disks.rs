//! `<disk>`.

use super::Writing;
use super::buses::property;
use crate::Device;
use crate::qemu::given::GivenOption;
use crate::xml::New;

/// Block drivers that access the host's side of a disk.
const PROTOCOLS: [&str; 3] = ["file", "host_device", "host_cdrom"];
/// Block drivers between a format and what is above it.
const FILTERS: [&str; 5] = ["throttle", "copy-on-read", "preallocate", "blkdebug", "blkverify"];

impl<'a> Writing<'a> {
    /// The block nodes from one down to its file; marks them as taken.
    pub(super) fn chain(&self, node: &str) -> Vec<&'a GivenOption> {
        // Longer chains are loops.
        const LONGEST: usize = 16;
        let mut found: Vec<&GivenOption> = Vec::new();
        let mut next = Some(node.to_owned());
        while let Some(name) = next.filter(|_| found.len() < LONGEST) {
            let option = self.named("blockdev", "node-name", &name);
            found.extend(option);
            next = option.and_then(|option| option.get("file")).map(str::to_owned);
        }
        found
    }

    pub(super) fn disk(&mut self, device: &Device) {
        let plain = device.model.trim_end_matches("-non-transitional").trim_end_matches("-transitional");
        let (bus, kind) = match plain {
            "virtio-blk-pci" | "virtio-blk-device" => ("virtio", "disk"),
            "scsi-hd" => ("scsi", "disk"),
            "scsi-cd" => ("scsi", "cdrom"),
            "scsi-block" => ("scsi", "lun"),
            "ide-hd" | "ide-cd" => {
                (if self.q35 { "sata" } else { "ide" }, if plain == "ide-cd" { "cdrom" } else { "disk" })
            }
            "usb-storage" => ("usb", "disk"),
            "floppy" => ("fdc", "floppy"),
            _ => return,
        };
        // The machine's own empty drive; a domain without it differs only in that drive.
        let origin = self.origin(device);
        let drive = property(device, "drive");
        let back: Vec<&GivenOption> = match drive {
            Some(drive) => {
                let option = self.named("drive", "id", drive);
                option.into_iter().chain(self.chain(drive)).collect()
            }
            None => origin.into_iter().collect(),
        };
        let Some((source_type, source)) = self.disk_source(device, &back) else { return };
        if let Some(origin) = origin {
            origin.used.set(true);
        }
        let mut disk = New::named("disk").with("type", source_type).with("device", kind);
        if device.model.ends_with("transitional") {
            let revision =
                if device.model.ends_with("-non-transitional") { "non-transitional" } else { "transitional" };
            disk = disk.with("model", format!("virtio-{revision}"));
        }
        disk = disk.holding(self.disk_driver(device, &back, source.is_some(), kind));
        disk.children.extend(source);
        let (prefix, address) = self.disk_place(device, bus, kind);
        disk = disk.holding(New::named("target").with("dev", self.target(prefix, &address)).with("bus", bus));
        if back
            .iter()
            .any(|option| matches!(option.get("read-only").or(option.get("readonly")), Some("on" | "true")))
            || kind == "cdrom"
        {
            disk = disk.holding(New::named("readonly"));
        }
        if property(device, "share-rw").is_some_and(|value| matches!(value, "on" | "true")) {
            disk = disk.holding(New::named("shareable"));
        }
        if let Some(serial) = property(device, "serial") {
            disk = disk.holding(New::named("serial").saying(serial));
        }
        disk.children.extend(boot(device));
        disk.children.extend(address);
        let said = [
            "drive",
            "num-queues",
            "queue-size",
            "iothread",
            "serial",
            "share-rw",
            "werror",
            "rerror",
            "rotation_rate",
        ];
        self.unsaid(device, &said);
        self.devices.push(disk);
    }

    /// The type of the source, and its element; `None` if libvirt has no such source.
    fn disk_source(&mut self, device: &Device, back: &[&GivenOption]) -> Option<(&'static str, Option<New>)> {
        let lowest = back.last().copied();
        let driver = lowest.and_then(|option| option.get("file.driver").or_else(|| option.get("driver")));
        let path = device.source.as_ref().map(|set| set.value.as_str());
        let remote =
            matches!(driver, Some("rbd" | "nbd" | "iscsi" | "http" | "https" | "ssh" | "gluster" | "nvme"))
                || path.is_some_and(|path| {
                    path.contains("://") || path.starts_with("json:") || path.starts_with("rbd:")
                });
        if remote {
            // All of its options are passed to QEMU unchanged.
            for option in back {
                option.used.set(false);
            }
            let origin = self.origin(device).map(|option| option.said.clone()).unwrap_or_default();
            self.note(format!(
                "The disk {origin} is passed through: libvirt's element for its source is not written here."
            ));
            return None;
        }
        Some(match path {
            None => ("file", None),
            Some(path)
                if path.starts_with("/dev/") || matches!(driver, Some("host_device" | "host_cdrom")) =>
            {
                ("block", Some(New::named("source").with("dev", path)))
            }
            Some(path) => {
                if !path.starts_with('/') {
                    self.note(format!("libvirt takes whole paths: put the folder before {path}."));
                }
                ("file", Some(New::named("source").with("file", path)))
            }
        })
    }

    fn disk_driver(&mut self, device: &Device, back: &[&GivenOption], filled: bool, kind: &str) -> New {
        // Nodes may be nested.
        let drivers = back.iter().filter(|option| option.name != "drive").flat_map(|option| {
            ["driver", "file.driver", "file.file.driver"].into_iter().filter_map(|key| option.get(key))
        });
        let format = back.iter().find_map(|option| option.get("format").filter(|_| option.name == "drive"));
        let format = format.or_else(|| {
            drivers.clone().find(|driver| !PROTOCOLS.contains(driver) && !FILTERS.contains(driver))
        });
        for filter in drivers.filter(|driver| FILTERS.contains(driver)) {
            self.loss(
                format!("-blockdev driver={filter}"),
                "libvirt puts filters over a disk by itself: <iotune>, <driver copy_on_read=>.",
            );
        }
        let path = device.source.as_ref().map_or("", |set| set.value.as_str());
        let format = format.map(str::to_owned).unwrap_or_else(|| {
            let guess = if path.ends_with(".qcow2") { "qcow2" } else { "raw" };
            // Block nodes without a format have that of their file.
            if filled && kind == "disk" && !back.iter().any(|option| option.name == "blockdev") {
                self.note(format!(
                    "No format is said of {path}, and libvirt guesses none; it was taken for {guess}."
                ));
            }
            guess.to_owned()
        });
        let mut driver = New::named("driver").with("name", "qemu").with("type", format);
        // The settings of an empty drive may not fit its next medium.
        if let Some(cache) = device.cache.as_ref().filter(|_| filled) {
            driver = driver.with("cache", &cache.value);
        }
        if let Some(writes) = property(device, "werror") {
            let policy = if writes == "enospc" { "enospace" } else { writes };
            driver = driver.with("error_policy", policy);
            if let Some(reads) = property(device, "rerror").filter(|reads| *reads != writes) {
                driver = driver.with("rerror_policy", reads);
            }
        }
        if let Some(aio) = device.aio.as_ref().filter(|_| filled) {
            driver = driver.with("io", &aio.value);
        }
        if device.model.starts_with("virtio-blk") {
            if let Some(queues) = &device.queues {
                driver = driver.with("queues", queues.value.to_string());
            }
        }
        for (key, attribute) in [("discard", "discard"), ("detect-zeroes", "detect_zeroes")] {
            if let Some(value) = back.iter().find_map(|option| option.get(key)) {
                let value = match value {
                    "on" if key == "discard" => "unmap",
                    "off" if key == "discard" => "ignore",
                    value => value,
                };
                driver = driver.with(attribute, value);
            }
        }
        // The threads of SCSI disks belong to their controller.
        if !device.model.starts_with("scsi-") {
            match &device.iothreads[..] {
                [] => {}
                [one] => driver = driver.with("iothread", self.thread(&one.value)),
                several => {
                    let mut all = New::named("iothreads");
                    for one in several {
                        all = all.holding(New::named("iothread").with("id", self.thread(&one.value)));
                    }
                    driver = driver.holding(all);
                }
            }
        }
        driver
    }

    /// The number of an I/O thread.
    pub(super) fn thread(&self, name: &str) -> String {
        self.threads
            .iter()
            .find(|(other, _)| other == name)
            .map_or_else(|| "1".to_owned(), |(_, number)| number.to_string())
    }

    /// The prefix of its name in the guest, and its address.
    fn disk_place(&self, device: &Device, bus: &str, kind: &str) -> (&'static str, Option<New>) {
        let said = |name: &str| property(device, name);
        let drive = |controller: usize, bus: &str, target: &str, unit: &str| {
            New::named("address")
                .with("type", "drive")
                .with("controller", controller.to_string())
                .with("bus", bus)
                .with("target", target)
                .with("unit", unit)
        };
        match bus {
            "virtio" => ("vd", self.buses.address(device)),
            "usb" => ("sd", self.buses.address(device)),
            "scsi" => {
                let controller =
                    said("bus").and_then(|bus| self.buses.bus(bus)).map_or(0, |(_, number)| number);
                let address = said("bus").map(|_| {
                    drive(controller, "0", said("scsi-id").unwrap_or("0"), said("lun").unwrap_or("0"))
                });
                ("sd", address)
            }
            "sata" => {
                let own = said("bus").and_then(|bus| bus.strip_prefix("ide."));
                let other = said("bus")
                    .and_then(|bus| bus.rsplit_once('.'))
                    .and_then(|(id, unit)| Some((self.buses.number(id)?, unit)));
                let address = match (own, other) {
                    (Some(unit), _) => Some(drive(0, "0", "0", unit)),
                    (None, Some((controller, unit))) => Some(drive(controller, "0", "0", unit)),
                    _ => None,
                };
                ("sd", address)
            }
            "ide" => {
                let bus = said("bus").and_then(|bus| bus.strip_prefix("ide."));
                // `-cdrom` is the first drive of the second channel.
                let second = kind == "cdrom" && bus.is_none();
                let address = bus.map(|bus| drive(0, bus, "0", said("unit").unwrap_or("0")));
                ("hd", address.or_else(|| second.then(|| drive(0, "1", "0", "0"))))
            }
            _ => ("fd", None),
        }
    }

    /// A free name in the guest: the one that corresponds to its address, if it has one.
    fn target(&mut self, prefix: &str, address: &Option<New>) -> String {
        let letter = |number: usize| {
            let last = char::from(b'a' + u8::try_from(number % 26).unwrap_or(0));
            match number / 26 {
                0 => format!("{prefix}{last}"),
                more => {
                    format!("{prefix}{}{last}", char::from(b'a' + u8::try_from((more - 1) % 26).unwrap_or(0)))
                }
            }
        };
        let part = |name: &str| {
            let attributes = &address.as_ref()?.attributes;
            attributes.iter().find(|(other, _)| other == name)?.1.parse::<usize>().ok()
        };
        let wanted = match prefix {
            "hd" => part("bus").map(|bus| bus * 2 + part("unit").unwrap_or(0)),
            "sd" => part("unit").filter(|_| part("controller") == Some(0) && part("target") == Some(0)),
            _ => None,
        };
        let mut names = wanted.into_iter().chain(0..702).map(letter);
        let name = names.find(|name| !self.targets.contains(name)).unwrap_or_else(|| letter(0));
        self.targets.push(name.clone());
        name
    }
}

/// `<boot order=>`: libvirt counts from 1, QEMU from 0.
pub(super) fn boot(device: &Device) -> Option<New> {
    let order: u32 = property(device, "bootindex")?.parse().ok()?;
    Some(New::named("boot").with("order", order.max(1).to_string()))
}
