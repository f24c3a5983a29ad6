//! The requests of the control socket, a line of JSON each, and their answers.

use super::error::{ControlError, Errno};
use super::facts::{Control, Operation};
use super::object::{Object, QueueName};
use super::tree::{Node, list, read_below, write};
use serde::Deserialize;
use serde_json::{Map, Value as Json, json};
use std::time::Duration;

/// The longest line without its newline, bytes.
pub const LONGEST_LINE: usize = 64 << 10;

/// A request to the control socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ControlRequest {
    /// Lists a directory.
    List(String),
    /// Reads an attribute, or all attributes below a directory.
    Get(String),
    /// Writes an attribute.
    Set(String, String),
    /// Makes an object in a collection.
    Create(String, String),
    /// Removes an object.
    Remove(String),
    /// Moves queues, or all queues of devices, to a worker: all of them or none.
    Move(Vec<String>, String),
    /// Repeats [`Self::Get`] at an interval, until the next line arrives or the count is reached.
    Watch(String, Duration, Option<u64>),
}

/// A request line.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestLine {
    /// The ID that the peer gave the request; the answer repeats it.
    pub id: Option<Json>,
    /// The request, or the reason why it is rejected.
    pub request: Result<ControlRequest, ControlError>,
}

/// Intervals of watching that are allowed, milliseconds.
pub const WATCH_INTERVALS_MS: std::ops::RangeInclusive<u64> = 10..=86_400_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    op: String,
    #[serde(default)]
    path: String,
    paths: Option<Vec<String>>,
    value: Option<Json>,
    to: Option<String>,
    interval_ms: Option<u64>,
    count: Option<u64>,
}

impl RequestLine {
    /// Parses a line.
    #[must_use]
    pub fn parse(line: &[u8]) -> Self {
        let refused =
            |error: serde_json::Error| ControlError::invalid(format!("It is not a request: {error}"));
        match serde_json::from_slice::<Json>(line) {
            Ok(Json::Object(mut fields)) => {
                let id = fields.remove("id");
                let line = serde_json::from_value::<Fields>(Json::Object(fields)).map_err(refused);
                Self { id, request: line.and_then(Fields::request) }
            }
            Ok(_) => Self {
                id: None,
                request: Err(ControlError::invalid("It is not a request: a line must be a JSON object")),
            },
            Err(error) => Self { id: None, request: Err(refused(error)) },
        }
    }
}

impl Fields {
    fn request(self) -> Result<ControlRequest, ControlError> {
        let Self { op, path, paths, value, to, interval_ms, count } = self;
        let lacking = |what: &str| ControlError::invalid(format!("`{op}` needs `{what}`"));
        let text = || match value.clone() {
            None => None,
            Some(Json::String(text)) => Some(text),
            Some(other) => Some(other.to_string()),
        };
        // A field that the operation does not take is a mistake of the peer: refuse it.
        let unused = match op.as_str() {
            "set" => to.is_some() || interval_ms.is_some() || count.is_some(),
            "create" => to.is_some() || interval_ms.is_some() || count.is_some(),
            "move" => value.is_some() || interval_ms.is_some() || count.is_some(),
            "watch" => value.is_some() || to.is_some(),
            _ => value.is_some() || to.is_some() || interval_ms.is_some() || count.is_some(),
        };
        let is_twice = paths.is_some() && (op != "move" || !path.is_empty());
        if unused || is_twice {
            return Err(ControlError::invalid(format!("`{op}` has a field that it does not take")));
        }
        match op.as_str() {
            "ls" => Ok(ControlRequest::List(path)),
            "get" => Ok(ControlRequest::Get(path)),
            "set" => Ok(ControlRequest::Set(path, text().ok_or_else(|| lacking("value"))?)),
            "create" => Ok(ControlRequest::Create(path, text().unwrap_or_default())),
            "remove" => Ok(ControlRequest::Remove(path)),
            "move" => {
                let to = to.ok_or_else(|| lacking("to"))?;
                Ok(ControlRequest::Move(paths.unwrap_or_else(|| vec![path]), to))
            }
            "watch" => {
                let interval = interval_ms.unwrap_or(1000);
                if !WATCH_INTERVALS_MS.contains(&interval) {
                    return Err(ControlError::invalid(format!(
                        "`interval_ms` is {interval}, expected 10 to 86400000"
                    )));
                }
                Ok(ControlRequest::Watch(path, Duration::from_millis(interval), count))
            }
            other => {
                let shown: String = other.chars().take(40).collect();
                let known = "ls, get, set, create, remove, move, watch";
                Err(ControlError::invalid(format!("There is no request `{shown}`; the requests are {known}")))
            }
        }
    }
}

/// The format number of answers, in their field `format`.
pub(crate) const ANSWER_FORMAT: u32 = 1;

/// Carries out a request. Returns the fields of the answer besides `format`, `id` and `ok`.
///
/// A watch is answered once, like a get.
///
/// # Errors
/// [`ControlError`]; nothing has changed then.
pub fn answer(control: &impl Control, request: &ControlRequest) -> Result<Map<String, Json>, ControlError> {
    let field = |name: &str, value: Json| Map::from_iter([(name.to_owned(), value)]);
    match request {
        ControlRequest::List(path) => Ok(field("entries", listed(control, path)?)),
        ControlRequest::Get(path) | ControlRequest::Watch(path, ..) => {
            let node = Node::find(control, path)?;
            Ok(field("value", read_below(control, node)?))
        }
        ControlRequest::Set(path, value) => {
            let node = Node::find(control, path)?;
            Ok(made(control.apply(write(control, node, value)?)?))
        }
        ControlRequest::Create(path, line) => {
            let collection = Node::find(control, path)?;
            let create = collection.child(control, "create")?.ok_or_else(|| {
                ControlError::new(
                    Errno::Unsupported,
                    format!("Nothing can be created in `{}`", collection.object().path()),
                )
            })?;
            Ok(made(control.apply(write(control, create, line)?)?))
        }
        ControlRequest::Remove(path) => {
            let operation = match Node::find(control, path)? {
                Node::Object(Object::Worker(number)) => Operation::RemoveWorker(number),
                Node::Object(Object::Device(number)) => Operation::RemoveDevice(number),
                _ => {
                    return Err(ControlError::new(
                        Errno::Unsupported,
                        "Only workers and devices can be removed",
                    ));
                }
            };
            Ok(made(control.apply(operation)?))
        }
        ControlRequest::Move(paths, to) => {
            let Node::Object(Object::Worker(worker)) = Node::find(control, to)? else {
                return Err(ControlError::invalid(format!("`{}` is not an I/O worker", shortened(to))));
            };
            let mut names = Vec::new();
            for path in paths {
                match Node::find(control, path)? {
                    Node::Object(Object::Queue(name)) => names.push(name),
                    Node::Object(Object::Device(device)) => {
                        let queues = 0..control.queue_count(device);
                        names.extend(queues.map(|queue| QueueName { device, queue }));
                    }
                    _ => {
                        return Err(ControlError::new(
                            Errno::Unsupported,
                            "Only queues and devices can be moved",
                        ));
                    }
                }
            }
            Ok(made(control.apply(Operation::MoveQueues(names, worker))?))
        }
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(200).collect()
}

fn made(name: Option<String>) -> Map<String, Json> {
    name.into_iter().map(|name| ("name".to_owned(), Json::from(name))).collect()
}

fn listed(control: &impl Control, path: &str) -> Result<Json, ControlError> {
    let entries = list(control, Node::find(control, path)?)?.into_iter().map(|entry| match entry.node {
        Node::Attribute(_, attribute) => json!({
            "name": entry.name,
            "kind": "attribute",
            "access": attribute.mode().word(),
            "unit": attribute.unit,
            "about": attribute.about,
        }),
        _ => json!({ "name": entry.name, "kind": "directory" }),
    });
    Ok(entries.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(line: &str) -> Result<ControlRequest, String> {
        RequestLine::parse(line.as_bytes()).request.map_err(|error| error.to_string())
    }

    #[test]
    fn lines_are_requests() {
        let path = || "w.0/cpu".to_owned();
        assert_eq!(request(r#"{"op":"get","path":"w.0/cpu"}"#), Ok(ControlRequest::Get(path())));
        assert_eq!(request(r#"{"op":"ls"}"#), Ok(ControlRequest::List(String::new())));
        let set = ControlRequest::Set(path(), "2".to_owned());
        assert_eq!(request(r#"{"op":"set","path":"w.0/cpu","value":2}"#), Ok(set.clone()));
        assert_eq!(request(r#"{"op":"set","path":"w.0/cpu","value":"2"}"#), Ok(set));
        let create = request(r#"{"op":"create","path":"workers","value":{"cpus":"2"}}"#);
        assert_eq!(create, Ok(ControlRequest::Create("workers".to_owned(), "{\"cpus\":\"2\"}".to_owned())));
        let watch = ControlRequest::Watch(String::new(), Duration::from_millis(50), Some(2));
        assert_eq!(request(r#"{"op":"watch","interval_ms":50,"count":2}"#), Ok(watch));
        let go = |paths: &[&str]| {
            Ok(ControlRequest::Move(paths.iter().map(|path| (*path).to_owned()).collect(), "w.1".to_owned()))
        };
        assert_eq!(request(r#"{"op":"move","path":"d.0","to":"w.1"}"#), go(&["d.0"]));
        assert_eq!(request(r#"{"op":"move","paths":["d.0","vq.1.0"],"to":"w.1"}"#), go(&["d.0", "vq.1.0"]));
        let line = RequestLine::parse(br#"{"id":[1],"op":"get","path":1}"#);
        assert_eq!(line.id, Some(serde_json::json!([1])), "a wrong request keeps its name");
        assert!(line.request.is_err());
    }

    #[test]
    fn what_is_wrong_with_a_line_is_said() {
        let refused = |line: &str| request(line).unwrap_err();
        assert!(refused("").contains("not a request"));
        assert!(refused("[]").contains("object"));
        assert!(refused(r#"{"op":"fly"}"#).contains("`fly`"));
        assert!(refused(r#"{"op":"set","path":"x"}"#).contains("`value`"));
        assert!(refused(r#"{"op":"move","path":"x"}"#).contains("`to`"));
        assert!(refused(r#"{"op":"get","pth":"x"}"#).contains("pth"));
        assert!(refused(r#"{"op":"get","to":"x"}"#).contains("does not take"));
        assert!(refused(r#"{"op":"get","paths":["x"]}"#).contains("does not take"));
        assert!(refused(r#"{"op":"move","path":"x","paths":["x"],"to":"y"}"#).contains("does not take"));
        assert!(refused(r#"{"op":"watch","interval_ms":1}"#).contains("10 to"));
    }
}
