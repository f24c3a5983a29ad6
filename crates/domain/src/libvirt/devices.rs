//! `<devices>`.

use super::names;
use super::reading::Reading;
use crate::xml::{Node, SECRET, Value};
use crate::{Backend, Device, DeviceKind, Set};

/// Children of `<devices>` that are not devices of the guest: displays, audio backends, and QEMU's program.
const NO_DEVICES: [&str; 6] = ["emulator", "graphics", "audio", "lease", "nvram", "redirfilter"];

impl<'t> Reading<'t> {
    pub(super) fn devices(&mut self) {
        let Some(devices) = self.domain.child("devices") else { return };
        let machine = self.domain.find("os/type@machine").unwrap_or_default();
        let primary = devices.all("video").find(|video| video.find("model@primary") == Some("yes"));
        let primary = primary.or_else(|| devices.all("video").next()).map(|video| video.index);
        let serial = devices.child("serial").is_some();
        for node in devices.children() {
            let (kind, model) = match node.full_name() {
                "disk" => (DeviceKind::Disk, Some(names::disk(node))),
                "interface" if node.find("@type") == Some("hostdev") => {
                    (DeviceKind::Assigned, Some(names::interface(node)))
                }
                "interface" => (DeviceKind::Network, Some(names::interface(node))),
                "controller" => (DeviceKind::Controller, names::controller(node, machine)),
                "hostdev" => {
                    let model = names::assigned(node);
                    // Devices behind an emulated bus of the VMM are not assigned through VFIO.
                    let kind = match model.as_str() {
                        "usb-host" => DeviceKind::Other,
                        "scsi-generic" => DeviceKind::Disk,
                        model if model.starts_with("vhost-scsi") => DeviceKind::Controller,
                        _ => DeviceKind::Assigned,
                    };
                    (kind, Some(model))
                }
                "video" => (DeviceKind::Display, names::video(node, primary == Some(node.index))),
                "sound" => (DeviceKind::Sound, Some(names::sound(node))),
                "input" => (DeviceKind::Input, Some(names::input(node))),
                // The first console of the kind `serial` is the guest's view of the first <serial>.
                "console" if serial && matches!(node.find("target@type"), None | Some("serial")) => continue,
                "serial" | "parallel" | "console" | "channel" => {
                    (DeviceKind::Serial, Some(names::character(node)))
                }
                "iommu" => {
                    self.iommu(node);
                    continue;
                }
                name if NO_DEVICES.contains(&name) => continue,
                _ => {
                    let model = names::other(node);
                    if model.is_none() && !is_known(node) {
                        let place = node.place();
                        let doubt = format!("Line {}: {} is not a known device.", place.line, place.text);
                        self.definition.doubts.push(doubt);
                    }
                    (DeviceKind::Other, model)
                }
            };
            if let Some(model) = model {
                let device = self.device(node, kind, model);
                self.definition.devices.push(device);
            }
        }
    }

    fn device(&mut self, node: Node<'t>, kind: DeviceKind, model: String) -> Device {
        let queues = match kind {
            DeviceKind::Disk | DeviceKind::Network | DeviceKind::Controller | DeviceKind::Other => {
                self.number(node, "driver@queues")
            }
            _ => None,
        };
        let mut properties = Vec::new();
        flatten(node, "", DEEPEST, &mut properties);
        let disk = kind == DeviceKind::Disk;
        Device {
            kind,
            id: node.find("alias@name").or_else(|| node.find("target@dev")).map(str::to_owned),
            backend: backend(node, kind, &model),
            queues,
            iothreads: iothreads(node),
            aio: node.value("driver@io").filter(|_| disk).map(|aio| aio.string()),
            cache: node
                .value("driver@cache")
                .or_else(|| shared(node))
                .filter(|_| disk)
                .map(|cache| cache.string()),
            source: source(node),
            resource: node
                .get("type")
                .filter(|_| matches!(kind, DeviceKind::Disk | DeviceKind::Network))
                .map(str::to_owned),
            reconnects: reconnects(node),
            properties,
            place: node.place(),
            model,
        }
    }
}

/// Known elements that are not devices for some of their models.
fn is_known(node: Node<'_>) -> bool {
    ["memballoon", "watchdog", "panic", "memory", "video", "controller"].contains(&node.full_name())
}

/// The limits of nesting and of properties; no element of libvirt reaches them.
const DEEPEST: usize = 5;
const MOST_PROPERTIES: usize = 512;

/// All attributes and texts of a device: `driver@cache`, `target@bus`, `alias@name`.
fn flatten(node: Node<'_>, path: &str, depth: usize, into: &mut Vec<(String, String)>) {
    for attribute in &node.element().attributes {
        let name = &node.tree.text[attribute.name.clone()];
        let value = if SECRET.contains(&name) { "***" } else { node.get(name).unwrap_or_default() };
        into.push((format!("{path}@{name}"), value.to_owned()));
    }
    let text = node.element().text.trim();
    if !text.is_empty() {
        // Cookies grant access.
        let text = if path.ends_with("cookie") { "***" } else { text };
        into.push((path.to_owned(), text.to_owned()));
    }
    for child in node.children() {
        if depth == 0 || into.len() > MOST_PROPERTIES {
            return;
        }
        let below =
            if path.is_empty() { child.name().to_owned() } else { format!("{path}/{}", child.name()) };
        flatten(child, &below, depth - 1, into);
    }
}

fn backend(node: Node<'_>, kind: DeviceKind, model: &str) -> Option<Set<Backend>> {
    let place = node.place();
    if model.starts_with("vhost-user") {
        return Some(Set::new(Backend::VhostUser, place));
    }
    if model.starts_with("vhost-") {
        return Some(Set::new(Backend::Vhost, place));
    }
    let said = node.value("@type")?;
    match (kind, said.text) {
        (DeviceKind::Disk, "vhostvdpa") | (DeviceKind::Network, "vdpa") => Some(said.set(Backend::Vdpa)),
        (DeviceKind::Network, "vhostuser") => Some(said.set(Backend::VhostUser)),
        // User-space networks have no tap that the kernel could serve.
        (DeviceKind::Network, "user" | "udp" | "server" | "client" | "mcast") => Some(said.set(Backend::Vmm)),
        (DeviceKind::Network, _) => {
            let driver = node.value("driver@name")?;
            match driver.text {
                "vhost" => Some(driver.set(Backend::Vhost)),
                "qemu" => Some(driver.set(Backend::Vmm)),
                _ => None,
            }
        }
        _ => None,
    }
}

/// The cache mode of a disk that VMs share: libvirt then defaults to `none` (`qemuDomainPrepareDiskCachemode`).
fn shared(disk: Node<'_>) -> Option<Value<'_>> {
    disk.child("shareable").map(|element| Value { text: "none", place: element.place() })
}

/// See [`Device::reconnects`].
fn reconnects(node: Node<'_>) -> Option<bool> {
    let source = node.child("source").filter(|source| source.get("type") == Some("unix"))?;
    let vhost_user = node.get("type") == Some("vhostuser");
    vhost_user
        .then(|| source.get("mode") == Some("server") || source.find("reconnect@enabled") == Some("yes"))
}

fn iothreads(node: Node<'_>) -> Vec<Set<String>> {
    let Some(driver) = node.child("driver") else { return Vec::new() };
    let one = driver.attribute("iothread");
    let mapped = driver.child("iothreads");
    let mapped = mapped.into_iter().flat_map(|all| all.all("iothread")).filter_map(|one| one.attribute("id"));
    one.into_iter().chain(mapped).map(|id: Value<'_>| id.set(format!("iothread{}", id.text))).collect()
}

/// The resource of a device on the host.
fn source(node: Node<'_>) -> Option<Set<String>> {
    let source = node.child("source")?;
    if let Some(address) = source.child("address") {
        if let Some(written) = pci_address(address) {
            return Some(Set::new(written, address.place()));
        }
        if let Some(uuid) = address.attribute("uuid") {
            return Some(uuid.string());
        }
    }
    // Open vSwitch bridges and libvirt networks name no tap; the host knows them by their own names.
    let names = ["file", "dev", "bridge", "network", "name", "volume", "path", "dir", "socket", "wwpn"];
    names.into_iter().find_map(|name| source.attribute(name)).map(|value| value.string())
}

/// `0000:03:00.0`, from an address in hexadecimal or decimal digits.
pub(crate) fn pci_address(address: Node<'_>) -> Option<String> {
    let part = |name: &str| {
        let text = address.get(name)?;
        match text.strip_prefix("0x") {
            Some(digits) => u32::from_str_radix(digits, 16).ok(),
            None => text.parse::<u32>().ok(),
        }
    };
    let domain = part("domain").unwrap_or(0);
    Some(format!(
        "{domain:04x}:{:02x}:{:02x}.{:x}",
        part("bus")?,
        part("slot")?,
        part("function").unwrap_or(0)
    ))
}
