//! The properties in an option's argument: `value,key=value,...` or JSON, each with its place in the argument.

pub(super) mod json;

use std::ops::Range;

/// A property.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Property {
    /// Its name; nested properties of JSON have names with dots, as in QEMU's other syntax.
    pub(super) key: String,
    /// Its value. Switches of JSON are `on` and `off`.
    pub(super) value: String,
    /// The range of its value in the argument, without the key. For a bare switch, its whole range.
    pub(super) value_at: Range<usize>,
    /// Its whole range in the argument, without the comma.
    pub(super) whole: Range<usize>,
    /// Key and value are both written.
    pub(super) pair: bool,
}

/// The properties of an argument.
#[derive(Debug, Clone, Default)]
pub(super) struct Properties {
    /// In the order of the argument.
    pub(super) list: Vec<Property>,
    /// They are in JSON.
    pub(super) json: bool,
}

impl Properties {
    /// Reads an argument. `implied` is the key of a first part without one.
    ///
    /// The rules are those of `opts_do_parse` in QEMU's `util/qemu-option.c`: a comma within a value is
    /// doubled; a part without `=` is a switch that is on, or off if it begins with `no`.
    pub(super) fn read(text: &str, implied: &str) -> Self {
        if text.starts_with('{')
            && let Some(list) = json::properties(text)
        {
            return Self { list, json: true };
        }
        let mut list = Vec::new();
        let mut start = 0;
        while start < text.len() {
            let end = part_end(text, start);
            list.push(property(text, start..end, if start == 0 { implied } else { "" }));
            start = end + 1;
        }
        Self { list, json: false }
    }

    /// The effective property: the last with that name; dashes and underscores are equal.
    pub(super) fn get(&self, key: &str) -> Option<&Property> {
        self.list.iter().rev().find(|property| same_name(&property.key, key))
    }

    /// Its value.
    pub(super) fn value(&self, key: &str) -> Option<&str> {
        self.get(key).map(|property| property.value.as_str())
    }

    /// The value of a switch: `None` if it is not set or is neither on nor off.
    pub(super) fn switch(&self, key: &str) -> Option<bool> {
        switch(self.value(key)?)
    }

    /// The value of a number.
    pub(super) fn number(&self, key: &str) -> Option<u32> {
        self.value(key)?.parse().ok()
    }
}

/// `on` or `off`, in the spellings that QEMU accepts (`qapi_bool_parse`).
pub(super) fn switch(value: &str) -> Option<bool> {
    match value {
        "on" | "yes" | "true" | "y" => Some(true),
        "off" | "no" | "false" | "n" => Some(false),
        _ => None,
    }
}

/// Tests whether two names are equal; dashes and underscores are equal.
pub(super) fn same_name(one: &str, other: &str) -> bool {
    one.len() == other.len()
        && one
            .bytes()
            .zip(other.bytes())
            .all(|(a, b)| a == b || (a == b'_' && b == b'-') || (a == b'-' && b == b'_'))
}

/// A value for a list of properties in one of QEMU's options, with commas doubled.
#[must_use]
pub fn escaped(value: &str) -> String {
    value.replace(',', ",,")
}

/// The end of the part that begins at `start`.
fn part_end(text: &str, start: usize) -> usize {
    let bytes = text.as_bytes();
    let mut at = start;
    while at < bytes.len() {
        if bytes[at] == b',' {
            if bytes.get(at + 1) != Some(&b',') {
                return at;
            }
            at += 1;
        }
        at += 1;
    }
    bytes.len()
}

fn property(text: &str, whole: Range<usize>, implied: &str) -> Property {
    let part = &text[whole.clone()];
    let key_end = part.find('=').filter(|&end| end > 0 && !part[..end].contains(','));
    let (key, value, value_at, pair) = match key_end {
        Some(end) => (&part[..end], &part[end + 1..], whole.start + end + 1..whole.end, true),
        None if implied.is_empty() => (part, "on", whole.clone(), false),
        None => (implied, part, whole.clone(), false),
    };
    Property { key: key.to_owned(), value: value.replace(",,", ","), value_at, whole, pair }
}
