//! The guest's network interface, its backend, and the addresses of both ends.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use guest::Network;

use super::super::addresses::{PREFIX, measured_network};
use super::super::plan::{NetBackend, NetModel, NetPlan, QemuPlan};
use super::data_plane::socket_of;
use super::options::{escaped, tap_name, virtio_suffix};

/// The host's address for guests with QEMU's user-mode network stack (docs/system/devices/net.rst of QEMU).
pub(super) const USER_HOST: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 2, 2));
const USER_GUEST: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 2, 15));
const BRIDGE: &str = "br0";
/// The time limit of a call of `ip`.
const PATIENCE: Duration = Duration::from_secs(60);
const LARGEST_ANSWER: usize = 64 << 10;

/// The network setup of one guest.
#[derive(Debug, Default)]
pub(super) struct Wiring {
    /// QEMU's arguments.
    pub(super) arguments: Vec<String>,
    /// The network settings that the agent gets.
    pub(super) guest: Option<Network>,
    /// The address at which the guest reaches the host.
    pub(super) host: Option<IpAddr>,
    /// The tap device, if QEMU or the I/O daemon creates one; the kernel removes it when that process ends.
    pub(super) tap: Option<Tap>,
}

/// A tap device that must be brought up once it exists.
#[derive(Debug)]
pub(super) struct Tap {
    name: String,
    /// The host's address on it; `None` in a bridge.
    address: Option<IpAddr>,
    bridge: Option<String>,
}

/// The network setup of guest `index`.
pub(super) fn wiring(plan: &QemuPlan, index: u32) -> Wiring {
    let Some(net) = plan.net() else { return Wiring::default() };
    let (host, own) = measured_network(index);
    let between = Some(Network::Static { address: own, prefix: PREFIX, host });
    let tap = tap_name(index);
    let queues = if net.queues > 1 { format!(",queues={}", net.queues) } else { String::new() };
    let carried = |vhost: &str| format!("tap,id=net,ifname={tap},script=no,downscript=no{vhost}{queues}");
    let (netdev, guest, host, tap) = match net.backend {
        NetBackend::User => {
            let guest = Network::Static { address: USER_GUEST, prefix: 24, host: USER_HOST };
            ("user,id=net".to_owned(), Some(guest), Some(USER_HOST), None)
        }
        NetBackend::Tap | NetBackend::Vhost => {
            let vhost = if net.backend == NetBackend::Vhost { ",vhost=on" } else { "" };
            let up = Tap { name: tap.clone(), address: Some(host), bridge: None };
            (carried(vhost), between, Some(host), Some(up))
        }
        NetBackend::Bridge => {
            let bridge = Some(net.bridge.clone().unwrap_or_else(|| BRIDGE.to_owned()));
            let up = Tap { name: tap.clone(), address: None, bridge };
            (carried(""), Some(Network::Dhcp), None, Some(up))
        }
        NetBackend::VhostUser | NetBackend::Iocm => {
            let made = net.backend == NetBackend::Iocm;
            let up = made.then(|| Tap { name: tap.clone(), address: Some(host), bridge: None });
            (format!("vhost-user,id=net,chardev=net{queues}"), between, Some(host), up)
        }
    };
    let mut arguments = Vec::new();
    if net.backend.is_vhost_user() {
        arguments.extend(shared_memory(plan, net, index));
    }
    arguments.extend(["-netdev".to_owned(), netdev, "-device".to_owned(), device(plan, net, index)]);
    Wiring { arguments, guest, host, tap }
}

fn device(plan: &QemuPlan, net: &NetPlan, index: u32) -> String {
    let [_, _, high, low] = index.to_be_bytes();
    let address = format!("mac=52:54:00:18:{high:02x}:{low:02x}");
    match net.model {
        NetModel::E1000 => format!("e1000,netdev=net,{address}"),
        NetModel::Rtl8139 => format!("rtl8139,netdev=net,{address}"),
        NetModel::Vmxnet3 => format!("vmxnet3,netdev=net,{address}"),
        NetModel::VirtioNet | NetModel::None => {
            let bus = virtio_suffix(plan);
            let mut device = format!("virtio-net-{bus},netdev=net,{address}");
            if net.queues > 1 {
                device += ",mq=on";
                if bus == "pci" {
                    // One vector for each virtqueue, one for configuration changes, one for the control queue.
                    device += &format!(",vectors={}", 2 * net.queues + 2);
                }
            }
            device
        }
    }
}

/// QEMU's arguments for a vhost-user device, which needs shared guest memory.
fn shared_memory(plan: &QemuPlan, net: &NetPlan, index: u32) -> Vec<String> {
    let given = net.socket.as_deref().unwrap_or_default().replace("{guest}", &index.to_string());
    let socket = if net.backend == NetBackend::Iocm { socket_of(index) } else { given.into() };
    let socket = escaped(&socket);
    [
        "-object".to_owned(),
        format!("memory-backend-memfd,id=memory,share=on,size={}k", plan.memory.bytes() >> 10),
        "-machine".to_owned(),
        "memory-backend=memory".to_owned(),
        "-chardev".to_owned(),
        format!("socket,id=net,path={socket}"),
    ]
    .to_vec()
}

impl Tap {
    /// Waits until the device exists, sets its address or its bridge, and brings it up. `ended` tests whether QEMU has
    /// ended.
    pub(super) fn bring_up(&self, patience: Duration, ended: &mut dyn FnMut() -> bool) -> Result<(), String> {
        let begun = Instant::now();
        while !Path::new("/sys/class/net").join(&self.name).exists() {
            if begun.elapsed() > patience || ended() {
                return Err(format!(
                    "QEMU made no tap device {}; it needs root (CAP_NET_ADMIN) and /dev/net/tun (modprobe tun)",
                    self.name
                ));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        if let Some(address) = self.address {
            ip(&["addr", "add", &format!("{address}/{PREFIX}"), "dev", &self.name])?;
        }
        if let Some(bridge) = &self.bridge {
            ip(&["link", "set", &self.name, "master", bridge])?;
        }
        ip(&["link", "set", &self.name, "up"])
    }
}

fn ip(words: &[&str]) -> Result<(), String> {
    let line = format!("ip {}", words.join(" "));
    let answer = programs::answer(Command::new("ip").args(words), PATIENCE, LARGEST_ANSWER);
    let answer = answer.map_err(|error| format!("Could not run `{line}`: {error}"))?;
    answer.text().map(drop).map_err(|said| format!("`{line}` failed: {said}"))
}
