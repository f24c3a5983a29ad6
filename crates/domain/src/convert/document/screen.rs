//! Displays, sound, and input devices: `<graphics>`, `<video>`, `<sound>`, `<input>`.

use super::Writing;
use super::buses::property;
use crate::Device;
use crate::xml::New;

impl Writing<'_> {
    pub(super) fn graphics(&mut self) {
        if let Some(vnc) = self.take("vnc") {
            let first = vnc.said.split(',').next().unwrap_or_default();
            let mut graphics = New::named("graphics").with("type", "vnc");
            if let Some(path) = first.strip_prefix("unix:") {
                graphics = graphics.with("socket", path);
            } else if let Some((host, display)) = first.rsplit_once(':') {
                let port = display.parse::<u32>().map_or(5900, |display| display.saturating_add(5900));
                graphics = graphics.with("port", port.to_string()).with("autoport", "no");
                if !host.is_empty() {
                    graphics = graphics.with("listen", host);
                }
            }
            if vnc.said.contains("password") {
                self.loss(
                    "-vnc password",
                    "The password itself is not among the arguments: <graphics passwd=>.",
                );
            }
            self.devices.push(graphics);
        }
        if let Some(spice) = self.take("spice") {
            let mut graphics = New::named("graphics").with("type", "spice");
            if let Some(port) = spice.get("port") {
                graphics = graphics.with("port", port).with("autoport", "no");
            }
            if let Some(port) = spice.get("tls-port") {
                graphics = graphics.with("tlsPort", port);
            }
            if let Some(address) = spice.get("addr") {
                graphics = graphics.with("listen", address);
            }
            if spice.get("disable-ticketing") != Some("on") {
                self.loss(
                    "-spice password",
                    "The password itself is given to the monitor, or is a secret: <graphics passwd=>.",
                );
            }
            self.devices.push(graphics);
        }
        if let Some(display) = self.take("display") {
            match display.said.split(',').next().unwrap_or_default() {
                "none" => {}
                kind @ ("sdl" | "egl-headless" | "dbus") => {
                    self.devices.push(New::named("graphics").with("type", kind));
                }
                _ => self.loss(
                    format!("-display {}", display.said),
                    "libvirt has no such display; VNC and SPICE are usual.",
                ),
            }
        }
    }

    pub(super) fn audio(&mut self) {
        for (number, option) in self.all("audiodev").enumerate() {
            let kind = match option.get("driver").unwrap_or("none") {
                "pa" => "pulseaudio",
                "wav" => "file",
                other => other,
            };
            if !["none", "alsa", "coreaudio", "dbus", "jack", "oss", "pulseaudio", "sdl", "spice", "file"]
                .contains(&kind)
            {
                continue;
            }
            option.used.set(true);
            self.devices.push(New::named("audio").with("id", (number + 1).to_string()).with("type", kind));
        }
    }

    pub(super) fn video(&mut self, device: &Device) {
        let kind = match device.model.as_str() {
            "VGA" => "vga",
            "cirrus-vga" => "cirrus",
            "vmware-svga" => "vmvga",
            "qxl-vga" | "qxl" => "qxl",
            "virtio-vga" | "virtio-vga-gl" | "virtio-gpu-pci" | "virtio-gpu-gl-pci" => "virtio",
            "bochs-display" => "bochs",
            "ramfb" => "ramfb",
            _ => return,
        };
        if let Some(origin) = self.origin(device) {
            origin.used.set(true);
        }
        let mut model = New::named("model").with("type", kind);
        let number = |name: &str| property(device, name).and_then(|value| value.parse::<u64>().ok());
        if kind == "qxl" {
            for (name, attribute, unit) in
                [("ram_size", "ram", 1), ("vram_size", "vram", 1), ("vgamem_mb", "vgamem", 1 << 20)]
            {
                if let Some(value) = number(name) {
                    model = model.with(attribute, (value * unit / 1024).to_string());
                }
            }
        } else if let Some(mebibytes) = number("vgamem_mb").filter(|_| ["vga", "vmvga"].contains(&kind)) {
            model = model.with("vram", (mebibytes * 1024).to_string());
        }
        if let Some(heads) = property(device, "max_outputs") {
            model = model.with("heads", heads);
        }
        let secondary = matches!(device.model.as_str(), "qxl" | "virtio-gpu-pci" | "virtio-gpu-gl-pci");
        model = model.with("primary", if secondary { "no" } else { "yes" });
        if device.model.contains("-gl") {
            model = model.holding(New::named("acceleration").with("accel3d", "yes"));
        }
        let mut video = New::named("video").holding(model);
        video.children.extend(self.buses.address(device));
        self.unsaid(device, &["vgamem_mb", "ram_size", "vram_size", "max_outputs"]);
        self.devices.push(video);
    }

    pub(super) fn sound(&mut self, device: &Device) {
        let model = match device.model.as_str() {
            "intel-hda" => "ich6",
            "ich9-intel-hda" => "ich9",
            "AC97" => "ac97",
            "ES1370" => "es1370",
            "usb-audio" => "usb",
            // libvirt adds a codec for each of these.
            model if model.starts_with("hda-") => {
                if let Some(origin) = self.origin(device) {
                    origin.used.set(true);
                }
                return;
            }
            _ => return,
        };
        if let Some(origin) = self.origin(device) {
            origin.used.set(true);
        }
        let mut sound = New::named("sound").with("model", model);
        sound.children.extend(self.buses.address(device));
        self.unsaid(device, &["audiodev"]);
        self.devices.push(sound);
    }

    pub(super) fn input(&mut self, device: &Device) {
        let (kind, bus) = match device.model.as_str() {
            "usb-tablet" => ("tablet", "usb"),
            "usb-mouse" => ("mouse", "usb"),
            "usb-kbd" => ("keyboard", "usb"),
            "virtio-tablet-pci" => ("tablet", "virtio"),
            "virtio-mouse-pci" => ("mouse", "virtio"),
            "virtio-keyboard-pci" => ("keyboard", "virtio"),
            _ => return,
        };
        if let Some(origin) = self.origin(device) {
            origin.used.set(true);
        }
        let mut input = New::named("input").with("type", kind).with("bus", bus);
        input.children.extend(self.buses.address(device));
        self.unsaid(device, &[]);
        self.devices.push(input);
    }
}
