//! What an attribute is.

use super::error::ControlError;
use super::facts::{DaemonFacts, DeviceFacts, Operation, QueueFacts, WorkerFacts};
use super::object::Object;
use serde_json::{Number, Value as Json};

/// Whether an attribute can be read and written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Only read.
    Read,
    /// Read and written.
    ReadWrite,
    /// Only written.
    Write,
}

/// How an attribute is read: from the facts of the object that has it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Reader {
    /// It is not.
    None,
    /// It says the same always.
    Fixed(fn() -> Value),
    Daemon(fn(&DaemonFacts) -> Value),
    Worker(fn(&WorkerFacts) -> Value),
    /// A counter of a worker, by its place.
    WorkerCounter(usize),
    /// `None` where devices of this kind do not have it.
    Device(fn(&DeviceFacts) -> Option<Value>),
    /// A counter of all queues of a device together, by its place.
    DeviceCounter(usize),
    Queue(fn(&QueueFacts) -> Value),
    /// A counter of a queue, by its place.
    QueueCounter(usize),
}

/// What follows from writing an attribute.
pub(super) type Writer = fn(Object, &str) -> Result<Operation, ControlError>;

/// An attribute: a leaf of the tree.
#[derive(Debug, Clone)]
pub struct Attribute {
    /// What it is called below its object: `cpu`, `pace/polling`.
    pub name: &'static str,
    /// The unit of its numbers, or the form of its text.
    pub unit: &'static str,
    /// What it says and does, as a sentence.
    pub about: String,
    pub(super) reader: Reader,
    pub(super) writer: Option<Writer>,
}

impl Attribute {
    /// Whether it can be read and written.
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
    /// Whether it can be read.
    #[must_use]
    pub const fn reads(self) -> bool {
        !matches!(self, Self::Write)
    }

    /// Whether it can be written.
    #[must_use]
    pub const fn writes(self) -> bool {
        !matches!(self, Self::Read)
    }

    /// As a word: `read`, `read-write`, `write`.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::ReadWrite => "read-write",
            Self::Write => "write",
        }
    }

    /// As a file's permissions: for the daemon's user, and with `group` for a group's members. Nobody else may even read, as
    /// the control socket serves nobody else.
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

/// What is read of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A number.
    Number(u64),
    /// A share of 100.
    Percent(f64),
    /// Yes or no.
    Switch(bool),
    /// One line.
    Text(String),
    /// Any number of lines, each a name.
    Names(Vec<String>),
    /// Any number of lines, each with two numbers.
    Pairs(Vec<(u64, u64)>),
    /// Many lines.
    Lines(String),
}

impl Value {
    /// As a file has it: one value a line, none at all where there is none.
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

    /// The same in JSON.
    #[must_use]
    pub fn json(&self) -> Json {
        match self {
            Self::Number(number) => Json::from(*number),
            // One that is no number is none.
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
