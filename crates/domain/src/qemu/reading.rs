//! The state of the reader: the command's items, and the definition so far.

use super::command::Command;
use super::items::{self, Item};
use super::properties::Property;
use crate::{Definition, Place, Set, Text};

/// The items that make a device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Origin {
    /// The index of its item; `None` for a default device of the machine.
    pub(super) item: Option<usize>,
    /// The index of its backend's item: `-drive`, `-blockdev`, `-netdev`.
    pub(super) backend: Option<usize>,
    /// The argument with the image, for a disk without an option.
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
    /// The definition that they describe.
    pub(super) definition: Definition,
    /// The items of each device.
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

    /// The value of a property that was found, with its place.
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

    /// The last item with that name and that `id` (or value of another key).
    pub(super) fn named(&self, name: &str, key: &str, id: &str) -> Option<usize> {
        self.items.iter().rposition(|item| item.name == name && item.value(key) == Some(id))
    }

    /// Tests whether an option with one of some names is given.
    pub(super) fn has(&self, names: &[&str]) -> bool {
        self.items.iter().any(|item| names.contains(&item.name.as_str()))
    }
}
