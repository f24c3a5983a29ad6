//! A number of bytes as plans write it: `512`, `64K`, `100M`, `2G`.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Units by name, the largest first, in bytes. As all tools here have it, K is 1024.
const UNITS: [(&str, u64); 5] = [("T", 1 << 40), ("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10), ("", 1)];

/// A number of bytes above zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Size(u64);

/// A text is no [`Size`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected a whole number of bytes above 0, with K, M, G or T for powers of 1024 (\"64K\"), found {0:?}")]
pub struct NoSize(String);

impl Size {
    /// So many KiB; 0 becomes a byte.
    pub const fn kibibytes(count: u32) -> Self {
        Self(if count == 0 { 1 } else { count as u64 * 1024 })
    }

    /// So many bytes; 0 becomes one.
    pub const fn of(bytes: u32) -> Self {
        Self(if bytes == 0 { 1 } else { bytes as u64 })
    }

    /// The bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl FromStr for Size {
    type Err = NoSize;

    fn from_str(text: &str) -> Result<Self, NoSize> {
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let bytes = UNITS
            .iter()
            .find(|(name, _)| *name == unit)
            .and_then(|(_, factor)| number.parse::<u64>().ok()?.checked_mul(*factor))
            .filter(|&bytes| bytes > 0);
        bytes.map(Self).ok_or_else(|| NoSize(text.to_owned()))
    }
}

impl TryFrom<String> for Size {
    type Error = NoSize;

    fn try_from(text: String) -> Result<Self, NoSize> {
        text.parse()
    }
}

impl From<Size> for String {
    fn from(size: Size) -> Self {
        size.to_string()
    }
}

impl fmt::Display for Size {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, factor) =
            UNITS.into_iter().find(|(_, factor)| self.0.is_multiple_of(*factor)).unwrap_or(("", 1));
        write!(formatter, "{}{name}", self.0 / factor)
    }
}

impl JsonSchema for Size {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Size".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^[0-9]+[KMGT]?$" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn units_are_powers_of_1024_and_the_largest_is_written() {
        assert_eq!("64K".parse::<Size>().unwrap().bytes(), 65_536);
        assert_eq!("512".parse::<Size>().unwrap().bytes(), 512);
        assert_eq!("2048K".parse::<Size>().unwrap().to_string(), "2M");
    }

    #[test]
    fn what_is_no_size_is_named() {
        for text in ["", "K", "0", "0M", "-1K", "1.5G", "1 K", "64KB", "64k", "99999999999999999999", "20000000T"] {
            let error = text.parse::<Size>().unwrap_err().to_string();
            assert!(error.contains(&format!("found {text:?}")), "{error}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_as_the_same(bytes in 1..=u64::MAX) {
            prop_assert_eq!(Size(bytes).to_string().parse::<Size>(), Ok(Size(bytes)));
        }

        #[test]
        fn any_text_is_a_size_or_an_error(text in ".{0,12}") {
            let _ = text.parse::<Size>();
        }
    }
}
