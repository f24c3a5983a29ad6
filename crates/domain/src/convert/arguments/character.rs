//! Serial lines, consoles and channels.

use super::{Properties, Writing};
use crate::convert::seen::Part;
use crate::libvirt::names;

impl<'t> Writing<'t, '_> {
    pub(super) fn characters(&mut self, devices: Part<'t, '_>) {
        let serial = !devices.all("serial").is_empty();
        let mut ports = 0;
        for element in devices.children() {
            let kind = match element.node.full_name() {
                "serial" => "serial",
                "parallel" => "parallel",
                "console" => {
                    if serial && matches!(element.get("target@type"), None | Some("serial")) {
                        // The first serial line as the guest's console.
                        element.ignore_all();
                        continue;
                    }
                    "console"
                }
                "channel" => "channel",
                _ => continue,
            };
            self.character(element, kind, &mut ports);
        }
    }

    fn character(&mut self, element: Part<'t, '_>, kind: &'static str, ports: &mut u32) {
        let model = names::character(element.node);
        let id = self.id(element, kind);
        let name = element.get("target@name");
        for path in ["target@type", "target@port", "target/model@name", "target@state"] {
            element.get(path);
        }
        let back = format!("char{id}");
        let Some(backend) = self.backend(element, &back, name) else {
            return self.loss(element, "QEMU has no such end of a serial line.");
        };
        let backend =
            backend.maybe("logfile", element.get("log@file")).maybe("logappend", element.get("log@append"));
        self.option("-chardev", backend.0);
        let mut device = Properties::of(&model).with("chardev", back);
        if matches!(model.as_str(), "virtserialport" | "virtconsole") {
            *ports += 1;
            let address = element.child("address");
            let part = |name: &str| address.and_then(|address| address.get(name));
            part("@type");
            part("@bus");
            let bus = format!("virtio-serial{}.0", part("@controller").unwrap_or("0"));
            let port = part("@port").map_or_else(|| ports.to_string(), str::to_owned);
            device = device.with("bus", bus).with("nr", port).maybe("name", name);
        }
        self.device(element, &id, device);
    }

    /// The backend of a line on the host.
    pub(super) fn backend(
        &mut self,
        element: Part<'t, '_>,
        id: &str,
        name: Option<&str>,
    ) -> Option<Properties> {
        let kind = element.get("@type")?;
        let of = |kind: &str| Properties::of(kind).with("id", id);
        Some(match kind {
            "pty" => {
                // In the XML of a running domain the kernel chose the path.
                element.get("source@path");
                element.get("@tty");
                of("pty")
            }
            "null" | "stdio" | "vc" => of(kind),
            "file" => {
                let file = of("file").maybe("path", element.get("source@path"));
                file.maybe("append", element.get("source@append"))
            }
            "dev" => of("serial").maybe("path", element.get("source@path")),
            "pipe" => of("pipe").maybe("path", element.get("source@path")),
            "unix" => {
                let server = element.get("source@mode") != Some("connect");
                let path = match element.get("source@path") {
                    Some(path) => path.to_owned(),
                    None => {
                        let path = format!("/run/{}.sock", name.unwrap_or(id));
                        self.note(format!("libvirt chooses the socket of {id}; {path} stands for it."));
                        path
                    }
                };
                let socket = of("socket").with("path", path);
                if server { socket.with("server", "on").with("wait", "off") } else { socket }
            }
            "tcp" => {
                let server = element.get("source@mode") == Some("bind");
                let socket = of("socket").maybe("host", element.get("source@host"));
                let socket = socket.maybe("port", element.get("source@service"));
                let telnet = element.get("protocol@type") == Some("telnet");
                let socket = if telnet { socket.with("telnet", "on") } else { socket };
                if server { socket.with("server", "on").with("wait", "off") } else { socket }
            }
            "spicevmc" => of("spicevmc").with("name", if name.is_some() { "vdagent" } else { "usbredir" }),
            "spiceport" => of("spiceport").maybe("name", element.get("source@channel")),
            "qemu-vdagent" => of("qemu-vdagent").with("name", "vdagent"),
            _ => return None,
        })
    }
}
