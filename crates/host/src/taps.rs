//! The network interfaces of a VM: its taps, their traffic, and the interrupts of the host's adapters behind
//! them.

use crate::thread_id::below;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The traffic of an interface since its creation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Carried {
    /// Packets in both directions.
    pub packets: u64,
    /// Bytes in both directions.
    pub bytes: u64,
}

/// An interrupt of one of the host's network adapters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct AdapterInterrupt {
    /// The adapter's interface.
    pub adapter: String,
    /// The interrupt's number in `/proc/irq`.
    pub number: u32,
}

const INTERFACES: &str = "/sys/class/net";
/// The largest number of a VM's descriptors to examine.
const MOST_DESCRIPTORS: usize = 65_536;

/// The open taps of a process, ascending: `iff:` of `/proc/PID/fdinfo/N` (drivers/net/tun.c,
/// `tun_chr_show_fdinfo`), and for macvtap the interface of `/dev/tapN`.
#[must_use]
pub fn of_process(root: &Path, pid: i32) -> Vec<String> {
    let (home, root) = (below(root, &format!("/proc/{pid}")), root.to_owned());
    files::look(&home, move || open_in(&root, pid)).unwrap_or_default()
}

fn open_in(root: &Path, pid: i32) -> Vec<String> {
    let mut taps = BTreeSet::new();
    let descriptors = fs::read_dir(below(root, &format!("/proc/{pid}/fd"))).into_iter().flatten().flatten();
    for descriptor in descriptors.take(MOST_DESCRIPTORS) {
        let Ok(target) = fs::read_link(descriptor.path()) else { continue };
        let number = descriptor.file_name();
        match target.to_str() {
            Some("/dev/net/tun") => {
                let about = below(root, &format!("/proc/{pid}/fdinfo/{}", number.to_string_lossy()));
                let about = fs::read_to_string(about).unwrap_or_default();
                let name = about.lines().find_map(|line| line.strip_prefix("iff:"));
                taps.extend(name.map(str::trim).filter(|name| is_name(name)).map(str::to_owned));
            }
            Some(path) => {
                let index = path.strip_prefix("/dev/tap").and_then(|index| index.parse::<u32>().ok());
                taps.extend(index.and_then(|index| by_index(root, index)));
            }
            None => {}
        }
    }
    taps.into_iter().collect()
}

fn by_index(root: &Path, index: u32) -> Option<String> {
    interfaces(root).into_iter().find(|name| {
        let text = fs::read_to_string(below(root, &format!("{INTERFACES}/{name}/ifindex")));
        text.is_ok_and(|text| text.trim().parse() == Ok(index))
    })
}

fn interfaces(root: &Path) -> Vec<String> {
    let all = fs::read_dir(below(root, INTERFACES)).into_iter().flatten().flatten();
    all.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// The traffic of an interface; `None` if it does not exist, or is in another network namespace.
#[must_use]
pub fn carried(root: &Path, interface: &str) -> Option<Carried> {
    let counter = |name: &str| {
        let file = below(root, &format!("{INTERFACES}/{interface}/statistics/{name}"));
        fs::read_to_string(file).ok()?.trim().parse::<u64>().ok()
    };
    Some(Carried {
        packets: counter("rx_packets")?.wrapping_add(counter("tx_packets")?),
        bytes: counter("rx_bytes")?.wrapping_add(counter("tx_bytes")?),
    })
}

/// The interrupts of the adapters that forward the packets of a tap: those of its bridge, or the one below a
/// macvtap.
#[must_use]
pub fn adapter_interrupts(root: &Path, tap: &str) -> Vec<AdapterInterrupt> {
    let home = below(root, &format!("{INTERFACES}/{tap}"));
    let mut beside: BTreeSet<String> = BTreeSet::new();
    let bridge = fs::read_link(home.join("master")).ok();
    if let Some(bridge) = bridge.as_deref().and_then(Path::file_name).and_then(|name| name.to_str()) {
        let members = fs::read_dir(below(root, &format!("{INTERFACES}/{bridge}/brif")));
        let names = members.into_iter().flatten().flatten();
        beside.extend(names.filter_map(|entry| entry.file_name().into_string().ok()));
    }
    for entry in fs::read_dir(&home).into_iter().flatten().flatten() {
        let name = entry.file_name().into_string().ok();
        beside.extend(name.and_then(|name| name.strip_prefix("lower_").map(str::to_owned)));
    }
    let mut found = BTreeSet::new();
    for adapter in beside.into_iter().filter(|name| is_name(name)) {
        let device = below(root, &format!("{INTERFACES}/{adapter}/device"));
        // A virtio adapter's interrupts belong to its parent PCI device.
        for place in [device.join("msi_irqs"), device.join("../msi_irqs")] {
            for entry in fs::read_dir(place).into_iter().flatten().flatten() {
                let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
                found.extend(number.map(|number| AdapterInterrupt { adapter: adapter.clone(), number }));
            }
        }
    }
    found.into_iter().collect()
}

/// Names of interfaces contain no slash and are not `.` or `..` (`dev_valid_name`).
fn is_name(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains('/')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::unpack;

    const HOST: &str = "\n== /proc/7/fd/5 -> /dev/net/tun\n== /proc/7/fdinfo/5\npos:\t0\niff:\ttap0\n\
        == /proc/7/fd/6 -> /dev/tap12\n== /proc/7/fd/8 -> /dev/net/tun\n== /proc/7/fdinfo/8\niff:\t../x\n\
        == /sys/class/net/macvtap0/ifindex\n12\n== /sys/class/net/macvtap0/lower_eth1/device/msi_irqs/77\nmsix\n\
        == /sys/class/net/eth1/device/msi_irqs/77\nmsix\n\
        == /sys/class/net/tap0/master -> ../br0\n== /sys/class/net/br0/brif/tap0/\n== /sys/class/net/br0/brif/eth0/\n\
        == /sys/devices/pci/msi_irqs/40\nmsix\n== /sys/devices/pci/msi_irqs/41\nmsix\n== /sys/devices/pci/virtio0/x\n1\n\
        == /sys/class/net/eth0/device -> ../../../devices/pci/virtio0\n\
        == /sys/class/net/tap0/statistics/rx_packets\n3\n== /sys/class/net/tap0/statistics/tx_packets\n4\n\
        == /sys/class/net/tap0/statistics/rx_bytes\n300\n== /sys/class/net/tap0/statistics/tx_bytes\n400\n";

    #[test]
    fn taps_and_what_lies_behind_them() {
        let directory = tempfile::tempdir().unwrap();
        unpack(HOST, directory.path()).unwrap();
        let root = directory.path();
        assert_eq!(of_process(root, 7), ["macvtap0", "tap0"]);
        assert_eq!(of_process(root, 8), [""; 0]);
        assert_eq!(carried(root, "tap0"), Some(Carried { packets: 7, bytes: 700 }));
        assert_eq!(carried(root, "tap1"), None);
        let of = |tap| {
            let all = adapter_interrupts(root, tap).into_iter();
            all.map(|one| (one.adapter, one.number)).collect::<Vec<_>>()
        };
        assert_eq!(of("tap0"), [("eth0".to_owned(), 40), ("eth0".to_owned(), 41)]);
        assert_eq!(of("macvtap0"), [("eth1".to_owned(), 77)]);
        assert_eq!(of("gone"), []);
    }
}
