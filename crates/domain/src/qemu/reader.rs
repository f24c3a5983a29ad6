//! Makes a definition from the items of a command.

use super::argument::place;
use super::command::{self, Given, cut};
use super::items;
use super::reading::Reading;
use super::{backends, cpu, devices, implied, machine};
use crate::defaults::{architecture_of_machine, other_than_x86};
use crate::{Definition, Error, Files, Form, Set, Text};

/// Reads a command.
///
/// # Errors
///
/// Those of [`command::find`].
pub(super) fn read<'a>(text: &'a Text, files: &dyn Files) -> Result<Reading<'a>, Error> {
    let command = command::find(text)?;
    let mut definition = Definition::empty(Form::Qemu);
    definition.doubts.clone_from(&command.doubts);
    let items = items::items(text, &command, files, &mut definition);
    let mut reading = Reading { text, command, items, definition, origins: Vec::new() };
    reading.definition.program = reading.command.program.map(|program| {
        let program = &reading.command.arguments[program];
        Set::new(program.text.clone(), place(program.written.clone(), program.line, &text.bytes))
    });
    unknown(&mut reading);
    reading.definition.other_architecture = reading.definition.program.as_ref().and_then(|program| {
        Some(Set::new(other_than_x86(&program.value)?.to_owned(), program.place.clone()))
    });
    let names: Vec<_> = reading.items.iter().filter(|item| item.name == "name").collect();
    reading.definition.name = names.iter().rev().find_map(|item| reading.set(item, "guest"));
    machine::read(&mut reading);
    let kind = reading.definition.machine.kind.as_ref();
    let by_machine = kind.and_then(|kind| {
        Some(Set::new(architecture_of_machine(&kind.value)?.to_owned(), kind.place.clone()))
    });
    reading.definition.other_architecture = reading.definition.other_architecture.take().or(by_machine);
    cpu::read(&mut reading);
    let backends = backends::Backends::of(&reading);
    devices::read(&mut reading, &backends);
    implied::add(&mut reading);
    other(&mut reading);
    Ok(reading)
}

/// The largest number of unknown options that get a doubt of their own.
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
        reading.definition.doubts.push(format!("{more} not QEMU's."));
    }
    let lossy =
        reading.command.arguments.iter().filter(|argument| argument.text.contains('\u{fffd}')).count();
    if lossy > 0 && std::str::from_utf8(&reading.text.bytes).is_err() {
        let lossy = if lossy == 1 { "1 argument is".to_owned() } else { format!("{lossy} arguments are") };
        reading.definition.doubts.push(format!("{lossy} no UTF-8; such bytes are kept as they are."));
    }
}

/// Options for which the model has fields.
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
