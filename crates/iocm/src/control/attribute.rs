//! Attributes, the leaves of the control tree, and their values.

use super::error::ControlError;
use super::facts::{DaemonFacts, DeviceFacts, Operation, QueueFacts, WorkerFacts};
use super::object::Object;
use serde_json::{Number, Value as Json};

/// The directions in which an attribute can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Read only.
    Read,
    /// Read and written.
    ReadWrite,
    /// Write only.
    Write,
}

/// The function that reads an attribute from the facts of its object.
#[derive(Debug, Clone, Copy)]
pub(super) enum Reader {
    /// It cannot be read.
    None,
    /// It never changes.
    Fixed(fn() -> Value),
    Daemon(fn(&DaemonFacts) -> Value),
    Worker(fn(&WorkerFacts) -> Value),
    /// A counter of a worker, by index.
    WorkerCounter(usize),
    /// `None` for devices that do not have it.
    Device(fn(&DeviceFacts) -> Option<Value>),
    /// The sum of a counter over a device's queues, by index.
    DeviceCounter(usize),
    Queue(fn(&QueueFacts) -> Value),
    /// A counter of a queue, by index.
    QueueCounter(usize),
}

/// Turns the text that was written to an attribute into an operation.
pub(super) type Writer = fn(Object, &str) -> Result<Operation, ControlError>;

/// An attribute.
#[derive(Debug, Clone)]
pub struct Attribute {
    /// The name below its object: `cpu`, `pace/polling`.
    pub name: &'static str,
    /// The unit of its numbers, or the format of its text.
    pub unit: &'static str,
    /// A sentence on its meaning, and on the effect of writing it.
    pub about: String,
    pub(super) reader: Reader,
    pub(super) writer: Option<Writer>,
}

impl Attribute {
    /// The directions in which it can be used.
    #[must_use]
    pub const fn mode(&self) -> Mode {
        match (&self.reader, &self.writer) {
            (Reader::None, _) => Mode::Write,
            (_, Some(_)) => Mode::ReadWrite,
            (_, None) => Mode::Read,
        }
    }
}

impl Mode {
    /// Tests whether it can be read.
    #[must_use]
    pub const fn reads(self) -> bool {
        !matches!(self, Self::Write)
    }

    /// Tests whether it can be written.
    #[must_use]
    pub const fn writes(self) -> bool {
        !matches!(self, Self::Read)
    }

    /// The mode in answers: `read`, `read-write`, `write`.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::ReadWrite => "read-write",
            Self::Write => "write",
        }
    }

    /// The permission bits of its file: for the daemon's user, and with `group` for the group's members. Others may not
    /// even read, as on the control socket.
    #[must_use]
    pub const fn permissions(self, group: bool) -> u16 {
        let own = match self {
            Self::Read => 0o400,
            Self::ReadWrite => 0o600,
            Self::Write => 0o200,
        };
        if group { own | own >> 3 } else { own }
    }
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A number.
    Number(u64),
    /// A percentage.
    Percent(f64),
    /// `yes` or `no`.
    Switch(bool),
    /// One line.
    Text(String),
    /// Names, one a line.
    Names(Vec<String>),
    /// Pairs of numbers, one a line.
    Pairs(Vec<(u64, u64)>),
    /// A text of several lines.
    Lines(String),
}

impl Value {
    /// The content of its file: one value a line, and no line for an empty value.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Number(number) => format!("{number}\n"),
            Self::Percent(share) => format!("{share:.1}\n"),
            Self::Switch(switch) => format!("{}\n", if *switch { "yes" } else { "no" }),
            Self::Text(text) if text.is_empty() => String::new(),
            Self::Text(text) => format!("{text}\n"),
            Self::Names(names) => names.iter().map(|name| format!("{name}\n")).collect(),
            Self::Pairs(pairs) => pairs.iter().map(|(one, two)| format!("{one} {two}\n")).collect(),
            Self::Lines(lines) => lines.clone(),
        }
    }

    /// The value as JSON.
    #[must_use]
    pub fn json(&self) -> Json {
        match self {
            Self::Number(number) => Json::from(*number),
            // NaN and infinity become null.
            Self::Percent(share) => {
                let rounded = (share * 10.0).round() / 10.0;
                Number::from_f64(rounded).map_or(Json::Null, Json::Number)
            }
            Self::Switch(switch) => Json::from(*switch),
            Self::Text(text) | Self::Lines(text) => Json::from(text.as_str()),
            Self::Names(names) => Json::from(names.clone()),
            Self::Pairs(pairs) => {
                Json::Array(pairs.iter().map(|(one, two)| Json::from(vec![*one, *two])).collect())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_is_text_and_json() {
        let both = |value: Value| (value.text(), value.json());
        assert_eq!(both(Value::Number(7)), ("7\n".to_owned(), json!(7)));
        assert_eq!(both(Value::Percent(12.345)), ("12.3\n".to_owned(), json!(12.3)));
        assert_eq!(both(Value::Percent(f64::NAN)).1, json!(null));
        assert_eq!(both(Value::Switch(true)), ("yes\n".to_owned(), json!(true)));
        assert_eq!(both(Value::Text(String::new())), (String::new(), json!("")));
        let names = vec!["a".to_owned(), "b".to_owned()];
        assert_eq!(both(Value::Names(names)), ("a\nb\n".to_owned(), json!(["a", "b"])));
        assert_eq!(both(Value::Pairs(vec![(1, 2)])), ("1 2\n".to_owned(), json!([[1, 2]])));
    }
}
