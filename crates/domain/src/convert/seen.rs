//! Records the parts of libvirt's XML that a conversion has read: the others are losses.

use super::Loss;
use crate::xml::{Node, SECRET};
use std::cell::RefCell;
use std::collections::HashSet;

/// The parts that were read, by their first byte.
#[derive(Debug, Default)]
pub(super) struct Seen(RefCell<HashSet<usize>>);

/// An element that records the parts that are read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part<'t, 's> {
    pub(super) node: Node<'t>,
    seen: &'s Seen,
}

impl Seen {
    pub(super) const fn root<'t, 's>(&'s self, node: Node<'t>) -> Part<'t, 's> {
        Part { node, seen: self }
    }

    fn mark(&self, byte: usize) {
        self.0.borrow_mut().insert(byte);
    }

    fn has(&self, byte: usize) -> bool {
        self.0.borrow().contains(&byte)
    }
}

impl<'t, 's> Part<'t, 's> {
    const fn at(self, node: Node<'t>) -> Self {
        Self { node, seen: self.seen }
    }

    /// The value at a path (`driver@cache`, `source@file`, `name`), recorded as read.
    pub(super) fn get(self, path: &str) -> Option<&'t str> {
        let (below, name) = path.split_once('@').map_or((path, None), |(below, name)| (below, Some(name)));
        let node = if below.is_empty() { self.node } else { self.node.child(below)? };
        self.seen.mark(node.element().tag.start);
        let Some(name) = name else { return Some(node.element().text.trim()) };
        let tree = node.tree;
        let attribute = node.element().attributes.iter().find(|one| tree.text[one.name.clone()] == *name)?;
        self.seen.mark(attribute.name.start);
        node.get(name)
    }

    /// Tests whether a switch is on.
    pub(super) fn on(self, path: &str) -> bool {
        matches!(self.get(path), Some("on" | "yes"))
    }

    /// Tests whether an element exists.
    pub(super) fn has(self, path: &str) -> bool {
        self.child(path).is_some()
    }

    /// The first element at a path.
    pub(super) fn child(self, path: &str) -> Option<Self> {
        let node = self.node.child(path)?;
        self.seen.mark(node.element().tag.start);
        Some(self.at(node))
    }

    /// The children, in order.
    pub(super) fn children(self) -> impl Iterator<Item = Self> + use<'t, 's> {
        self.node.children().map(move |node| self.at(node))
    }

    /// The children with a name, in order.
    pub(super) fn all(self, name: &str) -> Vec<Self> {
        let found = self.node.children().filter(|child| child.full_name() == name);
        found
            .map(|node| self.at(node))
            .inspect(|part| self.seen.mark(part.node.element().tag.start))
            .collect()
    }

    /// Marks everything below an element as read: it has no effect on QEMU.
    pub(super) fn ignore(self, path: &str) {
        for child in self.node.children().filter(|child| child.full_name() == path) {
            self.at(child).ignore_all();
        }
    }

    /// Marks the element itself as read, with everything below it.
    pub(super) fn ignore_all(self) {
        self.seen.mark(self.node.element().tag.start);
        for attribute in &self.node.element().attributes {
            self.seen.mark(attribute.name.start);
        }
        for child in self.node.children() {
            self.at(child).ignore_all();
        }
    }

    /// The parts that were not read, as the topmost elements without a read part, and as single attributes.
    pub(super) fn losses(self) -> Vec<Loss> {
        let mut losses = Vec::new();
        self.unseen("", &mut losses);
        losses
    }

    fn unseen(self, path: &str, losses: &mut Vec<Loss>) {
        let element = self.node.element();
        if !self.is_seen() {
            losses.push(Loss {
                what: format!("line {}, {}", element.line, self.node.place().text),
                why: why(path),
            });
            return;
        }
        for attribute in element.attributes.iter().filter(|one| !self.seen.has(one.name.start)) {
            let name = &self.node.tree.text[attribute.name.clone()];
            if name.starts_with("xmlns") {
                continue;
            }
            let value = if SECRET.contains(&name) { "***" } else { self.node.get(name).unwrap_or_default() };
            let what = format!("line {}, {path}@{name}='{value}'", element.line);
            losses.push(Loss { what, why: why(&format!("{path}@{name}")) });
        }
        for child in self.node.children() {
            let below =
                if path.is_empty() { child.name().to_owned() } else { format!("{path}/{}", child.name()) };
            self.at(child).unseen(&below, losses);
        }
    }

    /// Tests whether any part of it was read.
    fn is_seen(self) -> bool {
        let element = self.node.element();
        self.seen.has(element.tag.start)
            || element.attributes.iter().any(|one| self.seen.has(one.name.start))
            || self.node.children().any(|child| self.at(child).is_seen())
    }
}

/// The reason why a part has no counterpart in QEMU's arguments.
fn why(path: &str) -> String {
    const WHY: [(&str, &str); 20] = [
        ("metadata", "It is for libvirt's clients alone."),
        ("title", "It is for people; QEMU has no argument for it."),
        ("description", "It is for people; QEMU has no argument for it."),
        ("cputune", "libvirt pins threads and sets shares once QEMU runs: `taskset -pc CPUS THREAD`."),
        (
            "devices/disk/auth",
            "The secret is libvirt's: QEMU takes it as -object secret, and key-secret= of the node.",
        ),
        (
            "devices/disk/encryption",
            "The secret is libvirt's: QEMU takes it as -object secret, and key-secret= of the node.",
        ),
        ("devices/disk/iotune", "QEMU takes it as -object throttle-group and a throttle node."),
        ("vcpu@cpuset", "libvirt pins the threads once QEMU runs: `taskset -apc CPUS PID`."),
        ("blkiotune", "libvirt sets it in the control group."),
        ("memtune", "libvirt sets it in the control group."),
        ("numatune", "libvirt sets it in the control group; `numactl` can do so for a command."),
        ("resource", "libvirt makes the control group; `systemd-run --scope` can do so for a command."),
        ("seclabel", "libvirt labels the process and its files."),
        ("devices/interface/bandwidth", "libvirt shapes the tap device: `tc`."),
        ("devices/interface/filterref", "libvirt filters on the tap device: `nft`."),
        ("devices/interface/virtualport", "libvirt attaches the tap device: `ovs-vsctl add-port`."),
        ("devices/interface/vlan", "libvirt tags the tap device: `bridge vlan`."),
        ("on_", "libvirt watches for it; QEMU's -action has no such reaction."),
        (
            "cpu@check",
            "libvirt compares the guest's CPU with what was asked for; -cpu ...,enforce is the nearest.",
        ),
        ("currentMemory", "libvirt sets the balloon once QEMU runs: monitor command `balloon`."),
    ];
    let found = WHY.iter().find(|(prefix, _)| path.starts_with(prefix));
    found.map_or("This conversion has no argument for it.", |(_, why)| why).to_owned()
}
