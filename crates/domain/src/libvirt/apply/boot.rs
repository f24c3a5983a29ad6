//! The disk from which a guest starts.

use crate::libvirt::names;
use crate::xml::Node;
use std::collections::HashMap;

/// The disk from which the guest starts if the order of disks decides it: the first one by bus and target. libvirt
/// keeps the order in which the buses occur, and sorts the disks of each bus by their targets (`virDomainDiskInsert`).
pub(super) fn disk(domain: Node<'_>) -> Option<Node<'_>> {
    let devices = domain.child("devices")?;
    let mut kinds = domain.child("os").into_iter().flat_map(|os| os.all("boot")).peekable();
    let from_disk = kinds.peek().is_none() || kinds.any(|boot| boot.get("dev") == Some("hd"));
    let by_order = devices.children().any(|device| device.child("boot").is_some());
    if !from_disk || by_order || domain.child("os/kernel").is_some() {
        return None;
    }
    let mut buses: HashMap<&str, usize> = HashMap::new();
    for (number, disk) in devices.all("disk").enumerate() {
        buses.entry(names::disk_bus(disk)).or_insert(number);
    }
    let is_hard = |disk: &Node<'_>| !matches!(disk.get("device"), Some("cdrom" | "floppy"));
    devices
        .all("disk")
        .filter(is_hard)
        .min_by_key(|disk| (buses.get(names::disk_bus(*disk)).copied(), target(*disk)))
}

/// A key that sorts targets of one bus: `sdb` before `sdaa` (`virDiskNameToIndex`).
fn target<'t>(disk: Node<'t>) -> (usize, &'t str) {
    let name = disk.find("target@dev").unwrap_or_default();
    let prefixes = ["xvd", "ubd", "vd", "sd", "hd", "fd"];
    let letters = prefixes.into_iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name);
    let letters = letters.trim_end_matches(|letter: char| letter.is_ascii_digit());
    (letters.len(), letters)
}
