//! Converts libvirt's XML to QEMU's arguments, in libvirt's order (`qemuBuildCommandLine`).

mod block;
mod character;
mod controllers;
mod devices;
mod firmware;
mod network;
mod platform;
mod processor;
mod screen;

use super::Converted;
use super::seen::{Part, Seen};
use super::shell;
use crate::libvirt::{domain_of, qemu_element};
use crate::qemu::properties::escaped;
use crate::xml::Tree;
use crate::{Error, Text};
use std::collections::HashMap;
use std::fmt::Write;

/// An argument with several properties, under construction.
#[derive(Debug, Clone)]
struct Properties(String);

impl Properties {
    fn of(first: &str) -> Self {
        Self(escaped(first))
    }

    /// Appends a property.
    fn with(mut self, name: &str, value: impl std::fmt::Display) -> Self {
        let _ = write!(self.0, ",{name}={}", escaped(&value.to_string()));
        self
    }

    /// Appends a property if it has a value.
    fn maybe(self, name: &str, value: Option<impl std::fmt::Display>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }
}

/// The arguments under construction.
struct Writing<'t, 's> {
    domain: Part<'t, 's>,
    q35: bool,
    kvm: bool,
    /// The number of devices so far by kind: the numbers in libvirt's aliases.
    counted: HashMap<&'static str, usize>,
    /// `<qemu:override>`: properties by alias.
    overrides: HashMap<String, Vec<(String, String)>>,
    out: Converted,
}

impl<'t> Writing<'t, '_> {
    fn flag(&mut self, name: &str) {
        self.out.arguments.push(name.to_owned());
    }

    fn option(&mut self, name: &str, value: impl Into<String>) {
        self.out.arguments.extend([name.to_owned(), value.into()]);
    }

    /// A device with the common properties of all devices: its name, address, boot order, and overrides.
    fn device(&mut self, element: Part<'t, '_>, id: &str, properties: Properties) {
        let properties = properties.with("id", id);
        let properties = properties.maybe("bootindex", element.get("boot@order"));
        let properties = match element.get("rom@enabled") {
            Some("no") => properties.with("romfile", ""),
            _ => properties,
        };
        let mut properties = self.address(element, self.virtio(element, properties));
        for (name, value) in self.overrides.get(id).into_iter().flatten() {
            properties = properties.with(name, value);
        }
        self.option("-device", properties.0);
    }

    /// The device's name: libvirt's alias, else a kind with a number.
    fn id(&mut self, element: Part<'t, '_>, kind: &'static str) -> String {
        let number = self.counted.entry(kind).or_default();
        let id = format!("{kind}{number}");
        *number += 1;
        element.get("alias@name").map_or(id, str::to_owned)
    }

    /// Properties of virtio's driver.
    fn virtio(&self, element: Part<'t, '_>, mut properties: Properties) -> Properties {
        for (path, name) in
            [("driver@iommu", "iommu_platform"), ("driver@ats", "ats"), ("driver@packed", "packed")]
        {
            properties = properties.maybe(name, element.get(path));
        }
        properties
    }

    fn note(&mut self, note: impl Into<String>) {
        self.out.notes.push(note.into());
    }

    fn loss(&mut self, element: Part<'t, '_>, why: &str) {
        let place = element.node.place();
        element.ignore_all();
        let what = format!("line {}, {}", place.line, place.text);
        self.out.losses.push(super::Loss { what, why: why.to_owned() });
    }
}

/// See [`to_arguments`](super::to_arguments).
pub(super) fn convert(text: &Text) -> Result<Converted, Error> {
    let tree = Tree::read(&text.name, &text.bytes)?;
    let domain = domain_of(&text.name, &tree)?;
    let seen = Seen::default();
    let root = seen.root(domain);
    let machine = root.get("os/type@machine").unwrap_or_default();
    let mut writing = Writing {
        domain: root,
        q35: machine.contains("q35"),
        kvm: root.get("@type") == Some("kvm"),
        counted: HashMap::new(),
        overrides: overrides(root),
        out: Converted::default(),
    };
    root.get("@id");
    let program = root.get("devices/emulator").unwrap_or("qemu-system-x86_64");
    writing.flag(program);
    writing.platform();
    writing.processor();
    writing.resources();
    writing.firmware();
    writing.clock();
    writing.iothreads();
    writing.devices();
    let environment = writing.passed_through();
    let mut out = writing.out;
    out.losses.extend(root.losses());
    out.text = shell::command(&environment, &out.arguments);
    Ok(out)
}

fn overrides(root: Part<'_, '_>) -> HashMap<String, Vec<(String, String)>> {
    let mut found = HashMap::new();
    let Some(element) = qemu_element(root.node, "override") else { return found };
    root.ignore(element.full_name());
    for device in element.children() {
        let properties = device.children().flat_map(|frontend| frontend.children());
        let properties = properties.filter_map(|property| {
            Some((property.get("name")?.to_owned(), property.get("value").unwrap_or_default().to_owned()))
        });
        found.insert(device.get("alias").unwrap_or_default().to_owned(), properties.collect());
    }
    found
}

impl Writing<'_, '_> {
    /// `<qemu:commandline>`: its arguments come last, as in libvirt. Returns its environment.
    fn passed_through(&mut self) -> Vec<(String, String)> {
        let mut environment = Vec::new();
        let Some(element) = qemu_element(self.domain.node, "commandline") else { return environment };
        self.domain.ignore(element.full_name());
        for child in element.children() {
            match child.name() {
                "arg" => self.flag(child.get("value").unwrap_or_default()),
                "env" => environment.push((
                    child.get("name").unwrap_or_default().to_owned(),
                    child.get("value").unwrap_or_default().to_owned(),
                )),
                _ => {}
            }
        }
        environment
    }
}
