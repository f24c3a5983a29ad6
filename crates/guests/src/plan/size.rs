//! Sizes in plans.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

const UNITS: [(char, u32); 4] = [('K', 10), ('M', 20), ('G', 30), ('T', 40)];

/// A number of bytes, written as `"512M"`: a whole number and one of K, M, G, T for powers of 1024.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size(u64);

impl Size {
    /// A number of KiB.
    pub const fn kib(count: u32) -> Self {
        Self((count as u64) << 10)
    }

    /// A number of MiB.
    pub const fn mib(count: u32) -> Self {
        Self((count as u64) << 20)
    }

    /// The number of bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refused =
            || format!("{text:?} is not a size; write a whole number and a unit, as in \"512M\" or \"4G\"");
        let last = text.chars().last().ok_or_else(refused)?;
        let (digits, shift) = match UNITS.iter().find(|(unit, _)| *unit == last) {
            Some(&(_, shift)) => (&text[..text.len() - 1], shift),
            None => (text, 0),
        };
        // `parse` would accept a plus sign.
        if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(refused());
        }
        let count: u64 = digits.parse().map_err(|_| refused())?;
        count.checked_mul(1 << shift).filter(|&bytes| bytes > 0).map(Self).ok_or_else(refused)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = UNITS.iter().rev().find(|(_, shift)| self.0.is_multiple_of(1 << shift));
        match whole {
            Some((unit, shift)) => write!(f, "{}{unit}", self.0 >> shift),
            None => write!(f, "{}", self.0),
        }
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

impl JsonSchema for Size {
    fn schema_name() -> Cow<'static, str> {
        "Size".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A size in bytes: a whole number and K, M, G or T for powers of 1024.",
            "type": "string",
            "pattern": "^[0-9]+[KMGT]?$"
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_no_size_is_refused() {
        for text in ["", "M", "+1M", "1.5G", "1m", "0", "0K", "99999999999T", "1 M", "١M"] {
            assert!(text.parse::<Size>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn the_largest_whole_unit_is_written() {
        let written = |text: &str| text.parse::<Size>().unwrap().to_string();
        assert_eq!(["512M", "1024M", "1536K", "1025"].map(written), ["512M", "1G", "1536K", "1025"]);
    }

    proptest! {
        #[test]
        fn a_written_size_is_read_back(bytes in 1u64..) {
            prop_assert_eq!(Size(bytes).to_string().parse(), Ok(Size(bytes)));
        }

        #[test]
        fn no_text_panics(text: String) {
            let _ = text.parse::<Size>();
        }
    }
}
