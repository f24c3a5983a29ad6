//! `<interface>` and `<hostdev>`.

use super::Writing;
use super::buses::property;
use super::disks::boot;
use crate::qemu::given::GivenOption;
use crate::xml::New;
use crate::{Backend, Device};

impl Writing<'_> {
    pub(super) fn interface(&mut self, device: &Device) {
        let origin = self.origin(device);
        let plain = device.model.trim_end_matches("-non-transitional").trim_end_matches("-transitional");
        let model = match plain {
            "virtio-net-pci" | "virtio-net-device" => "virtio",
            "e1000" | "e1000e" | "igb" | "rtl8139" | "vmxnet3" | "pcnet" | "ne2k_pci" | "usb-net" => plain,
            _ => return,
        };
        let model = match device.model.rsplit_once("-pci-") {
            Some((_, revision)) => format!("virtio-{revision}"),
            None => model.to_owned(),
        };
        let back = match property(device, "netdev") {
            Some(id) => self.named("netdev", "id", id),
            None => origin.filter(|option| option.name == "nic").or_else(|| {
                let hub = |option: &&GivenOption| option.name == "net" && option.get("type") != Some("nic");
                self.options.iter().find(hub).inspect(|option| option.used.set(true))
            }),
        };
        let kind = back.and_then(|back| back.get("type")).unwrap_or("user");
        let Some((source_type, source)) = self.network_source(device, back, kind) else {
            if let Some(back) = back {
                back.used.set(false);
            }
            return;
        };
        if let Some(origin) = origin {
            origin.used.set(true);
        }
        let mut interface = New::named("interface").with("type", source_type);
        let mac = property(device, "mac").or_else(|| property(device, "macaddr"));
        if let Some(mac) = mac {
            interface = interface.holding(New::named("mac").with("address", mac));
        }
        interface.children.extend(source);
        if let Some(name) = back.and_then(|back| back.get("ifname")) {
            let own = back.is_some_and(|back| back.get("script") == Some("no"));
            let target = New::named("target").with("dev", name);
            interface = interface.holding(if own { target.with("managed", "no") } else { target });
        }
        for key in ["script", "downscript"] {
            let script =
                back.and_then(|back| back.get(key)).filter(|script| *script != "no" && kind == "tap");
            if let Some(script) = script {
                interface = interface.holding(New::named(key).with("path", script));
            }
        }
        interface = interface.holding(New::named("model").with("type", model));
        let driver = self.network_driver(device, plain.starts_with("virtio-net"));
        if !driver.attributes.is_empty() {
            interface = interface.holding(driver);
        }
        if let Some(size) = property(device, "host_mtu") {
            interface = interface.holding(New::named("mtu").with("size", size));
        }
        interface.children.extend(boot(device));
        interface.children.extend(self.buses.address(device));
        self.unsaid(device, &["netdev", "mac", "host_mtu", "rx_queue_size", "tx_queue_size", "packed"]);
        self.devices.push(interface);
    }

    fn network_driver(&self, device: &Device, virtio: bool) -> New {
        let mut driver = New::named("driver");
        if !virtio {
            return driver;
        }
        match device.backend.as_ref().map(|set| set.value) {
            Some(Backend::Vhost) => driver = driver.with("name", "vhost"),
            Some(Backend::Vmm) => driver = driver.with("name", "qemu"),
            _ => {}
        }
        if let Some(queues) = device.queues.as_ref().filter(|set| set.value > 1) {
            driver = driver.with("queues", queues.value.to_string());
        }
        for name in ["rx_queue_size", "tx_queue_size", "packed"] {
            if let Some(value) = property(device, name) {
                driver = driver.with(name, value);
            }
        }
        driver
    }

    /// The type of the source and its element; `None` if libvirt has no such type.
    fn network_source(
        &mut self,
        device: &Device,
        back: Option<&GivenOption>,
        kind: &str,
    ) -> Option<(&'static str, Option<New>)> {
        let said = |key: &str| back.and_then(|back| back.get(key));
        Some(match kind {
            "user" => {
                for key in ["hostfwd", "net", "smb", "tftp", "guestfwd"] {
                    if let Some(value) = said(key) {
                        self.loss(
                            format!("-netdev user,{key}={value}"),
                            "libvirt has port forwards for <backend type='passt'/> alone.",
                        );
                    }
                }
                ("user", None)
            }
            "tap" => {
                if said("fd").or(said("fds")).is_some() {
                    self.note("The tap device was passed open; its bridge is not among the arguments, and is to be named.");
                }
                match said("br") {
                    Some(bridge) => ("bridge", Some(New::named("source").with("bridge", bridge))),
                    None => ("ethernet", None),
                }
            }
            "bridge" => {
                let bridge = said("br").unwrap_or("br0");
                ("bridge", Some(New::named("source").with("bridge", bridge)))
            }
            "vhost-user" => {
                let chardev = self.named("chardev", "id", said("chardev")?)?;
                let server = matches!(chardev.get("server"), Some("on" | "true"));
                let source = New::named("source").with("type", "unix").with("path", chardev.get("path")?);
                ("vhostuser", Some(source.with("mode", if server { "server" } else { "client" })))
            }
            "vhost-vdpa" => ("vdpa", Some(New::named("source").with("dev", said("vhostdev")?))),
            _ => {
                self.note(format!(
                    "The network {} is passed through: libvirt has no such source.",
                    device.model
                ));
                return None;
            }
        })
    }

    pub(super) fn assigned(&mut self, device: &Device) {
        let Some(origin) = self.origin(device) else { return };
        let host = property(device, "host");
        let mut source = New::named("source");
        let kind = match (device.model.as_str(), host, property(device, "sysfsdev")) {
            ("vfio-pci", Some(host), _) => {
                let Some(address) = host_address(host) else { return };
                source = source.holding(address);
                "pci"
            }
            ("vfio-pci", None, Some(path)) => {
                let name = path.rsplit('/').next().unwrap_or_default();
                match host_address(name).filter(|_| path.starts_with("/sys/bus/pci/")) {
                    Some(address) => {
                        source = source.holding(address);
                        "pci"
                    }
                    None => {
                        source = source.holding(New::named("address").with("uuid", name));
                        "mdev"
                    }
                }
            }
            ("usb-host", _, _) => {
                let (vendor, product) = (property(device, "vendorid"), property(device, "productid"));
                let (bus, number) = (property(device, "hostbus"), property(device, "hostaddr"));
                if let (Some(vendor), Some(product)) = (vendor, product) {
                    source = source.holding(New::named("vendor").with("id", vendor));
                    source = source.holding(New::named("product").with("id", product));
                } else if let (Some(bus), Some(number)) = (bus, number) {
                    source = source.holding(New::named("address").with("bus", bus).with("device", number));
                } else {
                    return;
                }
                "usb"
            }
            _ => return,
        };
        origin.used.set(true);
        let mut element = New::named("hostdev").with("mode", "subsystem").with("type", kind);
        element = match kind {
            "mdev" => element.with("model", "vfio-pci"),
            _ => element.with("managed", "yes"),
        };
        element = element.holding(source);
        element.children.extend(boot(device));
        if property(device, "rombar").or(property(device, "romfile")).is_some() {
            let mut rom = New::named("rom");
            if let Some(bar) = property(device, "rombar") {
                rom = rom.with("bar", if matches!(bar, "0" | "off") { "off" } else { "on" });
            }
            if let Some(file) = property(device, "romfile").filter(|file| !file.is_empty()) {
                rom = rom.with("file", file);
            }
            element = element.holding(rom);
        }
        element.children.extend(self.buses.address(device));
        let said = ["host", "sysfsdev", "vendorid", "productid", "hostbus", "hostaddr", "rombar", "romfile"];
        self.unsaid(device, &said);
        self.devices.push(element);
    }
}

/// `0000:81:02.3` as an element; the domain may be missing.
fn host_address(text: &str) -> Option<New> {
    let (rest, function) = text.rsplit_once('.')?;
    let mut parts = rest.rsplit(':');
    let (slot, bus, domain) = (parts.next()?, parts.next()?, parts.next().unwrap_or("0000"));
    let valid = |digits: &str| u32::from_str_radix(digits, 16).is_ok();
    if ![domain, bus, slot, function].iter().all(|digits| valid(digits)) {
        return None;
    }
    let address =
        New::named("address").with("domain", format!("0x{domain:0>4}")).with("bus", format!("0x{bus:0>2}"));
    Some(address.with("slot", format!("0x{slot:0>2}")).with("function", format!("0x{function}")))
}
