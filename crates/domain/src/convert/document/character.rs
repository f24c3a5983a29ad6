//! `<serial>`, `<console>` and `<channel>`.

use super::Writing;
use super::buses::property;
use crate::Device;
use crate::qemu::given::GivenOption;
use crate::xml::New;

impl Writing<'_> {
    /// The backend of a character device, as the type and the source of an element.
    pub(super) fn character_source(
        &mut self,
        chardev: Option<&GivenOption>,
    ) -> Option<(String, Option<New>)> {
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

    pub(super) fn character(&mut self, device: &Device) {
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
}

/// Parses `-serial stdio`, `-serial file:/a`.
fn short_source(said: &str) -> Option<(String, Option<New>)> {
    let (kind, rest) = said.split_once(':').unwrap_or((said, ""));
    let source = New::named("source");
    Some(match kind {
        "pty" | "null" | "stdio" | "vc" => (kind.into(), None),
        // libvirt has its own monitor instead of the one that shares the line.
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
