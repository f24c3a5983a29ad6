//! Small devices: balloon, random numbers, vsock, TPM, file systems.

use super::Writing;
use super::buses::property;
use crate::Device;
use crate::xml::New;

impl Writing<'_> {
    pub(super) fn other(&mut self, device: &Device) {
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

/// `virtio`, or the revision in the device's name.
fn revision(device: &Device, plain: &str) -> String {
    match device.model.rsplit_once("-pci-") {
        Some((_, revision)) => format!("{plain}-{revision}"),
        None => plain.to_owned(),
    }
}
