//! A length of time in plans: `250ms`, `90s`, `10min`, `6h`, `2d`.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Units of time by name, the largest first, in nanoseconds: those of plans, and of the command line, so that a time is
/// written the same way in both.
pub const UNITS_OF_TIME: [(&str, u64); 9] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("min", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", NS_PER_MS),
    ("us", 1000),
    ("µs", 1000),
    ("ns", 1),
];
const NS_PER_MS: u64 = 1_000_000;

/// The units of whole milliseconds, with their milliseconds.
fn units() -> impl Iterator<Item = (&'static str, u64)> {
    let whole = |(name, ns): (&'static str, u64)| (ns >= NS_PER_MS).then_some((name, ns / NS_PER_MS));
    UNITS_OF_TIME.into_iter().filter_map(whole)
}

/// A length of time above zero, in whole milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Span(u64);

/// The error of a text that is not a [`Span`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected a whole number above 0 with ms, s, min, h or d (\"90s\"), found {0:?}")]
pub struct NoSpan(String);

impl Span {
    /// A number of seconds; 0 becomes a millisecond.
    #[must_use]
    pub const fn seconds(seconds: u32) -> Self {
        Self(if seconds == 0 { 1 } else { seconds as u64 * 1000 })
    }

    /// The span as a [`Duration`].
    #[must_use]
    pub const fn duration(self) -> Duration {
        Duration::from_millis(self.0)
    }
}

impl FromStr for Span {
    type Err = NoSpan;

    fn from_str(text: &str) -> Result<Self, NoSpan> {
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let milliseconds = units()
            .find(|(name, _)| *name == unit)
            .and_then(|(_, factor)| number.parse::<u64>().ok()?.checked_mul(factor))
            .filter(|&milliseconds| milliseconds > 0);
        milliseconds.map(Self).ok_or_else(|| NoSpan(text.to_owned()))
    }
}

impl TryFrom<String> for Span {
    type Error = NoSpan;

    fn try_from(text: String) -> Result<Self, NoSpan> {
        text.parse()
    }
}

impl From<Span> for String {
    fn from(span: Span) -> Self {
        span.to_string()
    }
}

impl fmt::Display for Span {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, factor) = units().find(|(_, factor)| self.0.is_multiple_of(*factor)).unwrap_or(("ms", 1));
        write!(formatter, "{}{name}", self.0 / factor)
    }
}

impl JsonSchema for Span {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Span".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^[0-9]+(ms|s|min|m|h|d)$" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn units_are_understood_and_the_largest_is_written() {
        let read = |text: &str| text.parse::<Span>().map(Span::duration);
        assert_eq!(read("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(read("6h"), Ok(Duration::from_secs(21_600)));
        assert_eq!([read("5min"), read("5m")], [Ok(Duration::from_secs(300)), Ok(Duration::from_secs(300))]);
        assert_eq!("120s".parse::<Span>().unwrap().to_string(), "2m");
        assert_eq!("1500ms".parse::<Span>().unwrap().to_string(), "1500ms");
    }

    #[test]
    fn what_is_no_span_is_named() {
        let long = ["99999999999999999999s", "213503982335d"];
        for text in ["", "5", "s", "0s", "-1s", "1.5s", "1 s", "5é", "5us", "5ns"].into_iter().chain(long) {
            let error = text.parse::<Span>().unwrap_err().to_string();
            assert!(error.contains(&format!("found {text:?}")), "{error}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_as_the_same(milliseconds in 1..=u64::MAX) {
            let span = Span(milliseconds);
            prop_assert_eq!(span.to_string().parse::<Span>(), Ok(span));
        }

        #[test]
        fn any_text_is_a_span_or_an_error(text in ".{0,12}") {
            let _ = text.parse::<Span>();
        }
    }
}
