//! Network interfaces: `-netdev` and `-device`.

use super::{Properties, Writing};
use crate::convert::seen::Part;
use crate::libvirt::names;

impl<'t> Writing<'t, '_> {
    pub(super) fn interfaces(&mut self, devices: Part<'t, '_>) {
        let order = self.boot_order("network");
        for (number, interface) in devices.all("interface").into_iter().enumerate() {
            self.interface(interface, number, order.filter(|_| number == 0));
        }
    }

    fn interface(&mut self, interface: Part<'t, '_>, number: usize, order: Option<usize>) {
        let kind = interface.get("@type").unwrap_or_default();
        if kind == "hostdev" {
            return self.assigned_interface(interface);
        }
        let model = names::interface(interface.node);
        interface.get("model@type");
        let id = self.id(interface, "net");
        let back = format!("host{id}");
        let queues = interface.get("driver@queues");
        let backend = match kind {
            "user" => Properties::of("user"),
            "vhostuser" => {
                let server = interface.get("source@mode") == Some("server");
                interface.get("source@type");
                let path = interface.get("source@path").unwrap_or_default();
                let chardev = Properties::of("socket").with("id", format!("char{id}")).with("path", path);
                let chardev = if server { chardev.with("server", "on") } else { chardev };
                self.option("-chardev", chardev.0);
                Properties::of("vhost-user").with("chardev", format!("char{id}")).maybe("queues", queues)
            }
            "vdpa" => {
                let device = interface.get("source@dev").unwrap_or_default();
                Properties::of("vhost-vdpa").with("vhostdev", device).maybe("queues", queues)
            }
            "udp" | "mcast" | "server" | "client" => socket(interface, kind),
            "direct" => {
                self.loss(
                    interface,
                    "libvirt makes a macvtap device and passes it open; QEMU takes it as -netdev tap,fd=N.",
                );
                return;
            }
            _ => self.tap(interface, number, queues),
        };
        if kind != "user" || model.starts_with("virtio") {
            interface.get("driver@name");
        }
        self.option("-netdev", backend.with("id", &back).0);
        let mut device =
            Properties::of(&model).with("netdev", back).maybe("mac", interface.get("mac@address"));
        if let Some(queues) =
            queues.and_then(|queues| queues.parse::<u32>().ok()).filter(|queues| *queues > 1)
        {
            // A vector for each direction of each queue, one for the configuration, and one for control.
            device = device.with("mq", "on").with("vectors", queues.saturating_mul(2).saturating_add(2));
        }
        device = device.maybe("rx_queue_size", interface.get("driver@rx_queue_size"));
        device = device.maybe("tx_queue_size", interface.get("driver@tx_queue_size"));
        device = device.maybe("host_mtu", interface.get("mtu@size").filter(|_| model.starts_with("virtio")));
        if interface.get("boot@order").is_none() {
            device = device.maybe("bootindex", order);
        }
        self.device(interface, &id, device);
    }

    /// libvirt creates tap devices itself; QEMU needs existing ones.
    fn tap(&mut self, interface: Part<'t, '_>, number: usize, queues: Option<&str>) -> Properties {
        let name = interface.get("target@dev").map_or_else(|| format!("vnet{number}"), str::to_owned);
        interface.get("target@managed");
        let bridge = interface.get("source@bridge");
        let network = interface.get("source@network");
        interface.get("source@portid");
        let onto = match (bridge, network) {
            (Some(bridge), _) => format!("; ip link set {name} master {bridge} up"),
            (None, Some(network)) => {
                format!("; ip link set {name} up, and put it on the bridge of libvirt's network {network}")
            }
            _ => format!("; ip link set {name} up"),
        };
        let several = if queues.is_some() { " multi_queue" } else { "" };
        self.note(format!(
            "The tap device must be there before QEMU starts: ip tuntap add {name} mode tap{several}{onto}."
        ));
        let script = |path: &str| interface.get(path).unwrap_or("no");
        let tap = Properties::of("tap").with("ifname", name);
        let tap = tap.with("script", script("script@path")).with("downscript", script("downscript@path"));
        let virtio = names::interface(interface.node).starts_with("virtio-net");
        let vhost = match interface.get("driver@name") {
            Some("qemu") => "off",
            Some("vhost") => "on",
            // libvirt uses vhost-net for virtio if the host has it.
            _ if virtio && self.kvm => "on",
            _ => "off",
        };
        tap.with("vhost", vhost).maybe("queues", queues)
    }

    fn assigned_interface(&mut self, interface: Part<'t, '_>) {
        let address = interface.child("source/address");
        let host = address.and_then(|address| {
            address.ignore_all();
            crate::libvirt::pci_address(address.node)
        });
        interface.get("@managed");
        interface.get("driver@name");
        let Some(host) = host else { return self.loss(interface, "Its address on the host is missing.") };
        let id = self.id(interface, "hostdev");
        self.device(interface, &id, Properties::of("vfio-pci").with("host", host));
        if interface.has("mac") {
            self.note("libvirt sets the MAC address of an assigned interface on the host: ip link set DEVICE vf N mac.");
            interface.ignore("mac");
        }
    }
}

fn socket(interface: Part<'_, '_>, kind: &str) -> Properties {
    let address = interface.get("source@address").unwrap_or_default();
    let port = interface.get("source@port").unwrap_or_default();
    let end = format!("{address}:{port}");
    match kind {
        "mcast" => Properties::of("socket").with("mcast", end),
        "server" => Properties::of("socket").with("listen", end),
        "client" => Properties::of("socket").with("connect", end),
        _ => {
            let local = interface.child("source/local");
            let part = |name: &str| local.and_then(|local| local.get(name)).unwrap_or_default();
            let from = format!("{}:{}", part("@address"), part("@port"));
            Properties::of("socket").with("udp", end).with("localaddr", from)
        }
    }
}
