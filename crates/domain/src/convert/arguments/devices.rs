//! All other devices.

use super::{Properties, Writing};
use crate::convert::seen::Part;
use crate::libvirt::names;

impl<'t> Writing<'t, '_> {
    pub(super) fn devices(&mut self) {
        let Some(devices) = self.domain.child("devices") else { return };
        for iommu in devices.all("iommu") {
            self.iommu(iommu);
        }
        self.controllers(devices);
        self.disks(devices);
        self.interfaces(devices);
        self.characters(devices);
        let mut video = 0;
        let mut shown = false;
        for element in devices.children() {
            match element.node.full_name() {
                "input" => self.input(element),
                "graphics" => {
                    shown = true;
                    self.graphics(element);
                }
                "audio" => self.audio(element),
                "sound" => self.sound(element),
                "video" => {
                    self.video(element, video == 0);
                    video += 1;
                }
                "hostdev" => self.hostdev(element),
                "redirdev" => self.redirected(element),
                "watchdog" => self.watchdog(element),
                "memballoon" => self.balloon(element),
                "rng" => self.random(element),
                "vsock" => self.vsock(element),
                "tpm" => self.tpm(element),
                "filesystem" => self.filesystem(element),
                "panic" => self.panic(element),
                "hub" => {
                    let id = self.id(element, "hub");
                    element.get("@type");
                    self.device(element, &id, Properties::of("usb-hub"));
                }
                _ => {}
            }
        }
        if self.state("features/vmcoreinfo") == Some("on") {
            self.option("-device", "vmcoreinfo");
        }
        if !shown {
            self.option("-display", "none");
        }
    }

    fn iommu(&mut self, element: Part<'t, '_>) {
        let model = element.get("@model").unwrap_or("intel");
        let id = self.id(element, "iommu");
        if model == "virtio" {
            return self.device(element, &id, Properties::of("virtio-iommu-pci"));
        }
        let mut device = Properties::of(&format!("{model}-iommu"));
        for (attribute, property) in [
            ("intremap", "intremap"),
            ("caching_mode", "caching-mode"),
            ("eim", "eim"),
            ("iotlb", "device-iotlb"),
            ("aw_bits", "aw-bits"),
            ("xtsup", "xtsup"),
        ] {
            device = device.maybe(property, element.get(&format!("driver@{attribute}")));
        }
        // QEMU's IOMMUs of PCs sit on the machine, not on a bus.
        element.ignore("address");
        self.option("-device", device.with("id", id).0);
    }

    fn input(&mut self, element: Part<'t, '_>) {
        let model = names::input(element.node);
        element.get("@type");
        element.get("@bus");
        let id = self.id(element, "input");
        match model.as_str() {
            // The machine's own.
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

    fn graphics(&mut self, element: Part<'t, '_>) {
        let kind = element.get("@type").unwrap_or_default();
        let automatic = element.on("@autoport");
        let listen = element.get("@listen").or_else(|| element.get("listen@address"));
        // Said twice for the sake of old clients.
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

    fn audio(&mut self, element: Part<'t, '_>) {
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

    fn sound(&mut self, element: Part<'t, '_>) {
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

    fn video(&mut self, element: Part<'t, '_>, first: bool) {
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
            // The others take no size, and libvirt shows one all the same.
            _ => drop(element.get("model@vram")),
        }
        self.device(element, &id, device);
    }

    fn hostdev(&mut self, element: Part<'t, '_>) {
        for path in ["@mode", "@type", "@managed", "@model", "@sgio", "driver@name"] {
            element.get(path);
        }
        let id = self.id(element, "hostdev");
        let address = element.child("source/address");
        let kind = element.node.get("type");
        let mut device = Properties::of(&names::assigned(element.node));
        match kind {
            Some("pci") => {
                let host = address.and_then(|address| {
                    address.ignore_all();
                    crate::libvirt::pci_address(address.node)
                });
                let Some(host) = host else {
                    return self.loss(element, "Its address on the host is missing.");
                };
                if element.node.get("managed") == Some("yes") {
                    self.note(format!("libvirt binds {host} to vfio-pci; do so before QEMU starts: driverctl set-override {host} vfio-pci."));
                }
                device = device.with("host", host);
                device =
                    device.maybe("rombar", element.get("rom@bar")).maybe("romfile", element.get("rom@file"));
            }
            Some("usb") => {
                let hexadecimal = |path: &str| element.get(path);
                device = device.maybe("vendorid", hexadecimal("source/vendor@id"));
                device = device.maybe("productid", hexadecimal("source/product@id"));
                device = device.maybe("hostbus", address.and_then(|address| address.get("@bus")));
                device = device.maybe("hostaddr", address.and_then(|address| address.get("@device")));
            }
            Some("mdev") => {
                let uuid = address.and_then(|address| address.get("@uuid")).unwrap_or_default();
                device = device.with("sysfsdev", format!("/sys/bus/mdev/devices/{uuid}"));
                element.get("@display");
            }
            Some("scsi_host") => {
                element.get("source@protocol");
                device = device.maybe("wwpn", element.get("source@wwpn"));
            }
            _ => return self.loss(element, "libvirt looks up the host's device and passes it on."),
        }
        self.device(element, &id, device);
    }

    fn redirected(&mut self, element: Part<'t, '_>) {
        element.get("@bus");
        let id = self.id(element, "redir");
        let back = format!("char{id}");
        let Some(backend) = self.backend(element, &back, None) else {
            return self.loss(element, "QEMU has no such end of a redirection.");
        };
        self.option("-chardev", backend.0);
        self.device(element, &id, Properties::of("usb-redir").with("chardev", back));
    }

    fn watchdog(&mut self, element: Part<'t, '_>) {
        let model = element.get("@model").unwrap_or_default();
        let action = element.get("@action").unwrap_or("reset");
        let id = self.id(element, "watchdog");
        if model == "itco" {
            self.option("-global", "ICH9-LPC.noreboot=off");
        } else {
            self.device(element, &id, Properties::of(model));
        }
        // libvirt itself writes the core that `dump` asks for.
        let action = if action == "dump" { "pause" } else { action };
        self.option("-action", format!("watchdog={action}"));
    }

    fn balloon(&mut self, element: Part<'t, '_>) {
        element.get("@model");
        let Some(model) = names::other(element.node) else { return };
        let id = self.id(element, "balloon");
        let mut device = Properties::of(&model).maybe("deflate-on-oom", element.get("@autodeflate"));
        device = device.maybe("free-page-reporting", element.get("@freePageReporting"));
        // How often libvirt asks for statistics.
        element.ignore("stats");
        self.device(element, &id, device);
    }

    fn random(&mut self, element: Part<'t, '_>) {
        element.get("@model");
        let id = self.id(element, "rng");
        let object = format!("obj{id}");
        match element.get("backend@model") {
            Some("builtin") => self.option("-object", Properties::of("rng-builtin").with("id", &object).0),
            Some("random") | None => {
                let file = element.get("backend").filter(|file| !file.is_empty()).unwrap_or("/dev/random");
                let new = Properties::of("rng-random").with("id", &object).with("filename", file);
                self.option("-object", new.0);
            }
            Some(_) => {
                return self.loss(element, "Random numbers from another process are not converted here.");
            }
        }
        let device = Properties::of(&names::other(element.node).unwrap_or_default()).with("rng", object);
        let device = device.maybe("max-bytes", element.get("rate@bytes"));
        self.device(element, &id, device.maybe("period", element.get("rate@period")));
    }

    fn vsock(&mut self, element: Part<'t, '_>) {
        element.get("@model");
        let id = self.id(element, "vsock");
        let chosen = element.get("cid@address");
        if chosen.is_none() {
            self.note("libvirt chooses the guest's vsock number (cid); 3 stands for it.");
        }
        element.get("cid@auto");
        let device = Properties::of("vhost-vsock-pci").with("guest-cid", chosen.unwrap_or("3"));
        self.device(element, &id, device);
    }

    fn tpm(&mut self, element: Part<'t, '_>) {
        let model = element.get("@model").unwrap_or("tpm-tis").to_owned();
        let id = self.id(element, "tpm");
        match element.get("backend@type") {
            Some("passthrough") => {
                let path = element.get("backend/device@path").unwrap_or("/dev/tpm0");
                self.option(
                    "-tpmdev",
                    Properties::of("passthrough").with("id", format!("tpm-{id}")).with("path", path).0,
                );
            }
            Some("emulator") => {
                element.get("backend@version");
                let path = format!("/run/{id}.sock");
                self.note(format!(
                    "libvirt starts the TPM: swtpm socket --tpm2 --tpmstate dir=DIR --ctrl type=unixio,path={path}."
                ));
                self.option(
                    "-chardev",
                    Properties::of("socket").with("id", format!("chr{id}")).with("path", path).0,
                );
                let device = Properties::of("emulator").with("id", format!("tpm-{id}"));
                self.option("-tpmdev", device.with("chardev", format!("chr{id}")).0);
            }
            _ => return self.loss(element, "QEMU has no such TPM."),
        }
        self.device(element, &id, Properties::of(&model).with("tpmdev", format!("tpm-{id}")));
    }

    fn filesystem(&mut self, element: Part<'t, '_>) {
        let id = self.id(element, "fs");
        let tag = element.get("target@dir").unwrap_or_default();
        let folder = element.get("source@dir");
        element.get("@type");
        if element.get("driver@type") == Some("virtiofs") {
            let path = element.get("source@socket").map_or_else(|| format!("/run/{id}.sock"), str::to_owned);
            if let Some(folder) = folder {
                self.note(format!(
                    "libvirt starts virtiofsd: virtiofsd --socket-path={path} --shared-dir={folder}; it needs shared memory."
                ));
            }
            self.option(
                "-chardev",
                Properties::of("socket").with("id", format!("chr-{id}")).with("path", path).0,
            );
            let device =
                Properties::of("vhost-user-fs-pci").with("chardev", format!("chr-{id}")).with("tag", tag);
            return self.device(element, &id, device.maybe("queue-size", element.get("driver@queue")));
        }
        let model = match element.get("@accessmode") {
            Some("mapped") => "mapped-xattr",
            Some("squash") => "none",
            _ => "passthrough",
        };
        let back = Properties::of("local").with("id", format!("fsdev-{id}")).with("security_model", model);
        let back = back.maybe("path", folder);
        let back = if element.has("readonly") { back.with("readonly", "on") } else { back };
        self.option("-fsdev", back.0);
        let device = Properties::of("virtio-9p-pci").with("fsdev", format!("fsdev-{id}"));
        self.device(element, &id, device.with("mount_tag", tag));
    }

    fn panic(&mut self, element: Part<'t, '_>) {
        match element.get("@model") {
            None | Some("isa") => {
                element.ignore("address");
                self.option("-device", "pvpanic");
            }
            Some("pvpanic") => {
                let id = self.id(element, "panic");
                self.device(element, &id, Properties::of("pvpanic-pci"));
            }
            // Hyper-V's crash registers are a feature of the CPU.
            _ => self.loss(element, "QEMU's -cpu ...,hv-crash=on is the nearest."),
        }
    }
}
