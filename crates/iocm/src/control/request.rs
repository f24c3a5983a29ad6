//! What a peer asks for: a line of JSON.

use super::refusal::Refusal;
use serde::Deserialize;
use serde_json::Value as Json;
use std::time::Duration;

/// Bytes that a line has at most, without its end.
pub const LONGEST_LINE: usize = 64 << 10;

/// What a peer asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// What stands in a directory.
    List(String),
    /// What an attribute says, or all of them below a directory.
    Get(String),
    /// An attribute is written.
    Set(String, String),
    /// Something is made in a collection.
    Create(String, String),
    /// Something is removed.
    Remove(String),
    /// Queues, or all queues of devices, go to a worker: all of them at once, or none.
    Move(Vec<String>, String),
    /// What [`Self::Get`] says, again and again, until the next line or for so many times.
    Watch(String, Duration, Option<u64>),
}

/// A line, with what the peer calls it.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestLine {
    /// What the answer shall be called.
    pub id: Option<Json>,
    /// What it asks for, or why it cannot be.
    pub request: Result<Request, Refusal>,
}

/// What an interval of watching can be, milliseconds.
const INTERVALS: std::ops::RangeInclusive<u64> = 10..=86_400_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
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
    /// Reads a line.
    #[must_use]
    pub fn parse(line: &[u8]) -> Self {
        let refused = |error: serde_json::Error| Refusal::invalid(format!("It is no request: {error}"));
        match serde_json::from_slice::<Json>(line) {
            Ok(Json::Object(mut fields)) => {
                let id = fields.remove("id");
                let line = serde_json::from_value::<Line>(Json::Object(fields)).map_err(refused);
                Self { id, request: line.and_then(Line::request) }
            }
            Ok(_) => Self { id: None, request: Err(Refusal::invalid("It is no request: no object of JSON")) },
            Err(error) => Self { id: None, request: Err(refused(error)) },
        }
    }
}

impl Line {
    fn request(self) -> Result<Request, Refusal> {
        let Self { op, path, paths, value, to, interval_ms, count } = self;
        let lacking = |what: &str| Refusal::invalid(format!("`{op}` needs `{what}`"));
        let text = || match value.clone() {
            None => None,
            Some(Json::String(text)) => Some(text),
            Some(other) => Some(other.to_string()),
        };
        // What means nothing to a request is not passed over: it is a mistake of the peer.
        let unused = match op.as_str() {
            "set" => to.is_some() || interval_ms.is_some() || count.is_some(),
            "create" => to.is_some() || interval_ms.is_some() || count.is_some(),
            "move" => value.is_some() || interval_ms.is_some() || count.is_some(),
            "watch" => value.is_some() || to.is_some(),
            _ => value.is_some() || to.is_some() || interval_ms.is_some() || count.is_some(),
        };
        let is_twice = paths.is_some() && (op != "move" || !path.is_empty());
        if unused || is_twice {
            return Err(Refusal::invalid(format!("`{op}` has a field that means nothing to it")));
        }
        match op.as_str() {
            "ls" => Ok(Request::List(path)),
            "get" => Ok(Request::Get(path)),
            "set" => Ok(Request::Set(path, text().ok_or_else(|| lacking("value"))?)),
            "create" => Ok(Request::Create(path, text().unwrap_or_default())),
            "remove" => Ok(Request::Remove(path)),
            "move" => {
                let to = to.ok_or_else(|| lacking("to"))?;
                Ok(Request::Move(paths.unwrap_or_else(|| vec![path]), to))
            }
            "watch" => {
                let interval = interval_ms.unwrap_or(1000);
                if !INTERVALS.contains(&interval) {
                    return Err(Refusal::invalid(format!(
                        "`interval_ms` is {interval}, and 10 to 86400000 can be"
                    )));
                }
                Ok(Request::Watch(path, Duration::from_millis(interval), count))
            }
            other => {
                let shown: String = other.chars().take(40).collect();
                let known = "ls, get, set, create, remove, move, watch";
                Err(Refusal::invalid(format!("There is no request `{shown}`, but {known}")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(line: &str) -> Result<Request, String> {
        RequestLine::parse(line.as_bytes()).request.map_err(|refusal| refusal.to_string())
    }

    #[test]
    fn lines_are_requests() {
        let path = || "w.0/cpu".to_owned();
        assert_eq!(request(r#"{"op":"get","path":"w.0/cpu"}"#), Ok(Request::Get(path())));
        assert_eq!(request(r#"{"op":"ls"}"#), Ok(Request::List(String::new())));
        let set = Request::Set(path(), "2".to_owned());
        assert_eq!(request(r#"{"op":"set","path":"w.0/cpu","value":2}"#), Ok(set.clone()));
        assert_eq!(request(r#"{"op":"set","path":"w.0/cpu","value":"2"}"#), Ok(set));
        let create = request(r#"{"op":"create","path":"workers","value":{"cpus":"2"}}"#);
        assert_eq!(create, Ok(Request::Create("workers".to_owned(), "{\"cpus\":\"2\"}".to_owned())));
        let watch = Request::Watch(String::new(), Duration::from_millis(50), Some(2));
        assert_eq!(request(r#"{"op":"watch","interval_ms":50,"count":2}"#), Ok(watch));
        let go = |paths: &[&str]| {
            Ok(Request::Move(paths.iter().map(|path| (*path).to_owned()).collect(), "w.1".to_owned()))
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
        assert!(refused("").contains("no request"));
        assert!(refused("[]").contains("object"));
        assert!(refused(r#"{"op":"fly"}"#).contains("`fly`"));
        assert!(refused(r#"{"op":"set","path":"x"}"#).contains("`value`"));
        assert!(refused(r#"{"op":"move","path":"x"}"#).contains("`to`"));
        assert!(refused(r#"{"op":"get","pth":"x"}"#).contains("pth"));
        assert!(refused(r#"{"op":"get","to":"x"}"#).contains("means nothing"));
        assert!(refused(r#"{"op":"get","paths":["x"]}"#).contains("means nothing"));
        assert!(refused(r#"{"op":"move","path":"x","paths":["x"],"to":"y"}"#).contains("means nothing"));
        assert!(refused(r#"{"op":"watch","interval_ms":1}"#).contains("10 to"));
    }
}
