//! Makes a definition of the items of a command.

use super::argument::place;
use super::command::{self, Command, Given, cut};
use super::items::{self, Item};
use super::properties::Property;
use super::{backends, cpu, devices, implied, machine};
use crate::{Definition, Error, Files, Form, Place, Set, Text};

/// What a device comes from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Origin {
    /// Position of the item that says it; `None` for what the machine brings along.
    pub(super) item: Option<usize>,
    /// Position of the item of its backend: `-drive`, `-blockdev`, `-netdev`.
    pub(super) backend: Option<usize>,
    /// The image among the arguments, for a disk without an option.
    pub(super) image: Option<usize>,
}

/// A command that was read.
#[derive(Debug)]
pub(super) struct Reading<'a> {
    /// The text.
    pub(super) text: &'a Text,
    /// The command in it.
    pub(super) command: Command,
    /// Its options.
    pub(super) items: Vec<Item>,
    /// What they say.
    pub(super) definition: Definition,
    /// What each device comes from.
    pub(super) origins: Vec<Origin>,
}

impl Reading<'_> {
    /// The place of a property.
    pub(super) fn place(&self, item: &Item, property: &Property) -> Place {
        items::property_place(item, property, &self.command, &self.text.bytes)
    }

    /// The value of a property, with its place.
    pub(super) fn set(&self, item: &Item, key: &str) -> Option<Set<String>> {
        Some(self.said(item, item.properties.get(key)?))
    }

    /// What a property says, with its place.
    pub(super) fn said(&self, item: &Item, property: &Property) -> Set<String> {
        Set::new(property.value.clone(), self.place(item, property))
    }

    /// The value of a switch, with its place.
    pub(super) fn switch(&self, item: &Item, key: &str) -> Option<Set<bool>> {
        let value = item.properties.switch(key)?;
        let property = item.properties.get(key)?;
        Some(Set::new(value, self.place(item, property)))
    }

    /// The value of a number, with its place.
    pub(super) fn number(&self, item: &Item, key: &str) -> Option<Set<u32>> {
        let value = item.properties.number(key)?;
        let property = item.properties.get(key)?;
        Some(Set::new(value, self.place(item, property)))
    }

    /// The last item of that name with that `id` (or another key's value).
    pub(super) fn named(&self, name: &str, key: &str, id: &str) -> Option<usize> {
        self.items.iter().rposition(|item| item.name == name && item.value(key) == Some(id))
    }

    /// Whether an option is given, under one of some names.
    pub(super) fn has(&self, names: &[&str]) -> bool {
        self.items.iter().any(|item| names.contains(&item.name.as_str()))
    }
}

/// Reads a command.
///
/// # Errors
///
/// Those of [`command::find`].
pub(super) fn read<'a>(text: &'a Text, files: &dyn Files) -> Result<Reading<'a>, Error> {
    let command = command::find(text)?;
    let mut definition = Definition::empty(Form::Qemu);
    definition.doubts.clone_from(&command.doubts);
    let items = items::items(text, &command, files, &mut definition.doubts);
    let mut reading = Reading { text, command, items, definition, origins: Vec::new() };
    reading.definition.program = reading.command.program.map(|program| {
        let program = &reading.command.arguments[program];
        Set::new(program.text.clone(), place(program.written.clone(), program.line, &text.bytes))
    });
    unknown(&mut reading);
    let names: Vec<_> = reading.items.iter().filter(|item| item.name == "name").collect();
    reading.definition.name = names.iter().rev().find_map(|item| reading.set(item, "guest"));
    machine::read(&mut reading);
    cpu::read(&mut reading);
    let backends = backends::Backends::of(&reading);
    devices::read(&mut reading, &backends);
    implied::add(&mut reading);
    other(&mut reading);
    Ok(reading)
}

/// The most unknown options that get a sentence each.
const NAMED: usize = 20;

fn unknown(reading: &mut Reading<'_>) {
    let unknown: Vec<Given> = reading.command.unknown.clone();
    for &given in unknown.iter().take(NAMED) {
        let place = items::option_place(reading.text, &reading.command, given);
        let (name, said) = (cut(reading.command.name(given)), cut(reading.command.said(given)));
        let argument = if given.argument.is_some() {
            format!(" ({said} was taken for its argument)")
        } else {
            String::new()
        };
        let doubt = format!("Line {}: QEMU has no option -{name}{argument}.", place.line);
        reading.definition.doubts.push(doubt);
    }
    if unknown.len() > NAMED {
        let more = unknown.len() - NAMED;
        let more = if more == 1 { "1 more option is".to_owned() } else { format!("{more} more options are") };
        reading.definition.doubts.push(format!("{more} none of QEMU's."));
    }
    let lossy =
        reading.command.arguments.iter().filter(|argument| argument.text.contains('\u{fffd}')).count();
    if lossy > 0 && std::str::from_utf8(&reading.text.bytes).is_err() {
        let lossy = if lossy == 1 { "1 argument is".to_owned() } else { format!("{lossy} arguments are") };
        reading.definition.doubts.push(format!("{lossy} no UTF-8; such bytes are kept as they are."));
    }
}

/// Options that the model has fields for.
const MODELLED: &[&str] = &[
    "machine",
    "accel",
    "enable-kvm",
    "no-kvm",
    "no-kvm-irqchip",
    "no-kvm-pit-reinjection",
    "no-hpet",
    "no-acpi",
    "cpu",
    "smp",
    "m",
    "name",
    "rtc",
    "global",
    "object",
    "device",
    "drive",
    "blockdev",
    "netdev",
    "nic",
    "net",
    "hda",
    "hdb",
    "hdc",
    "hdd",
    "cdrom",
    "sd",
    "fda",
    "fdb",
    "vga",
    "usb",
    "usbdevice",
    "soundhw",
    "serial",
    "parallel",
    "nodefaults",
    "balloon",
    "watchdog",
    "virtfs",
];

fn other(reading: &mut Reading<'_>) {
    let mut others = Vec::new();
    for item in &reading.items {
        if !MODELLED.contains(&item.name.as_str()) {
            others.push(Set::new((item.name.clone(), item.said.clone()), item.place.clone()));
        }
    }
    for &given in &reading.command.unknown {
        let pair = (reading.command.name(given).to_owned(), reading.command.said(given).to_owned());
        others.push(Set::new(pair, items::option_place(reading.text, &reading.command, given)));
    }
    reading.definition.other = others;
}
