//! All devices, and those of few words.

use super::Writing;
use super::buses::{controller, property};
use crate::qemu::given::GivenOption;
use crate::xml::New;
use crate::{Device, DeviceKind};

impl Writing<'_> {
    pub(super) fn all_devices(&mut self) {
        let definition = self.definition;
        if let Some(program) = definition.program.as_ref().map(|set| set.value.as_str()) {
            if program.starts_with('/') {
                self.devices.push(New::named("emulator").saying(program));
            } else {
                self.note(format!("libvirt starts the QEMU that it finds; for another one than its {program}, name it by <emulator>."));
            }
        }
        for device in definition.devices.iter().filter(|device| device.kind == DeviceKind::Disk) {
            self.disk(device);
        }
        for device in &definition.devices {
            self.controller(device);
        }
        let has = |wanted: &str| {
            definition
                .devices
                .iter()
                .any(|device| controller(&device.model).is_some_and(|(kind, _)| kind == wanted))
        };
        if !has("scsi") && definition.devices.iter().any(|device| device.model.starts_with("scsi-")) {
            // What `-drive if=scsi` brings along (`pci_create_scsi` of the PC machines).
            let scsi = New::named("controller").with("type", "scsi").with("index", "0");
            self.devices.push(scsi.with("model", "lsilogic"));
        }
        if self.take("usb").is_some() {
            self.devices.push(New::named("controller").with("type", "usb").with("index", "0"));
        } else if !has("usb") {
            // libvirt adds one to a domain that does not say no.
            self.devices.push(New::named("controller").with("type", "usb").with("model", "none"));
        }
        for device in &definition.devices {
            match device.kind {
                DeviceKind::Network => self.interface(device),
                DeviceKind::Serial => self.character(device),
                DeviceKind::Input => self.input(device),
                DeviceKind::Display => self.video(device),
                DeviceKind::Sound => self.sound(device),
                DeviceKind::Assigned => self.assigned(device),
                _ if device.model == "usb-host" => self.assigned(device),
                DeviceKind::Other => self.other(device),
                _ => {}
            }
        }
        // `-nodefaults` and its likes leave no trace: libvirt starts every domain so.
        for name in ["vga", "serial", "parallel", "net", "nic"] {
            for option in
                self.all(name).filter(|option| option.said == "none" || option.get("type") == Some("none"))
            {
                option.used.set(true);
            }
        }
        self.graphics();
        self.audio();
        for iommu in &definition.iommus {
            self.iommu(&iommu.model, &iommu.place);
        }
        self.watchdog();
        if !definition.devices.iter().any(|device| device.model.starts_with("virtio-balloon")) {
            self.devices.push(New::named("memballoon").with("model", "none"));
        }
    }

    fn controller(&mut self, device: &Device) {
        let Some((kind, model)) = controller(&device.model) else { return };
        let Some(origin) = self.origin(device).filter(|option| option.name == "device") else { return };
        origin.used.set(true);
        let mut element = New::named("controller").with("type", kind);
        if let Some(number) = device.id.as_deref().and_then(|id| self.buses.number(id)) {
            element = element.with("index", number.to_string());
        }
        if let Some(model) = model {
            element = element.with("model", model);
        }
        if let Some(ports) = property(device, "p2").filter(|_| kind == "usb") {
            element = element.with("ports", ports);
        }
        if kind == "pci" {
            if device.model == "ioh3420" {
                element = element.holding(New::named("model").with("name", "ioh3420"));
            }
            let mut target = New::named("target");
            for (name, attribute) in [("chassis", "chassis"), ("chassis_nr", "chassisNr"), ("port", "port")] {
                if let Some(value) = property(device, name) {
                    // JSON has no hexadecimal numbers, and libvirt writes this one so.
                    let value = match value.parse::<u32>() {
                        Ok(number) if attribute == "port" => format!("{number:#x}"),
                        _ => value.to_owned(),
                    };
                    target = target.with(attribute, value);
                }
            }
            if !target.attributes.is_empty() {
                element = element.holding(target);
            }
        }
        let mut driver = New::named("driver");
        if let Some(queues) = property(device, "num_queues").filter(|_| kind == "scsi") {
            driver = driver.with("queues", queues);
        }
        if let Some(thread) = device.iothreads.first().filter(|_| kind == "scsi") {
            driver = driver.with("iothread", self.thread(&thread.value));
        }
        if !driver.attributes.is_empty() {
            element = element.holding(driver);
        }
        element.children.extend(self.buses.address(device));
        self.unsaid(device, &["p2", "p3", "chassis", "chassis_nr", "port", "num_queues", "iothread"]);
        self.devices.push(element);
    }

    /// What a character device ends in on the host, as the type and the source of an element.
    fn character_source(&mut self, chardev: Option<&GivenOption>) -> Option<(String, Option<New>)> {
        let Some(chardev) = chardev else { return Some(("pty".into(), None)) };
        let on = |key: &str| matches!(chardev.get(key), Some("on" | "true"));
        let path = |element: New| match chardev.get("path") {
            Some(path) => element.with("path", path),
            None => element,
        };
        let source = New::named("source");
        Some(match chardev.get("backend").or(chardev.get("driver"))? {
            "pty" => ("pty".into(), None),
            kind @ ("null" | "stdio" | "vc" | "spicevmc") => (kind.into(), None),
            "file" => ("file".into(), Some(path(source))),
            "serial" | "tty" => ("dev".into(), Some(path(source))),
            "pipe" => ("pipe".into(), Some(path(source))),
            "socket" if chardev.get("path").is_some() => {
                let mode = if on("server") { "bind" } else { "connect" };
                ("unix".into(), Some(path(source.with("mode", mode))))
            }
            "socket" if chardev.get("host").is_some() || chardev.get("port").is_some() => {
                let mode = if on("server") { "bind" } else { "connect" };
                let source =
                    source.with("mode", mode).with("host", chardev.get("host").unwrap_or("127.0.0.1"));
                ("tcp".into(), Some(source.with("service", chardev.get("port").unwrap_or("0"))))
            }
            _ => return None,
        })
    }

    fn character(&mut self, device: &Device) {
        let (element, kind) = match device.model.as_str() {
            "isa-serial" => ("serial", "isa-serial"),
            "pci-serial" => ("serial", "pci-serial"),
            "usb-serial" => ("serial", "usb-serial"),
            "virtconsole" => ("console", "virtio"),
            "virtserialport" => ("channel", "virtio"),
            _ => return,
        };
        let origin = self.origin(device);
        let chardev = property(device, "chardev").and_then(|id| self.named("chardev", "id", id));
        let short = device.source.as_ref().filter(|_| origin.is_some_and(|option| option.name == "serial"));
        let source = match short.map(|set| set.value.as_str()) {
            Some(said) => short_source(said),
            None => self.character_source(chardev),
        };
        let Some((source_type, source)) = source else {
            if let Some(chardev) = chardev {
                chardev.used.set(false);
            }
            return;
        };
        if let Some(origin) = origin {
            origin.used.set(true);
        }
        let mut new = New::named(element).with("type", source_type);
        new.children.extend(source);
        if let Some(file) = chardev.and_then(|chardev| chardev.get("logfile")) {
            let log = New::named("log").with("file", file);
            new = new.holding(match chardev.and_then(|chardev| chardev.get("logappend")) {
                Some(append) => {
                    log.with("append", if matches!(append, "on" | "true") { "on" } else { "off" })
                }
                None => log,
            });
        }
        let mut target = New::named("target").with("type", kind);
        if let Some(name) = property(device, "name") {
            target = target.with("name", name);
        }
        new = new.holding(target);
        if let (Some(("virtio-serial", bus)), Some(port)) =
            (property(device, "bus").and_then(|bus| self.buses.bus(bus)), property(device, "nr"))
        {
            let address =
                New::named("address").with("type", "virtio-serial").with("controller", bus.to_string());
            new = new.holding(address.with("bus", "0").with("port", port));
        }
        self.unsaid(device, &["chardev", "name", "nr", "index"]);
        self.devices.push(new);
    }

    fn iommu(&mut self, model: &str, place: &crate::Place) {
        let same = |option: &&GivenOption| option.place == *place && option.name == "device";
        let Some(option) = self.options.iter().find(same) else { return };
        option.used.set(true);
        let mut iommu = New::named("iommu").with("model", model.trim_end_matches("-iommu"));
        let mut driver = New::named("driver");
        for (name, attribute) in [
            ("intremap", "intremap"),
            ("caching-mode", "caching_mode"),
            ("eim", "eim"),
            ("device-iotlb", "iotlb"),
            ("aw-bits", "aw_bits"),
        ] {
            match option.get(name) {
                // Only a number is anything but a switch; `auto` is what there is without a word.
                Some("true") => driver = driver.with(attribute, "on"),
                Some("false") => driver = driver.with(attribute, "off"),
                Some("auto") | None => {}
                Some(value) => driver = driver.with(attribute, value),
            }
        }
        if !driver.attributes.is_empty() {
            iommu = iommu.holding(driver);
        }
        self.devices.push(iommu);
    }

    fn watchdog(&mut self) {
        let action = self.option("action").and_then(|option| option.get("watchdog"));
        let action = action.or_else(|| self.option("watchdog-action").map(|option| option.said.as_str()));
        let action = action.unwrap_or("reset").to_owned();
        let itco = self.all("global").find(|option| option.said == "ICH9-LPC.noreboot=off");
        let device = self
            .definition
            .devices
            .iter()
            .find(|device| matches!(device.model.as_str(), "i6300esb" | "ib700"));
        let model = match (device, itco) {
            (Some(device), _) => {
                if let Some(origin) = self.origin(device) {
                    origin.used.set(true);
                }
                device.model.clone()
            }
            (None, Some(option)) => {
                option.used.set(true);
                "itco".into()
            }
            _ => return,
        };
        for name in ["action", "watchdog-action"] {
            self.take(name);
        }
        self.devices.push(New::named("watchdog").with("model", model).with("action", action));
    }

    fn other(&mut self, device: &Device) {
        let Some(origin) = self.origin(device) else { return };
        let plain = device.model.trim_end_matches("-non-transitional").trim_end_matches("-transitional");
        let mut said =
            vec!["rng", "max-bytes", "period", "guest-cid", "tpmdev", "fsdev", "mount_tag", "chardev", "tag"];
        let element = match plain {
            "virtio-balloon-pci" => {
                let mut balloon = New::named("memballoon").with("model", revision(device, "virtio"));
                for (name, attribute) in
                    [("deflate-on-oom", "autodeflate"), ("free-page-reporting", "freePageReporting")]
                {
                    if let Some(value) = property(device, name) {
                        balloon = balloon
                            .with(attribute, if matches!(value, "on" | "true") { "on" } else { "off" });
                        said.push(name);
                    }
                }
                balloon
            }
            "virtio-rng-pci" => {
                let object = property(device, "rng").and_then(|id| self.named("object", "id", id));
                let mut rng = New::named("rng").with("model", revision(device, "virtio"));
                if let Some(bytes) = property(device, "max-bytes") {
                    let rate = New::named("rate").with("bytes", bytes);
                    rng = rng.holding(match property(device, "period") {
                        Some(period) => rate.with("period", period),
                        None => rate,
                    });
                }
                match object.and_then(|object| object.get("qom-type")) {
                    Some("rng-random") => {
                        let file = object.and_then(|object| object.get("filename")).unwrap_or("/dev/urandom");
                        rng.holding(New::named("backend").with("model", "random").saying(file))
                    }
                    _ => rng.holding(New::named("backend").with("model", "builtin")),
                }
            }
            "vhost-vsock-pci" => {
                let cid = New::named("cid").with("auto", "no");
                let cid = cid.with("address", property(device, "guest-cid").unwrap_or("3"));
                New::named("vsock").with("model", "virtio").holding(cid)
            }
            "tpm-tis" | "tpm-crb" => {
                let Some(tpm) = property(device, "tpmdev").and_then(|id| self.named("tpmdev", "id", id))
                else {
                    return;
                };
                let mut backend = New::named("backend");
                let first = tpm.said.split(',').next().unwrap_or_default();
                if first == "passthrough" {
                    backend = backend.with("type", "passthrough");
                    backend = backend
                        .holding(New::named("device").with("path", tpm.get("path").unwrap_or("/dev/tpm0")));
                } else {
                    if let Some(id) = tpm.get("chardev") {
                        self.named("chardev", "id", id);
                    }
                    self.note("libvirt starts a TPM of its own; the state of the present one has to be put in its folder.");
                    backend = backend.with("type", "emulator").with("version", "2.0");
                }
                New::named("tpm").with("model", plain).holding(backend)
            }
            "virtio-9p-pci" => {
                let Some(back) = property(device, "fsdev").and_then(|id| self.named("fsdev", "id", id))
                else {
                    return;
                };
                let mode = match back.get("security_model") {
                    Some("mapped" | "mapped-xattr") => "mapped",
                    Some("none") => "squash",
                    _ => "passthrough",
                };
                let system = New::named("filesystem").with("type", "mount").with("accessmode", mode);
                let system =
                    system.holding(New::named("source").with("dir", back.get("path").unwrap_or("/")));
                let tag = property(device, "mount_tag").unwrap_or_default();
                system.holding(New::named("target").with("dir", tag))
            }
            "vhost-user-fs-pci" => {
                let chardev = property(device, "chardev").and_then(|id| self.named("chardev", "id", id));
                let Some(path) = chardev.and_then(|chardev| chardev.get("path")) else { return };
                let system = New::named("filesystem").with("type", "mount").with("accessmode", "passthrough");
                let system = system.holding(New::named("driver").with("type", "virtiofs"));
                let system = system.holding(New::named("source").with("socket", path));
                let tag = property(device, "tag").unwrap_or_default();
                system.holding(New::named("target").with("dir", tag))
            }
            "usb-redir" => {
                if let Some(id) = property(device, "chardev") {
                    self.named("chardev", "id", id);
                }
                New::named("redirdev").with("bus", "usb").with("type", "spicevmc")
            }
            "pvpanic" => New::named("panic").with("model", "isa"),
            _ => return,
        };
        origin.used.set(true);
        let mut element = element;
        element.children.extend(self.buses.address(device));
        self.unsaid(device, &said);
        self.devices.push(element);
    }
}

/// `virtio`, or the revision that the device's name tells.
fn revision(device: &Device, plain: &str) -> String {
    match device.model.rsplit_once("-pci-") {
        Some((_, revision)) => format!("{plain}-{revision}"),
        None => plain.to_owned(),
    }
}

/// `-serial stdio`, `-serial file:/a`.
fn short_source(said: &str) -> Option<(String, Option<New>)> {
    let (kind, rest) = said.split_once(':').unwrap_or((said, ""));
    let source = New::named("source");
    Some(match kind {
        "pty" | "null" | "stdio" | "vc" => (kind.into(), None),
        // The monitor that shares the line is libvirt's own.
        "mon" if rest == "stdio" => ("stdio".into(), None),
        "file" => ("file".into(), Some(source.with("path", rest))),
        "unix" => {
            let path = rest.split(',').next().unwrap_or_default();
            let mode = if rest.contains("server") { "bind" } else { "connect" };
            ("unix".into(), Some(source.with("mode", mode).with("path", path)))
        }
        _ if said.starts_with("/dev/") => ("dev".into(), Some(source.with("path", said))),
        _ => return None,
    })
}
