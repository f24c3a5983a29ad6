//! The options of a command as items with properties, including those of `-readconfig` files.

use super::argument::place;
use super::command::{Command, Given, cut};
use super::properties::{Properties, Property};
use super::readconfig;
use crate::{Definition, Files, Place, Text};
use std::collections::{BTreeMap, HashSet};
use std::path::Path;

/// An option with its properties.
#[derive(Debug, Clone)]
pub(super) struct Item {
    /// Its name without dashes; `M` is `machine`.
    pub(super) name: String,
    /// Its properties.
    pub(super) properties: Properties,
    /// The argument as a whole.
    pub(super) said: String,
    /// The place of the option with its argument.
    pub(super) place: Place,
    /// The option in the command; `None` if it is in a file.
    pub(super) given: Option<Given>,
    /// Places of properties that are not in the argument, by their index.
    pub(super) elsewhere: BTreeMap<usize, Place>,
}

impl Item {
    /// The value of a property.
    pub(super) fn value(&self, key: &str) -> Option<&str> {
        self.properties.value(key)
    }

    /// The value of a property that is not empty.
    pub(super) fn text(&self, key: &str) -> Option<String> {
        self.value(key).filter(|value| !value.is_empty()).map(str::to_owned)
    }

    /// All properties as written. If a property is given several times, the last counts, as in QEMU.
    pub(super) fn pairs(&self) -> Vec<(String, String)> {
        let mut known = HashSet::new();
        let is_last = |one: &&Property| known.insert(one.key.replace('_', "-"));
        let last = self.properties.list.iter().rev().filter(is_last);
        let mut pairs: Vec<_> = last.map(|one| (one.key.clone(), one.value.clone())).collect();
        pairs.reverse();
        pairs
    }
}

/// The implied key of an option's first part.
pub(super) fn implied(option: &str) -> &'static str {
    match option {
        "machine" | "net" | "nic" | "netdev" | "display" => "type",
        "accel" => "accel",
        "cpu" => "model",
        "smp" => "cpus",
        "m" => "size",
        "device" | "blockdev" | "audiodev" | "audio" => "driver",
        "object" => "qom-type",
        "chardev" => "backend",
        "name" => "guest",
        "vga" => "vga",
        "mon" => "chardev",
        "boot" => "order",
        "virtfs" | "fsdev" => "fsdriver",
        "fw_cfg" => "name",
        _ => "",
    }
}

/// The place of a property of an item.
pub(super) fn property_place(item: &Item, property: &Property, command: &Command, bytes: &[u8]) -> Place {
    if !item.elsewhere.is_empty() {
        let index = index(&item.properties.list, property);
        if let Some(place) = index.and_then(|index| item.elsewhere.get(&index)) {
            return place.clone();
        }
    }
    match item.given.and_then(|given| given.argument) {
        // Show the first part together with its option, without which it would not be clear.
        Some(_) if property.whole.start == 0 && !property.pair => item.place.clone(),
        Some(argument) => command.arguments[argument].place(property.whole.clone(), bytes),
        None => item.place.clone(),
    }
}

/// The index of a property in its list, by its address: a search for each of many would take quadratic time.
fn index(list: &[Property], property: &Property) -> Option<usize> {
    let distance = std::ptr::from_ref(property).addr().checked_sub(list.as_ptr().addr())?;
    let index = distance / size_of::<Property>();
    list.get(index).is_some_and(|one| std::ptr::eq(one, property)).then_some(index)
}

/// The most `-set` that are read: each searches all items, and a hostile command line may have many of both.
const SETS: usize = 1_000;

/// The most files of `-readconfig` that are read, and the most bytes in all of them: a hostile command line may name any
/// number of files, and each of their lines takes a hundred times its length. Real ones have some KiB.
const CONFIGS: usize = 16;
const CONFIG_BYTES: usize = 256 << 10;

/// All items of a command, in the order of their effect. Writes into the definition what was not understood or not read.
pub(super) fn items(
    text: &Text,
    command: &Command,
    files: &dyn Files,
    definition: &mut Definition,
) -> Vec<Item> {
    let (mut found, mut sets) = (Vec::new(), 0);
    let mut configs = Configs { files, number: 0, bytes: 0 };
    for &given in &command.given {
        let name = match command.name(given) {
            "M" => "machine",
            name => name,
        };
        let place = option_place(text, command, given);
        match name {
            "readconfig" => configs.read(command.said(given), &place, &mut found, definition),
            "set" => {
                sets += 1;
                if sets <= SETS {
                    set(command.said(given), &place, &mut found, &mut definition.doubts);
                }
            }
            "writeconfig" => {}
            _ => {
                let said = command.said(given).to_owned();
                let properties = Properties::read(&said, implied(name));
                if said.starts_with('{') && !properties.json {
                    definition.doubts.push(format!(
                        "Line {}: the argument of -{name} is not a complete JSON object.",
                        place.line
                    ));
                }
                let (name, elsewhere) = (name.to_owned(), BTreeMap::new());
                found.push(Item { name, properties, said, place, given: Some(given), elsewhere });
            }
        }
    }
    if sets > SETS {
        definition.doubts.push(format!("Of {sets} -set, only the first {SETS} were read."));
    }
    if configs.number > CONFIGS {
        let all = configs.number;
        definition.doubts.push(format!("Of {all} -readconfig, only the first {CONFIGS} were read."));
    }
    found
}

/// The place of an option with its argument.
pub(super) fn option_place(text: &Text, command: &Command, given: Given) -> Place {
    let option = &command.arguments[given.option];
    let end = given.argument.map_or(option.written.end, |argument| command.arguments[argument].written.end);
    // The elements of a shell array may be in another order.
    let written = option.written.start..end.max(option.written.end);
    place(written, option.line, &text.bytes)
}

/// The files of `-readconfig`, and what was read of them so far.
struct Configs<'a> {
    files: &'a dyn Files,
    number: usize,
    bytes: usize,
}

impl Configs<'_> {
    /// Adds the items of a file.
    fn read(&mut self, path: &str, place: &Place, found: &mut Vec<Item>, definition: &mut Definition) {
        self.number += 1;
        let bytes = match self.contents(path) {
            Ok(bytes) => bytes,
            Err(problem) => {
                let path = cut(path);
                // All that are too many have one doubt.
                if self.number <= CONFIGS {
                    let line = place.line;
                    let doubt =
                        format!("Line {line}: the file of -readconfig {path} was not read: {problem}.");
                    definition.doubts.push(doubt);
                }
                definition.unread_file.get_or_insert(path);
                return;
            }
        };
        for group in readconfig::groups(&String::from_utf8_lossy(&bytes), path, &mut definition.doubts) {
            let elsewhere =
                group.lines.iter().map(|(line, shown)| file_place(path, *line, shown, place)).enumerate();
            found.push(Item {
                place: file_place(path, group.line, &group.header, place),
                elsewhere: elsewhere.collect(),
                name: group.name,
                said: String::new(),
                properties: Properties { list: group.properties, json: false },
                given: None,
            });
        }
    }

    /// The error is for people.
    fn contents(&mut self, path: &str) -> Result<Vec<u8>, String> {
        if self.number > CONFIGS {
            return Err("there are too many".to_owned());
        }
        let bytes = self.files.contents(Path::new(path)).map_err(|problem| problem.to_string())?;
        self.bytes += bytes.len();
        if self.bytes > CONFIG_BYTES {
            return Err("all such files together have more than 256 KiB".to_owned());
        }
        Ok(bytes)
    }
}

/// The place of a line of a file that an option names.
fn file_place(path: &str, line: usize, shown: &str, option: &Place) -> Place {
    // In full, a long path would be kept for each line of the file.
    Place { text: format!("{}, line {line}: {}", cut(path), cut(shown)), ..option.clone() }
}

/// `-set group.id.key=value`.
fn set(said: &str, place: &Place, found: &mut [Item], doubts: &mut Vec<String>) {
    let parsed = said.split_once('=').and_then(|(path, value)| {
        let mut parts = path.splitn(3, '.');
        Some((parts.next()?, parts.next()?, parts.next()?, value))
    });
    let Some((group, id, key, value)) = parsed else {
        doubts.push(format!("Line {}: {} is not of the form group.id.key=value.", place.line, cut(said)));
        return;
    };
    let item = found.iter_mut().rev().find(|item| item.name == group && item.value("id") == Some(id));
    let Some(item) = item else {
        doubts.push(format!("Line {}: -set names {}, which is not there.", place.line, cut(said)));
        return;
    };
    item.elsewhere.insert(item.properties.list.len(), place.clone());
    item.properties.list.push(Property {
        key: key.to_owned(),
        value: value.to_owned(),
        value_at: 0..0,
        whole: 0..0,
        pair: true,
    });
}
