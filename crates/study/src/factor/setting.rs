//! A value, as a plan has it and as the kernel takes it.

use host::switch;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A value of a module parameter, a kernel file or a kernel setting: a text, a whole number, or true or
/// false, which are written as 1 and 0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Setting {
    /// True or false.
    Switch(bool),
    /// A whole number.
    Number(i64),
    /// A text.
    Text(String),
}

impl fmt::Display for Setting {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Switch(on) => u8::from(*on).fmt(formatter),
            Self::Number(number) => number.fmt(formatter),
            Self::Text(text) => formatter.write_str(text),
        }
    }
}

impl Setting {
    /// Compares with a value of the kernel, which shows switches as Y and N and numbers in a base of its
    /// choice.
    #[must_use]
    pub fn is(&self, found: &str) -> bool {
        let asked = self.to_string();
        let same = |one: Option<i128>, two: Option<i128>| one.is_some() && one == two;
        asked.split_whitespace().eq(found.split_whitespace())
            || same(switch(&asked).map(i128::from), switch(found).map(i128::from))
            || same(number(&asked), number(found))
    }
}

fn number(text: &str) -> Option<i128> {
    let text = text.trim();
    match text.strip_prefix("0x") {
        Some(digits) => i128::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_are_the_same_however_they_are_written() {
        let text = |text: &str| Setting::Text(text.to_owned());
        for on in [Setting::Switch(true), Setting::Number(1), text("Y"), text("1")] {
            assert!(on.is("Y\n") && on.is("1") && !on.is("N") && !on.is("2"), "{on}");
        }
        assert!(text("4096 87380").is("4096\t87380\n") && text("0x10").is("16") && !text("0x10").is("10"));
        assert!(Setting::Number(-1).is("-1") && text("0-3").is("0-3\n") && !text("auto").is("Y"));
    }
}
