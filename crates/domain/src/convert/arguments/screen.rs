//! Displays, sound, and input devices.

use super::{Properties, Writing};
use crate::convert::seen::Part;
use crate::libvirt::names;

impl<'t> Writing<'t, '_> {
    pub(super) fn input(&mut self, element: Part<'t, '_>) {
        let model = names::input(element.node);
        element.get("@type");
        element.get("@bus");
        let id = self.id(element, "input");
        match model.as_str() {
            // Part of the machine.
            "ps2-mouse" | "ps2-kbd" => element.ignore_all(),
            "input-linux" => {
                let object =
                    Properties::of("input-linux").with("id", id).maybe("evdev", element.get("source@dev"));
                let object = object.maybe("repeat", element.get("source@repeat"));
                self.option("-object", object.maybe("grab_all", element.get("source@grab").map(|_| "on")).0);
            }
            _ => {
                let device = Properties::of(&model).maybe("evdev", element.get("source@evdev"));
                self.device(element, &id, device);
            }
        }
    }

    pub(super) fn graphics(&mut self, element: Part<'t, '_>) {
        let kind = element.get("@type").unwrap_or_default();
        let automatic = element.on("@autoport");
        let listen = element.get("@listen").or_else(|| element.get("listen@address"));
        // libvirt repeats these for old clients.
        for path in ["listen@type", "listen@address", "listen@socket"] {
            element.get(path);
        }
        let listen = listen.unwrap_or("127.0.0.1");
        let port =
            element.get("@port").and_then(|port| port.parse::<i64>().ok()).filter(|port| *port >= 5900);
        let password = element.node.get("passwd").is_some();
        match kind {
            "vnc" => {
                let display = port.unwrap_or(5900) - 5900;
                let mut vnc = match element.get("@socket") {
                    Some(path) => Properties::of(&format!("unix:{path}")),
                    None => Properties::of(&format!("{listen}:{display}")),
                };
                element.get("@websocket");
                if password {
                    vnc = vnc.with("password", "on");
                }
                self.option("-vnc", vnc.0);
            }
            "spice" => {
                let mut spice =
                    Properties::of(&format!("port={}", port.unwrap_or(5900))).with("addr", listen);
                spice = spice.maybe("tls-port", element.get("@tlsPort").filter(|port| *port != "-1"));
                if !password {
                    spice = spice.with("disable-ticketing", "on");
                }
                spice = spice.maybe("image-compression", element.get("image@compression"));
                spice = spice.maybe("streaming-video", element.get("streaming@mode"));
                self.option("-spice", spice.0);
            }
            "sdl" => self.option("-display", "sdl"),
            "egl-headless" => self.option("-display", "egl-headless"),
            "dbus" => self.option("-display", "dbus"),
            _ => return self.loss(element, "QEMU has no such display."),
        }
        if password {
            self.note(format!(
                "The {kind} password is a secret and not among the arguments: give it to the monitor with set_password."
            ));
            element.get("@passwd");
            element.get("@passwdValidTo");
        }
        if automatic && port.is_none() {
            self.note(format!("libvirt chooses the port of {kind}; 5900 stands for it."));
        }
    }

    pub(super) fn audio(&mut self, element: Part<'t, '_>) {
        let kind = match element.get("@type").unwrap_or("none") {
            "pulseaudio" => "pa",
            "file" => "wav",
            "coreaudio" | "jack" | "alsa" | "oss" | "sdl" | "spice" | "dbus" | "pipewire" => {
                element.get("@type").unwrap_or("none")
            }
            _ => "none",
        };
        let id = element.get("@id").unwrap_or("1");
        self.option("-audiodev", Properties::of(kind).with("id", format!("audio{id}")).0);
    }

    pub(super) fn sound(&mut self, element: Part<'t, '_>) {
        let model = names::sound(element.node);
        element.get("@model");
        let id = self.id(element, "sound");
        let audio = element.get("audio@id").map(|id| format!("audio{id}"));
        let first = self.domain.child("devices").and_then(|devices| devices.all("audio").first().copied());
        let audio =
            audio.or_else(|| first.map(|first| format!("audio{}", first.node.get("id").unwrap_or("1"))));
        let hda = model.ends_with("intel-hda");
        let device = Properties::of(&model);
        let device = if hda { device } else { device.maybe("audiodev", audio.clone()) };
        self.device(element, &id, device);
        if hda {
            element.ignore("codec");
            let codec = Properties::of("hda-duplex").with("id", format!("{id}-codec0"));
            let codec = codec.with("bus", format!("{id}.0")).with("cad", "0");
            self.option("-device", codec.maybe("audiodev", audio).0);
        }
    }

    pub(super) fn video(&mut self, element: Part<'t, '_>, first: bool) {
        let primary = element.get("model@primary").map_or(first, |primary| primary == "yes");
        let kind = element.get("model@type");
        element.get("model/acceleration@accel3d");
        element.get("driver@name");
        let Some(model) = names::video(element.node, primary) else {
            if kind != Some("none") {
                self.loss(element, "Its model is missing.");
            }
            return;
        };
        let id = self.id(element, "video");
        let mut device = Properties::of(&model);
        let heads = element.get("model@heads");
        let mib =
            |path: &str| element.get(path).and_then(|text| text.parse::<u64>().ok()).map(|kib| kib / 1024);
        if model.starts_with("virtio") || model.starts_with("qxl") {
            device = device.maybe("max_outputs", heads);
        }
        match kind {
            Some("qxl") => {
                device = device.maybe("ram_size", mib("model@ram").map(|mib| mib << 20));
                device = device.maybe("vram_size", mib("model@vram").map(|mib| mib << 20));
                device = device.maybe("vram64_size_mb", mib("model@vram64"));
                device = device.maybe("vgamem_mb", mib("model@vgamem"));
            }
            Some("vga" | "vmvga") => device = device.maybe("vgamem_mb", mib("model@vram")),
            // The others have no size, although libvirt shows one.
            _ => drop(element.get("model@vram")),
        }
        self.device(element, &id, device);
    }
}
