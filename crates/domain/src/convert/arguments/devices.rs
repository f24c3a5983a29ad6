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
        // QEMU's IOMMUs of PCs are part of the machine, not on a bus.
        element.ignore("address");
        self.option("-device", device.with("id", id).0);
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
        // libvirt itself writes the core dump of `dump`.
        let action = if action == "dump" { "pause" } else { action };
        self.option("-action", format!("watchdog={action}"));
    }

    fn balloon(&mut self, element: Part<'t, '_>) {
        element.get("@model");
        let Some(model) = names::other(element.node) else { return };
        let id = self.id(element, "balloon");
        let mut device = Properties::of(&model).maybe("deflate-on-oom", element.get("@autodeflate"));
        device = device.maybe("free-page-reporting", element.get("@freePageReporting"));
        // The interval at which libvirt asks for statistics.
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
