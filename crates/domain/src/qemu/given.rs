//! The options of a command, for conversion to another form.

use super::items::Item;
use super::reader;
use crate::{Definition, Error, Files, Place, Text};
use std::cell::Cell;

/// An option of the command.
#[derive(Debug, Clone)]
pub(crate) struct GivenOption {
    /// Its name without dashes.
    pub(crate) name: String,
    /// Its argument.
    pub(crate) said: String,
    /// Its properties, as written.
    pub(crate) pairs: Vec<(String, String)>,
    /// Its place.
    pub(crate) place: Place,
    /// The other form has it.
    pub(crate) used: Cell<bool>,
}

impl GivenOption {
    fn of(item: &Item) -> Self {
        let said = if item.said.is_empty() && item.given.is_none() {
            joined(&item.pairs())
        } else {
            item.said.clone()
        };
        let (name, pairs, place) = (item.name.clone(), item.pairs(), item.place.clone());
        Self { name, said, pairs, place, used: Cell::new(false) }
    }

    /// The last value of a property; dashes and underscores are equal.
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        let same = |name: &str| super::properties::same_name(name, key);
        self.pairs.iter().rev().find(|(name, _)| same(name)).map(|(_, value)| value.as_str())
    }
}

/// An option from a file, as an argument.
fn joined(pairs: &[(String, String)]) -> String {
    let parts = pairs.iter().map(|(name, value)| format!("{name}={}", super::properties::escaped(value)));
    parts.collect::<Vec<_>>().join(",")
}

/// A command's definition, and all its options in order; unknown ones are at the end.
pub(crate) fn options(text: &Text, files: &dyn Files) -> Result<(Definition, Vec<GivenOption>), Error> {
    let reading = reader::read(text, files)?;
    let mut found: Vec<GivenOption> = reading.items.iter().map(GivenOption::of).collect();
    for &given in &reading.command.unknown {
        found.push(GivenOption {
            name: reading.command.name(given).to_owned(),
            said: reading.command.said(given).to_owned(),
            pairs: Vec::new(),
            place: super::items::option_place(text, &reading.command, given),
            used: Cell::new(false),
        });
    }
    Ok((reading.definition, found))
}
