//! What a request is answered with.

use super::action::Action;
use super::facts::Control;
use super::node::{Node, Object, QueueName};
use super::refusal::{Errno, Refusal};
use super::request::Request;
use super::tree::{list, read_below, write};
use serde_json::{Map, Value as Json, json};

/// Number of the form of answers, in each of them as `format`.
pub const ANSWER_FORMAT: u32 = 1;

/// Does what is asked for. The fields of the answer beside `format`, `id` and `ok`.
///
/// Watching is answered once, as getting is.
///
/// # Errors
/// [`Refusal`]; nothing has changed then.
pub fn answer(control: &impl Control, request: &Request) -> Result<Map<String, Json>, Refusal> {
    let field = |name: &str, value: Json| Map::from_iter([(name.to_owned(), value)]);
    match request {
        Request::List(path) => Ok(field("entries", listed(control, path)?)),
        Request::Get(path) | Request::Watch(path, ..) => {
            let node = Node::find(control, path)?;
            Ok(field("value", read_below(control, node)?))
        }
        Request::Set(path, value) => {
            let node = Node::find(control, path)?;
            Ok(made(control.apply(write(control, node, value)?)?))
        }
        Request::Create(path, line) => {
            let collection = Node::find(control, path)?;
            let create = collection.child(control, "create")?.ok_or_else(|| {
                Refusal::new(
                    Errno::Unsupported,
                    format!("Nothing can be made in `{}`", collection.object().path()),
                )
            })?;
            Ok(made(control.apply(write(control, create, line)?)?))
        }
        Request::Remove(path) => {
            let action = match Node::find(control, path)? {
                Node::Object(Object::Worker(number)) => Action::RemoveWorker(number),
                Node::Object(Object::Device(number)) => Action::RemoveDevice(number),
                _ => {
                    return Err(Refusal::new(Errno::Unsupported, "Workers and devices alone can be removed"));
                }
            };
            Ok(made(control.apply(action)?))
        }
        Request::Move(paths, to) => {
            let Node::Object(Object::Worker(worker)) = Node::find(control, to)? else {
                return Err(Refusal::invalid(format!("`{}` is no I/O worker", shortened(to))));
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
                        return Err(Refusal::new(
                            Errno::Unsupported,
                            "Queues and devices alone can be moved",
                        ));
                    }
                }
            }
            Ok(made(control.apply(Action::MoveQueues(names, worker))?))
        }
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(200).collect()
}

fn made(name: Option<String>) -> Map<String, Json> {
    name.into_iter().map(|name| ("name".to_owned(), Json::from(name))).collect()
}

fn listed(control: &impl Control, path: &str) -> Result<Json, Refusal> {
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
