//! The backends of devices: `-drive`, `-blockdev`, `-netdev`, `-net` and `-chardev`.

use super::items::Item;
use super::properties::{Property, switch};
use super::reading::Reading;
use crate::{Backend, Device, Set};
use std::cell::Cell;
use std::collections::HashMap;

/// The limit of what is read of backends, in bytes, counted once for each device. Real ones have some hundred bytes, and
/// QEMU gives most of them to one device. A hostile command line could give a long one to tens of thousands of devices,
/// each of which would have a copy.
const MOST_READ: usize = 16 << 20;

/// Indices of the items to which devices refer.
#[derive(Debug, Default)]
pub(super) struct Backends {
    drives: HashMap<String, usize>,
    nodes: HashMap<String, usize>,
    networks: HashMap<String, usize>,
    characters: HashMap<String, usize>,
    hub: Option<usize>,
    /// The size of each item, in bytes.
    sizes: Vec<usize>,
    /// The sum of the sizes that were read for devices.
    read: Cell<usize>,
}

impl Backends {
    /// The backends of a command. Of two with the same name the first counts, because QEMU rejects the
    /// second.
    pub(super) fn of(reading: &Reading<'_>) -> Self {
        let size = |item: &Item| -> usize {
            item.properties.list.iter().map(|property| property.key.len() + property.value.len()).sum()
        };
        let mut found = Self { sizes: reading.items.iter().map(size).collect(), ..Self::default() };
        for (number, item) in reading.items.iter().enumerate() {
            let (names, key) = match item.name.as_str() {
                "drive" => (&mut found.drives, "id"),
                "blockdev" => (&mut found.nodes, "node-name"),
                "netdev" => (&mut found.networks, "id"),
                "chardev" => (&mut found.characters, "id"),
                "net" if !matches!(item.value("type"), Some("nic" | "none")) => {
                    found.hub = Some(number);
                    continue;
                }
                _ => continue,
            };
            if let Some(name) = item.text(key) {
                names.entry(name).or_insert(number);
            }
        }
        found
    }

    /// The item of a disk's `drive=`.
    pub(super) fn disk(&self, name: &str) -> Option<usize> {
        self.nodes.get(name).or_else(|| self.drives.get(name)).copied()
    }

    /// The item of a network interface's `netdev=`.
    pub(super) fn network(&self, name: &str) -> Option<usize> {
        self.networks.get(name).copied()
    }

    /// The last backend of `-net`, which connects all its interfaces and backends to one hub.
    pub(super) fn hub(&self) -> Option<usize> {
        self.hub
    }

    /// The item of a `chardev=`.
    pub(super) fn character(&self, name: &str) -> Option<usize> {
        self.characters.get(name).copied()
    }

    /// Tests whether a backend may be read for one more device.
    pub(super) fn may_read(&self, number: usize) -> bool {
        self.read.set(self.read.get().saturating_add(self.sizes[number]));
        !self.is_exhausted()
    }

    /// Tests whether the limit is reached, so that no more are read.
    pub(super) fn is_exhausted(&self) -> bool {
        self.read.get() > MOST_READ
    }

    /// The nodes below a block device, starting with itself: format, filters, and the file.
    fn chain(&self, reading: &Reading<'_>, first: usize) -> Vec<usize> {
        // Longer chains are loops.
        const LONGEST: usize = 16;
        let mut found = vec![first];
        while let Some(&last) = found.last().filter(|&&last| self.may_read(last)) {
            let Some(file) = lowest_property(&reading.items[last], "file") else { break };
            match self.nodes.get(&file.value) {
                Some(&next) if found.len() < LONGEST => found.push(next),
                _ => break,
            }
        }
        found
    }

    /// The item of a disk's backend to which the I/O method (`aio`) belongs.
    pub(super) fn lowest(&self, reading: &Reading<'_>, first: usize) -> usize {
        self.chain(reading, first).last().copied().unwrap_or(first)
    }

    /// Adds the settings of a disk's backend to the device.
    pub(super) fn describe_disk(&self, reading: &Reading<'_>, first: usize, device: &mut Device) {
        let chain = self.chain(reading, first);
        for number in chain.into_iter().filter(|_| !self.is_exhausted()) {
            let item = &reading.items[number];
            device.resource =
                lowest_property(item, "driver").map(|driver| driver.value.clone()).or(device.resource.take());
            let aio = lowest_property(item, "aio");
            device.aio = device.aio.take().or_else(|| Some(reading.said(item, aio?)));
            for key in ["filename", "file", "host_device", "vhost-user"] {
                let property = lowest_property(item, key);
                let named = property.filter(|property| !self.nodes.contains_key(&property.value));
                device.source = device.source.take().or_else(|| Some(reading.said(item, named?)));
            }
            device.cache = device.cache.take().or_else(|| cache(reading, item));
        }
    }

    /// Adds the settings of a network interface's backend to the device.
    pub(super) fn describe_network(reading: &Reading<'_>, item: &Item, device: &mut Device) {
        let kind = item.value("type").unwrap_or_default();
        device.resource = Some(kind.to_owned());
        let (backend, place) = match kind {
            "vhost-user" => (Backend::VhostUser, reading.set(item, "type")),
            "vhost-vdpa" => (Backend::Vdpa, reading.set(item, "type")),
            "nic" | "none" | "" => return,
            _ => {
                let force = reading.switch(item, "vhostforce").filter(|set| set.value);
                let switch = reading.switch(item, "vhost").or(force);
                // vhost file descriptors alone do not enable vhost; libvirt passes both.
                let on = switch.as_ref().is_some_and(|set| set.value);
                let place = switch.map(|set| Set::new(String::new(), set.place));
                (if on { Backend::Vhost } else { Backend::Vmm }, place)
            }
        };
        let place = place.map_or_else(|| item.place.clone(), |set| set.place);
        device.backend = Some(Set::new(backend, place));
        for key in ["ifname", "vhostdev", "br", "chardev", "path"] {
            device.source = device.source.take().or_else(|| reading.set(item, key));
        }
    }

    /// The queue pairs of a network backend; `None` if not given, which means one.
    pub(super) fn queues(reading: &Reading<'_>, item: &Item) -> Option<Set<u32>> {
        if let Some(queues) = reading.number(item, "queues") {
            return Some(queues);
        }
        let descriptors = reading.set(item, "fds").or_else(|| reading.set(item, "vhostfds"))?;
        let count = descriptors.value.split(':').count();
        Some(Set::new(u32::try_from(count).ok()?, descriptors.place))
    }
}

/// A property of a block node, given for the node itself or nested in a node above it (`file.file.aio`). If
/// several nodes have it, that of the lowest node.
pub(super) fn lowest_property<'a>(item: &'a Item, name: &str) -> Option<&'a Property> {
    let named = item.properties.list.iter().filter(|property| {
        let mut key = property.key.as_str();
        while let Some(below) = key.strip_prefix("file.") {
            key = below;
        }
        key == name
    });
    named.max_by_key(|property| property.key.len())
}

/// The cache mode: the name in `-drive cache=`, or the one that corresponds to the block node's two switches
/// (`bdrv_parse_cache_mode` in QEMU's `block.c`).
fn cache(reading: &Reading<'_>, item: &Item) -> Option<Set<String>> {
    if let Some(cache) = reading.set(item, "cache") {
        return Some(cache);
    }
    let nested = |name| {
        let property = lowest_property(item, name)?;
        Some(Set::new(switch(&property.value)?, reading.place(item, property)))
    };
    let direct = nested("cache.direct");
    let unsafe_ = nested("cache.no-flush").filter(|set| set.value);
    match (direct, unsafe_) {
        (_, Some(set)) => Some(Set::new("unsafe".to_owned(), set.place)),
        (Some(set), None) => {
            Some(Set::new(if set.value { "none" } else { "writeback" }.to_owned(), set.place))
        }
        (None, None) => None,
    }
}
