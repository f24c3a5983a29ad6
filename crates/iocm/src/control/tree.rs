//! What the tree has, what is read of it, and what writing to it asks for. Nothing is done here.

use super::action::Action;
use super::attribute::{Attribute, Mode, Reader};
use super::facts::{DaemonFacts, DeviceFacts, QueueFacts, View, WorkerFacts};
use super::node::{Node, Object};
use super::refusal::{Errno, Refusal};
use super::table;
use super::value::Value;
use serde_json::{Map, Value as Json};

/// What stands in a directory.
#[derive(Debug, Clone)]
pub struct Entry {
    /// What it is called there.
    pub name: String,
    /// Its place.
    pub node: Node,
}

/// What a place is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It has others in it.
    Directory,
    /// It can be read, written, or both.
    Attribute(Mode),
}

impl Node {
    /// What it is.
    #[must_use]
    pub const fn kind(self) -> Kind {
        match self {
            Self::Object(_) | Self::Group(..) => Kind::Directory,
            Self::Attribute(_, attribute) => Kind::Attribute(attribute.mode()),
        }
    }
}

/// What stands in a directory, in order; attributes after what has such.
///
/// # Errors
/// [`Refusal`] when it is none.
pub fn list(view: &impl View, node: Node) -> Result<Vec<Entry>, Refusal> {
    let (object, prefix) = match node {
        Node::Object(object) => (object, None),
        Node::Group(object, group) => (object, Some(group)),
        Node::Attribute(..) => {
            return Err(Refusal::new(Errno::NotDirectory, "It is an attribute, and has nothing in it"));
        }
    };
    let mut entries: Vec<Entry> = Vec::new();
    if prefix.is_none() {
        let children = object.children(view).into_iter();
        entries.extend(children.map(|child| Entry { name: child.name(), node: Node::Object(child) }));
    }
    for attribute in table::visible(object, view) {
        let leaf = |name: &str| Entry { name: name.to_owned(), node: Node::Attribute(object, attribute) };
        match (prefix, attribute.name.split_once('/')) {
            (None, None) => entries.push(leaf(attribute.name)),
            (None, Some((group, _))) if entries.last().is_none_or(|last| last.name != group) => {
                entries.push(Entry { name: group.to_owned(), node: Node::Group(object, group) });
            }
            (Some(wanted), Some((group, name))) if group == wanted => entries.push(leaf(name)),
            _ => {}
        }
    }
    Ok(entries)
}

/// The facts of an object, looked up once for all its attributes.
enum Facts {
    None,
    Daemon(DaemonFacts),
    Worker(WorkerFacts),
    Device(Box<DeviceFacts>),
    Queue(Box<QueueFacts>),
}

impl Facts {
    fn of(view: &impl View, object: Object) -> Result<Self, Refusal> {
        let facts = match object {
            Object::Root => Some(Self::Daemon(view.daemon())),
            Object::Workers | Object::Devices | Object::Queues => Some(Self::None),
            Object::Worker(number) => view.worker(number).map(Self::Worker),
            Object::Device(number) => view.device(number).map(|facts| Self::Device(Box::new(facts))),
            Object::Queue(name) => view.queue(name).map(|facts| Self::Queue(Box::new(facts))),
        };
        facts.ok_or_else(|| Refusal::missing(&object.path()))
    }

    fn read(&self, attribute: &Attribute) -> Option<Value> {
        let counter = |named: Vec<(&str, u64)>, index: usize| Some(Value::Number(named.get(index)?.1));
        match (&attribute.reader, self) {
            (Reader::Fixed(read), _) => Some(read()),
            (Reader::Daemon(read), Self::Daemon(facts)) => Some(read(facts)),
            (Reader::Worker(read), Self::Worker(facts)) => Some(read(facts)),
            (Reader::WorkerCounter(index), Self::Worker(facts)) => counter(facts.figures.named(), *index),
            (Reader::Device(read), Self::Device(facts)) => read(facts),
            (Reader::DeviceCounter(index), Self::Device(facts)) => {
                let of =
                    |queue: &QueueFacts| queue.figures.named().get(*index).map_or(0, |(_, count)| *count);
                Some(Value::Number(facts.queues.iter().map(of).fold(0, u64::wrapping_add)))
            }
            (Reader::Queue(read), Self::Queue(facts)) => Some(read(facts)),
            (Reader::QueueCounter(index), Self::Queue(facts)) => counter(facts.figures.named(), *index),
            _ => None,
        }
    }
}

/// What an attribute says.
///
/// # Errors
/// [`Refusal`] when it cannot be read, or is none.
pub fn read(view: &impl View, node: Node) -> Result<Value, Refusal> {
    let Node::Attribute(object, attribute) = node else {
        return Err(Refusal::new(Errno::IsDirectory, "It is a directory, and says nothing itself"));
    };
    if !attribute.mode().reads() {
        return Err(Refusal::new(Errno::Denied, format!("{} can only be written", attribute.name)));
    }
    let value = Facts::of(view, object)?.read(attribute);
    value.ok_or_else(|| Refusal::missing(&format!("{}/{}", object.path(), attribute.name)))
}

/// All that a place and what is below it says, as objects of JSON by name.
///
/// # Errors
/// [`Refusal`] when it is no longer there, or can only be written.
pub fn read_below(view: &impl View, node: Node) -> Result<Json, Refusal> {
    let (object, prefix) = match node {
        Node::Attribute(..) => return Ok(read(view, node)?.json()),
        Node::Object(object) => (object, ""),
        Node::Group(object, group) => (object, group),
    };
    let facts = Facts::of(view, object)?;
    let mut all = Map::new();
    if prefix.is_empty() {
        for child in object.children(view) {
            // One that is gone meanwhile is left out.
            if let Ok(below) = read_below(view, Node::Object(child)) {
                all.insert(child.name(), below);
            }
        }
    }
    for attribute in table::of(object) {
        let Some(value) = facts.read(attribute) else { continue };
        let (group, name) = attribute.name.split_once('/').unwrap_or(("", attribute.name));
        if group == prefix {
            all.insert(name.to_owned(), value.json());
        } else if prefix.is_empty() {
            let inner = all.entry(group).or_insert_with(|| Json::Object(Map::new()));
            if let Json::Object(inner) = inner {
                inner.insert(name.to_owned(), value.json());
            }
        }
    }
    Ok(Json::Object(all))
}

/// What writing a text to a place asks for. A line's end, and blanks around it, do not count.
///
/// # Errors
/// [`Refusal`] when it cannot be written, or not that.
pub fn write(view: &impl View, node: Node, text: &str) -> Result<Action, Refusal> {
    let Node::Attribute(object, attribute) = node else {
        return Err(Refusal::new(Errno::IsDirectory, "It is a directory, and cannot be written"));
    };
    if !object.exists(view) {
        return Err(Refusal::missing(&object.path()));
    }
    match attribute.writer {
        Some(writer) => writer(object, text.trim()),
        None => Err(Refusal::new(Errno::Denied, format!("{} can only be read", attribute.name))),
    }
}

#[cfg(test)]
#[path = "tree_tests.rs"]
mod tests;
