//! The basic edits of all changes: setting and removing a property, adding and removing an option.

use super::super::argument::quoted;
use super::super::command::Given;
use super::super::items::Item;
use super::super::properties::{Property, escaped, json, same_name, switch};
use super::super::reading::Reading;
use std::ops::Range;

/// A property's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value<'a> {
    /// A text.
    Text(&'a str),
    /// On or off.
    Switch(bool),
    /// A number.
    Number(u32),
}

impl Value<'_> {
    fn plain(self) -> String {
        match self {
            Self::Text(text) => escaped(text),
            Self::Switch(on) => if on { "on" } else { "off" }.to_owned(),
            Self::Number(number) => number.to_string(),
        }
    }

    fn json(self) -> String {
        match self {
            Self::Text(text) => json::written(text),
            Self::Switch(on) => on.to_string(),
            Self::Number(number) => number.to_string(),
        }
    }

    fn is(self, property: &Property) -> bool {
        match self {
            Self::Text(text) => property.value == text,
            Self::Switch(on) => switch(&property.value) == Some(on),
            Self::Number(number) => property.value.parse() == Ok(number),
        }
    }
}

/// The reason why a change was not made.
pub(super) type Outcome = Result<(), String>;

/// Edits of one change.
pub(super) struct Editor<'a> {
    /// The current text.
    pub(super) reading: &'a Reading<'a>,
    /// Notes for the reader.
    pub(super) notes: Vec<String>,
    /// True if the change must be tried again after these edits.
    pub(super) again: bool,
    replacements: Vec<(Range<usize>, String)>,
}

impl<'a> Editor<'a> {
    /// No edits yet.
    pub(super) const fn new(reading: &'a Reading<'a>) -> Self {
        Self { reading, notes: Vec::new(), again: false, replacements: Vec::new() }
    }

    /// The edits, as ranges of the text and their replacements.
    pub(super) fn into_replacements(self) -> Vec<(Range<usize>, String)> {
        self.replacements
    }

    /// An item.
    pub(super) fn item(&self, number: usize) -> &'a Item {
        &self.reading.items[number]
    }

    /// The option of an item; refused if it is in a file.
    pub(super) fn given(&self, number: usize) -> Result<Given, String> {
        let item = self.item(number);
        item.given.ok_or_else(|| format!("It is said in a file, {}. Change it there.", item.place.text))
    }

    /// The argument of an item's option.
    pub(super) fn argument(&self, number: usize) -> Result<usize, String> {
        let given = self.given(number)?;
        given
            .argument
            .ok_or_else(|| format!("-{} lacks its argument. Complete it.", self.reading.command.name(given)))
    }

    /// Replaces a part of an argument.
    pub(super) fn write(&mut self, argument: usize, said: Range<usize>, new: &str) {
        self.replacements.push(self.reading.command.arguments[argument].replacement(said, new));
    }

    /// Inserts text before an argument, outside of its quotation marks.
    pub(super) fn put_before(&mut self, argument: usize, new: &str) {
        let start = self.reading.command.arguments[argument].written.start;
        self.replacements.push((start..start, new.to_owned()));
    }

    /// Sets a property of an item.
    pub(super) fn set(&mut self, number: usize, key: &str, value: Value<'_>) -> Outcome {
        let argument = self.argument(number)?;
        let item = self.item(number);
        let position = item.properties.list.iter().rposition(|property| same_name(&property.key, key));
        let Some(position) = position else {
            self.append(number, argument, key, value);
            return Ok(());
        };
        let property = &item.properties.list[position];
        if value.is(property) {
            return Ok(());
        }
        if let Some(place) = item.elsewhere.get(&position) {
            return Err(format!("It is said elsewhere: {}. Change it there.", place.text));
        }
        let new = match (item.properties.json, property.pair) {
            (true, _) => value.json(),
            (false, true) => value.plain(),
            // The first part, whose key is implied, or a switch without a value.
            (false, false) if property.whole.start == 0 && property.value != "on" => value.plain(),
            (false, false) => format!("{}={}", property.key, value.plain()),
        };
        self.write(argument, property.value_at.clone(), &new);
        Ok(())
    }

    fn append(&mut self, number: usize, argument: usize, key: &str, value: Value<'_>) {
        let properties = &self.item(number).properties;
        let text = &self.reading.command.arguments[argument].text;
        if properties.json {
            let end = text.rfind('}').unwrap_or(text.len());
            let comma = if properties.list.is_empty() { "" } else { "," };
            self.write(argument, end..end, &format!("{comma}{}:{}", json::written(key), value.json()));
        } else {
            let comma =
                if text.is_empty() || (text.ends_with(',') && !text.ends_with(",,")) { "" } else { "," };
            self.write(argument, text.len()..text.len(), &format!("{comma}{key}={}", value.plain()));
        }
    }

    /// Adds a property to a JSON object, after an existing one. A name with a dot becomes a nested object.
    pub(super) fn write_beside(
        &mut self,
        number: usize,
        sibling: &Property,
        name: &str,
        value: Value<'_>,
    ) -> Outcome {
        let argument = self.argument(number)?;
        let written = match name.split_once('.') {
            Some((outer, inner)) => {
                format!(",{}:{{{}:{}}}", json::written(outer), json::written(inner), value.json())
            }
            None => format!(",{}:{}", json::written(name), value.json()),
        };
        self.write(argument, sibling.whole.end..sibling.whole.end, &written);
        Ok(())
    }

    /// Removes the properties of an item with certain names; returns those that existed.
    pub(super) fn drop_properties(
        &mut self,
        number: usize,
        drops: impl Fn(&str) -> bool,
    ) -> Result<Vec<String>, String> {
        let argument = self.argument(number)?;
        let item = self.item(number);
        let text = &self.reading.command.arguments[argument].text;
        let mut dropped = Vec::new();
        let mut parts: Vec<Range<usize>> = Vec::new();
        for (position, property) in item.properties.list.iter().enumerate() {
            if !drops(&property.key) || (position == 0 && !property.pair) {
                continue;
            }
            if let Some(place) = item.elsewhere.get(&position) {
                return Err(format!("It is said elsewhere: {}. Change it there.", place.text));
            }
            if item.properties.json && property.key.contains('.') {
                return Err(format!(
                    "{} is a part of a JSON object. Drop that yourself first.",
                    property.key
                ));
            }
            dropped.push(property.key.clone());
            let done = parts.last().map_or(0, |last| last.end);
            parts.push(with_comma(text, property.whole.clone(), done));
        }
        parts.into_iter().for_each(|part| self.write(argument, part, ""));
        Ok(dropped)
    }

    /// The text between an argument and the one before it, if it is only a separator.
    fn separator(&self, argument: usize) -> Option<&'a str> {
        let arguments = &self.reading.command.arguments;
        let (before, this) = (arguments.get(argument.checked_sub(1)?)?, arguments.get(argument)?);
        let between = self.reading.text.bytes.get(before.written.end..this.written.start)?;
        let separates = |byte: &u8| b" \t\r\n\\\0".contains(byte);
        if between.is_empty() || !between.iter().all(separates) {
            return None;
        }
        std::str::from_utf8(between).ok()
    }

    /// The text of a new option, with its separator.
    fn option(&self, like: Option<Given>, name: &str, value: &str) -> String {
        let inner = like.and_then(|like| self.separator(like.argument?));
        let inner = match inner {
            _ if self.reading.command.process => "\0",
            // One argument on each line.
            Some(inner) if inner.contains('\n') && !inner.contains('\\') => inner,
            _ => " ",
        };
        let value = if self.reading.command.process { value.to_owned() } else { quoted(value) };
        format!("-{name}{inner}{value}")
    }

    /// The text before a new option, in the style of those around it.
    fn outer(&self, like: Option<Given>) -> &'a str {
        let next = |argument: usize| argument + 1 < self.reading.command.arguments.len();
        let first = self.reading.command.program.map_or(0, |program| program + 1);
        match like.and_then(|like| self.separator(like.option)) {
            _ if self.reading.command.process => "\0",
            Some(separator) => separator,
            None if next(first) => self.separator(first).unwrap_or(" "),
            None => " ",
        }
    }

    /// Adds an option after another one, or after the program.
    pub(super) fn add_behind(&mut self, behind: Option<Given>, name: &str, value: &str) {
        let text = format!("{}{}", self.outer(behind), self.option(behind, name, value));
        let arguments = &self.reading.command.arguments;
        let last = match behind {
            Some(given) => Some(given.argument.unwrap_or(given.option)),
            None => self.reading.command.program,
        };
        match last.and_then(|last| arguments.get(last)) {
            Some(last) => self.replacements.push((last.written.end..last.written.end, text)),
            // Options without a program: the new one becomes the first.
            None => {
                let start = arguments.first().map_or(0, |first| first.written.start);
                let option = self.option(None, name, value);
                let separator =
                    self.separator(1).filter(|separator| !separator.contains('\0')).unwrap_or(" ");
                self.replacements.push((start..start, format!("{option}{separator}")));
            }
        }
    }

    /// Adds an option before another one.
    pub(super) fn add_before(&mut self, before: Given, name: &str, value: &str) {
        let start = self.reading.command.arguments[before.option].written.start;
        let text = format!("{}{}", self.option(Some(before), name, value), self.outer(Some(before)));
        self.replacements.push((start..start, text));
    }

    /// Adds an option at the end.
    pub(super) fn add_last(&mut self, name: &str, value: &str) {
        let last = self
            .reading
            .command
            .given
            .iter()
            .chain(&self.reading.command.unknown)
            .max_by_key(|given| given.option);
        self.add_behind(last.copied(), name, value);
    }

    /// Removes an option with its argument.
    pub(super) fn drop_option(&mut self, given: Given) {
        let arguments = &self.reading.command.arguments;
        let (first, last) = (given.option, given.argument.unwrap_or(given.option));
        let (start, end) = (arguments[first].written.start, arguments[last].written.end);
        let whole = if let Some(separator) = self.separator(first) {
            start - separator.len()..end
        } else if let Some(separator) = self.separator(last + 1) {
            start..end + separator.len()
        } else {
            start..end
        };
        self.replacements.push((whole, String::new()));
    }

    /// The last option with that name in the command itself.
    pub(super) fn last_option(&self, name: &str) -> Option<usize> {
        self.reading.items.iter().rposition(|item| item.name == name && item.given.is_some())
    }

    /// The option after which a new machine option belongs: `-machine`, or the program.
    pub(super) fn machine(&self) -> Option<Given> {
        self.last_option("machine").and_then(|number| self.item(number).given)
    }
}

/// A property with the comma before it, or with the one after it if it is the first that stays. The text up
/// to `done` is already removed.
fn with_comma(text: &str, whole: Range<usize>, done: usize) -> Range<usize> {
    let before = text[done..whole.start].trim_ascii_end();
    if before.ends_with(',') {
        return done + before.len() - 1..whole.end;
    }
    let behind = text[whole.end..].trim_ascii_start();
    match behind.strip_prefix(',') {
        Some(rest) => whole.start..text.len() - rest.trim_ascii_start().len(),
        None => whole,
    }
}
