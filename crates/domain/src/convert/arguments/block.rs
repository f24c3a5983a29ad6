//! Disks: `-blockdev` for the host's side, `-device` for the guest's.

use super::controllers::number;
use super::{Properties, Writing};
use crate::convert::seen::Part;
use crate::libvirt::names;

impl<'t> Writing<'t, '_> {
    pub(super) fn disks(&mut self, devices: Part<'t, '_>) {
        let mut first = [true; 3];
        for disk in devices.all("disk") {
            let kind = disk.get("@device").unwrap_or("disk");
            let (number, boot) = match kind {
                "cdrom" => (1, "cdrom"),
                "floppy" => (2, "fd"),
                _ => (0, "hd"),
            };
            let order = self.boot_order(boot).filter(|_| std::mem::take(&mut first[number]));
            self.disk(disk, kind, order);
        }
    }

    fn disk(&mut self, disk: Part<'t, '_>, kind: &str, order: Option<usize>) {
        let model = names::disk(disk.node);
        for path in ["@type", "target@bus", "target@tray", "@model", "driver@name", "driver@type"] {
            disk.get(path);
        }
        let read_only = disk.has("readonly") || kind == "cdrom";
        // The XML of a running domain shows the image's own header here.
        disk.ignore("backingStore");
        disk.get("source@index");
        let dev = disk.get("target@dev").unwrap_or("disk").to_owned();
        let id = disk.get("alias@name").map_or_else(|| dev.clone(), str::to_owned);
        let mut device = Properties::of(&model);
        if model.starts_with("vhost-user-blk") {
            let path = disk.get("source@path").unwrap_or_default();
            disk.get("source@type");
            self.option(
                "-chardev",
                Properties::of("socket").with("id", format!("chr-{id}")).with("path", path).0,
            );
            device = device.with("chardev", format!("chr-{id}"));
        } else {
            match self.nodes(disk, kind, &dev, read_only) {
                Ok(Some(node)) => device = device.with("drive", node),
                Ok(None) => {}
                Err(why) => return self.loss(disk, &why),
            }
        }
        device = self.place(disk, &model, &dev, device);
        if model.starts_with("virtio-blk") || model.starts_with("vhost-user-blk") {
            device = device.maybe("num-queues", disk.get("driver@queues"));
            device = device.maybe("queue-size", disk.get("driver@queue_size"));
        }
        device = device.maybe("iothread", disk.get("driver@iothread").map(|id| format!("iothread{id}")));
        device = device.maybe("serial", disk.get("serial")).maybe("wwn", disk.get("wwn"));
        device = device.maybe("logical_block_size", disk.get("blockio@logical_block_size"));
        device = device.maybe("physical_block_size", disk.get("blockio@physical_block_size"));
        device = device.maybe("rotation_rate", disk.get("target@rotation_rate"));
        if matches!(kind, "disk") && !model.starts_with("vhost-user") {
            device = match disk.get("driver@cache") {
                Some("none" | "writeback" | "unsafe") => device.with("write-cache", "on"),
                Some("writethrough" | "directsync") => device.with("write-cache", "off"),
                _ => device,
            };
        }
        if let Some(policy) = disk.get("driver@error_policy") {
            let writes = if policy == "enospace" { "enospc" } else { policy };
            let reads = disk.get("driver@rerror_policy").unwrap_or(if policy == "enospace" {
                "report"
            } else {
                policy
            });
            device = device.with("werror", writes).with("rerror", reads);
        }
        if disk.has("shareable") {
            device = device.with("share-rw", "on");
        }
        if disk.get("boot@order").is_none() {
            device = device.maybe("bootindex", order);
        }
        let mapped = disk.node.child("driver/iothreads").is_some();
        self.device(disk, &id, device);
        if mapped {
            self.spread(disk);
        }
    }

    /// Queues over several threads can be expressed only in JSON (QEMU 9.0).
    fn spread(&mut self, disk: Part<'t, '_>) {
        let Some(written) = self.out.arguments.pop() else { return };
        let plain = written.split(',').enumerate().map(|(position, part)| {
            let (name, value) =
                if position == 0 { ("driver", part) } else { part.split_once('=').unwrap_or((part, "on")) };
            (name.to_owned(), serde_json::Value::from(value))
        });
        let mut object: serde_json::Map<String, serde_json::Value> = plain.collect();
        for name in ["num-queues", "bootindex"] {
            if let Some(value) = object.get(name).and_then(|value| value.as_str()?.parse::<u64>().ok()) {
                object.insert(name.to_owned(), value.into());
            }
        }
        let threads = disk.child("driver/iothreads").map(|all| all.all("iothread")).unwrap_or_default();
        let mapping: Vec<_> = threads
            .iter()
            .map(|thread| {
                let name = format!("iothread{}", thread.get("@id").unwrap_or_default());
                let queues = thread.all("queue");
                let queues: Vec<u64> =
                    queues.iter().filter_map(|queue| queue.get("@id")?.parse::<u64>().ok()).collect();
                match queues[..] {
                    [] => serde_json::json!({"iothread": name}),
                    _ => serde_json::json!({"iothread": name, "vqs": queues}),
                }
            })
            .collect();
        object.insert("iothread-vq-mapping".into(), mapping.into());
        self.out.arguments.push(serde_json::Value::Object(object).to_string());
    }

    /// Adds the block nodes of a disk: returns the name of the node, `None` for an empty drive, or the reason
    /// why there cannot be one.
    fn nodes(
        &mut self,
        disk: Part<'t, '_>,
        kind: &str,
        dev: &str,
        read_only: bool,
    ) -> Result<Option<String>, String> {
        let Some(source) = disk.child("source") else { return Ok(None) };
        let protocol = match disk.get("@type").unwrap_or("file") {
            "file" => match source.get("@file") {
                Some(file) => Properties::of("driver=file").with("filename", file),
                None => return Ok(None),
            },
            "block" => {
                let driver = if kind == "cdrom" { "host_cdrom" } else { "host_device" };
                match source.get("@dev") {
                    Some(file) => Properties::of(&format!("driver={driver}")).with("filename", file),
                    None => return Ok(None),
                }
            }
            "network" => remote(source)?,
            "nvme" => {
                let address = source.child("address").and_then(|address| {
                    address.ignore_all();
                    crate::libvirt::pci_address(address.node)
                });
                source.get("@type");
                source.get("@managed");
                Properties::of("driver=nvme")
                    .with("device", address.ok_or("Its address is missing.")?)
                    .with("namespace", source.get("@namespace").unwrap_or("1"))
            }
            "volume" => {
                return Err("Which file a volume of a pool is only libvirt knows: `virsh vol-path`.".into());
            }
            other => return Err(format!("QEMU has no block driver for a source of type {other}.")),
        };
        let switch = |on: bool| if on { "on" } else { "off" };
        let options = |node: Properties| {
            let node = node.with("read-only", switch(read_only)).maybe("discard", disk.get("driver@discard"));
            match disk.get("driver@cache") {
                Some("none" | "directsync") => node.with("cache.direct", "on").with("cache.no-flush", "off"),
                Some("writeback" | "writethrough") => {
                    node.with("cache.direct", "off").with("cache.no-flush", "off")
                }
                Some("unsafe") => node.with("cache.direct", "off").with("cache.no-flush", "on"),
                _ => node,
            }
        };
        let storage = protocol.with("node-name", format!("{dev}-storage"));
        let storage = options(storage).maybe("aio", disk.get("driver@io"));
        self.option("-blockdev", storage.0);
        let format = disk.get("driver@type").unwrap_or("raw");
        let node = Properties::of(&format!("driver={format}")).with("node-name", format!("{dev}-format"));
        let node = options(node).with("file", format!("{dev}-storage"));
        self.option("-blockdev", node.maybe("detect-zeroes", disk.get("driver@detect_zeroes")).0);
        Ok(Some(format!("{dev}-format")))
    }

    /// The position of a disk on its bus: by its address, else by its name (`sdb` is the second).
    fn place(&self, disk: Part<'t, '_>, model: &str, dev: &str, device: Properties) -> Properties {
        let address = disk.child("address").filter(|address| address.node.get("type") == Some("drive"));
        let letter =
            dev.bytes().last().filter(u8::is_ascii_lowercase).map_or(0, |letter| u32::from(letter - b'a'));
        let bus = names::disk_bus(disk.node);
        let part = |name: &str| address.and_then(|address| address.get(name)).and_then(number);
        let controller = part("@controller").unwrap_or(0);
        if let Some(address) = address {
            for name in ["@type", "@bus", "@target", "@unit"] {
                address.get(name);
            }
        }
        match bus {
            "scsi" => device
                .with("bus", format!("scsi{controller}.0"))
                .with("channel", "0")
                .with("scsi-id", part("@target").unwrap_or(0))
                .with("lun", part("@unit").unwrap_or(if address.is_some() { 0 } else { letter })),
            "sata" if self.q35 && controller == 0 => {
                device.with("bus", format!("ide.{}", part("@unit").unwrap_or(letter)))
            }
            "sata" => device.with("bus", format!("sata{controller}.{}", part("@unit").unwrap_or(letter))),
            "ide" => device
                .with("bus", format!("ide.{}", part("@bus").unwrap_or(letter / 2)))
                .with("unit", part("@unit").unwrap_or(letter % 2)),
            "fdc" if model == "floppy" => device.with("unit", part("@unit").unwrap_or(letter)),
            _ => device,
        }
    }
}

/// A disk accessed by a network protocol.
fn remote(source: Part<'_, '_>) -> Result<Properties, String> {
    let protocol = source.get("@protocol").unwrap_or_default();
    let name = source.get("@name").unwrap_or_default();
    let hosts = source.all("host");
    let host = hosts.first().and_then(|host| host.get("@name")).unwrap_or("localhost");
    let port = hosts.first().and_then(|host| host.get("@port"));
    match protocol {
        "nbd" => {
            let node = match hosts.first().and_then(|host| host.get("@socket")) {
                Some(path) => {
                    Properties::of("driver=nbd").with("server.type", "unix").with("server.path", path)
                }
                None => Properties::of("driver=nbd")
                    .with("server.type", "inet")
                    .with("server.host", host)
                    .with("server.port", port.unwrap_or("10809")),
            };
            hosts.first().and_then(|host| host.get("@transport"));
            Ok(node.maybe("export", Some(name).filter(|name| !name.is_empty())))
        }
        "rbd" => {
            let (pool, image) = name.split_once('/').unwrap_or(("rbd", name));
            let mut node = Properties::of("driver=rbd").with("pool", pool).with("image", image);
            for (number, host) in hosts.iter().enumerate() {
                node = node.with(&format!("server.{number}.host"), host.get("@name").unwrap_or_default());
                node = node.with(&format!("server.{number}.port"), host.get("@port").unwrap_or("6789"));
            }
            Ok(node)
        }
        "iscsi" => {
            let (target, lun) = name.rsplit_once('/').unwrap_or((name, "0"));
            let portal = format!("{host}:{}", port.unwrap_or("3260"));
            let node = Properties::of("driver=iscsi").with("portal", portal).with("target", target);
            Ok(node.with("lun", lun).with("transport", "tcp"))
        }
        "http" | "https" => {
            let port = port.map(|port| format!(":{port}")).unwrap_or_default();
            let url = format!("{protocol}://{host}{port}/{}", name.trim_start_matches('/'));
            Ok(Properties::of(&format!("driver={protocol}")).with("url", url))
        }
        other => Err(format!("A source over {other} is not converted here.")),
    }
}
