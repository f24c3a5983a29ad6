//! The control tree: directories and attributes by path, and what reading or writing one means. Nothing is carried out here.

use super::attribute::{Attribute, Mode, Reader, Value};
use super::error::{ControlError, Errno};
use super::facts::{DaemonFacts, DeviceFacts, FactSource, Operation, QueueFacts, WorkerFacts};
use super::object::{Object, QueueName};
use super::table;
use serde_json::{Map, Value as Json};

/// A place in the tree.
#[derive(Debug, Clone, Copy)]
pub enum Node {
    /// A directory with an object's attributes, or with objects.
    Object(Object),
    /// A directory with some of an object's attributes: those whose names begin so.
    Group(Object, &'static str),
    /// An attribute.
    Attribute(Object, &'static Attribute),
}

impl Node {
    /// The place that a path names. The names of workers, devices and queues are enough by themselves: `w.0/cpu` is
    /// `workers/w.0/cpu`.
    ///
    /// # Errors
    /// [`ControlError`] when there is no such place.
    pub fn find(source: &impl FactSource, path: &str) -> Result<Self, ControlError> {
        let mut node = Self::Object(Object::Root);
        let mut first = true;
        for name in path.split('/').filter(|name| !name.is_empty() && *name != ".") {
            let inside = match (first, Object::of_name(name)) {
                (true, Some(object)) => object.exists(source).then_some(Self::Object(object)),
                _ => node.child(source, name)?,
            };
            node = inside.ok_or_else(|| {
                // It may be of any length.
                let shown: String = path.chars().take(200).collect();
                ControlError::missing(&shown)
            })?;
            first = false;
        }
        Ok(node)
    }

    /// What is in it under this name.
    ///
    /// # Errors
    /// [`ControlError`] when nothing is in it at all.
    pub fn child(self, source: &impl FactSource, name: &str) -> Result<Option<Self>, ControlError> {
        let (object, prefix) = match self {
            Self::Object(object) => (object, ""),
            Self::Group(object, group) => (object, group),
            Self::Attribute(_, attribute) => {
                return Err(ControlError::new(
                    Errno::NotDirectory,
                    format!("{} has nothing in it", attribute.name),
                ));
            }
        };
        if prefix.is_empty() {
            let collections = [Object::Workers, Object::Devices, Object::Queues];
            let collection = collections.into_iter().find(|one| object == Object::Root && one.name() == name);
            let named = Object::of_name(name).filter(|one| one.parent() == object && one.exists(source));
            if let Some(object) = collection.or(named) {
                return Ok(Some(Self::Object(object)));
            }
        }
        let has = table::visible(object, source);
        let inside = |attribute: &'static Attribute| match prefix {
            "" => Some(attribute.name),
            group => attribute.name.strip_prefix(group)?.strip_prefix('/'),
        };
        Ok(has.into_iter().find_map(|attribute| match inside(attribute)?.split_once('/') {
            None if inside(attribute) == Some(name) => Some(Self::Attribute(object, attribute)),
            Some((group, _)) if prefix.is_empty() && group == name => Some(Self::Group(object, group)),
            _ => None,
        }))
    }

    /// The object that it is, or that it belongs to.
    #[must_use]
    pub const fn object(self) -> Object {
        match self {
            Self::Object(object) | Self::Group(object, _) | Self::Attribute(object, _) => object,
        }
    }

    /// A number that no other place has, ever: 1 for the root.
    #[must_use]
    pub fn number(self) -> u64 {
        let (kind, first, second) = match self.object() {
            Object::Root => (0, 0, 0),
            Object::Workers => (1, 0, 0),
            Object::Devices => (2, 0, 0),
            Object::Queues => (3, 0, 0),
            Object::Worker(number) => (4, number, 0),
            Object::Device(number) => (5, number, 0),
            Object::Queue(name) => (6, name.device, name.queue),
        };
        // Which attribute, which group, or neither; the root's own number is 1 then.
        let part = match self {
            Self::Object(_) => 1,
            Self::Attribute(object, attribute) => {
                2 + table::of(object).iter().position(|one| one.name == attribute.name).unwrap_or(0)
            }
            Self::Group(object, group) => {
                130 + table::groups(object).iter().position(|one| *one == group).unwrap_or(0)
            }
        };
        (part as u64 & 0xff) | kind << 8 | u64::from(second) << 16 | u64::from(first) << 32
    }

    /// The place that has a number, whether it is there or not.
    #[must_use]
    pub fn of_number(number: u64) -> Option<Self> {
        let (first, second) = ((number >> 32) as u32, (number >> 16 & 0xffff) as u16);
        let object = match (number >> 8 & 0xff, first, second) {
            (0, 0, 0) => Object::Root,
            (1, 0, 0) => Object::Workers,
            (2, 0, 0) => Object::Devices,
            (3, 0, 0) => Object::Queues,
            (4, number, 0) => Object::Worker(number),
            (5, number, 0) => Object::Device(number),
            (6, device, queue) => Object::Queue(QueueName { device, queue }),
            _ => return None,
        };
        match (number & 0xff) as usize {
            0 => None,
            1 => Some(Self::Object(object)),
            part @ 2..130 => table::of(object).get(part - 2).map(|one| Self::Attribute(object, one)),
            part => table::groups(object).get(part - 130).map(|group| Self::Group(object, group)),
        }
    }
}

/// What stands in a directory.
#[derive(Debug, Clone)]
pub struct DirectoryEntry {
    /// What it is called there.
    pub name: String,
    /// Its place.
    pub node: Node,
}

/// What a place is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeKind {
    /// It has others in it.
    Directory,
    /// It can be read, written, or both.
    Attribute(Mode),
}

impl Node {
    /// What it is.
    #[must_use]
    pub const fn kind(self) -> NodeKind {
        match self {
            Self::Object(_) | Self::Group(..) => NodeKind::Directory,
            Self::Attribute(_, attribute) => NodeKind::Attribute(attribute.mode()),
        }
    }
}

/// What stands in a directory, in order; attributes after what has such.
///
/// # Errors
/// [`ControlError`] when it is none.
pub fn list(source: &impl FactSource, node: Node) -> Result<Vec<DirectoryEntry>, ControlError> {
    let (object, prefix) = match node {
        Node::Object(object) => (object, None),
        Node::Group(object, group) => (object, Some(group)),
        Node::Attribute(..) => {
            return Err(ControlError::new(Errno::NotDirectory, "It is an attribute, and has nothing in it"));
        }
    };
    let mut entries: Vec<DirectoryEntry> = Vec::new();
    if prefix.is_none() {
        let children = object.children(source).into_iter();
        entries
            .extend(children.map(|child| DirectoryEntry { name: child.name(), node: Node::Object(child) }));
    }
    for attribute in table::visible(object, source) {
        let leaf =
            |name: &str| DirectoryEntry { name: name.to_owned(), node: Node::Attribute(object, attribute) };
        match (prefix, attribute.name.split_once('/')) {
            (None, None) => entries.push(leaf(attribute.name)),
            (None, Some((group, _))) if entries.last().is_none_or(|last| last.name != group) => {
                entries.push(DirectoryEntry { name: group.to_owned(), node: Node::Group(object, group) });
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
    fn of(source: &impl FactSource, object: Object) -> Result<Self, ControlError> {
        let facts = match object {
            Object::Root => Some(Self::Daemon(source.daemon())),
            Object::Workers | Object::Devices | Object::Queues => Some(Self::None),
            Object::Worker(number) => source.worker(number).map(Self::Worker),
            Object::Device(number) => source.device(number).map(|facts| Self::Device(Box::new(facts))),
            Object::Queue(name) => source.queue(name).map(|facts| Self::Queue(Box::new(facts))),
        };
        facts.ok_or_else(|| ControlError::missing(&object.path()))
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
/// [`ControlError`] when it cannot be read, or is none.
pub fn read(source: &impl FactSource, node: Node) -> Result<Value, ControlError> {
    let Node::Attribute(object, attribute) = node else {
        return Err(ControlError::new(Errno::IsDirectory, "It is a directory, and says nothing itself"));
    };
    if !attribute.mode().reads() {
        return Err(ControlError::new(Errno::Denied, format!("{} can only be written", attribute.name)));
    }
    let value = Facts::of(source, object)?.read(attribute);
    value.ok_or_else(|| ControlError::missing(&format!("{}/{}", object.path(), attribute.name)))
}

/// All that a place and what is below it says, as objects of JSON by name.
///
/// # Errors
/// [`ControlError`] when it is no longer there, or can only be written.
pub fn read_below(source: &impl FactSource, node: Node) -> Result<Json, ControlError> {
    let (object, prefix) = match node {
        Node::Attribute(..) => return Ok(read(source, node)?.json()),
        Node::Object(object) => (object, ""),
        Node::Group(object, group) => (object, group),
    };
    let facts = Facts::of(source, object)?;
    let mut all = Map::new();
    if prefix.is_empty() {
        for child in object.children(source) {
            // One that is gone meanwhile is left out.
            if let Ok(below) = read_below(source, Node::Object(child)) {
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
/// [`ControlError`] when it cannot be written, or not that.
pub fn write(source: &impl FactSource, node: Node, text: &str) -> Result<Operation, ControlError> {
    let Node::Attribute(object, attribute) = node else {
        return Err(ControlError::new(Errno::IsDirectory, "It is a directory, and cannot be written"));
    };
    if !object.exists(source) {
        return Err(ControlError::missing(&object.path()));
    }
    match attribute.writer {
        Some(writer) => writer(object, text.trim()),
        None => Err(ControlError::new(Errno::Denied, format!("{} can only be read", attribute.name))),
    }
}

#[cfg(test)]
#[path = "tree_tests.rs"]
mod tests;
