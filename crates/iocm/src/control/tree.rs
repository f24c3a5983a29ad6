//! The control tree: looking up its directories and attributes by path, reading them, and turning writes into
//! operations, which the daemon carries out.

use super::attribute::{Attribute, Mode, Reader, Value};
use super::error::{ControlError, Errno};
use super::facts::{DaemonFacts, DeviceFacts, FactSource, Operation, QueueFacts, WorkerFacts};
use super::object::{Object, QueueName};
use super::table;
use serde_json::{Map, Value as Json};

/// A node of the tree.
#[derive(Debug, Clone, Copy)]
pub enum Node {
    /// A directory with the attributes of an object, or with objects.
    Object(Object),
    /// A directory with those attributes of an object whose names start with a prefix.
    Group(Object, &'static str),
    /// An attribute.
    Attribute(Object, &'static Attribute),
}

impl Node {
    /// Looks up a path. It may start with the name of a worker, device or queue: `w.0/cpu` is `workers/w.0/cpu`.
    ///
    /// # Errors
    ///
    /// [`ControlError`] when there is no such node.
    pub fn find(source: &impl FactSource, path: &str) -> Result<Self, ControlError> {
        let mut node = Self::Object(Object::Root);
        let mut first = true;
        for name in path.split('/').filter(|name| !name.is_empty() && *name != ".") {
            let inside = match (first, Object::of_name(name)) {
                (true, Some(object)) => object.exists(source).then_some(Self::Object(object)),
                _ => node.child(source, name)?,
            };
            node = inside.ok_or_else(|| {
                // The path may be very long.
                let shown: String = path.chars().take(200).collect();
                ControlError::missing(&shown)
            })?;
            first = false;
        }
        Ok(node)
    }

    /// Looks up a name in a directory.
    ///
    /// # Errors
    ///
    /// [`ControlError`] when this is an attribute.
    pub fn child(self, source: &impl FactSource, name: &str) -> Result<Option<Self>, ControlError> {
        let (object, prefix) = match self {
            Self::Object(object) => (object, ""),
            Self::Group(object, group) => (object, group),
            Self::Attribute(_, attribute) => {
                return Err(ControlError::new(
                    Errno::NotDirectory,
                    format!("{} is an attribute, not a directory", attribute.name),
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

    /// The object that the node is or belongs to.
    #[must_use]
    pub const fn object(self) -> Object {
        match self {
            Self::Object(object) | Self::Group(object, _) | Self::Attribute(object, _) => object,
        }
    }

    /// The inode number, which no other node ever gets: 1 for the root.
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
        // 1 for the object itself, which makes the root's number 1; then come the attributes, then the groups.
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

    /// The node with this inode number, whether its object exists or not.
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

/// An entry of a directory.
#[derive(Debug, Clone)]
pub struct DirectoryEntry {
    /// Its name.
    pub name: String,
    /// Its node.
    pub node: Node,
}

/// The kind of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeKind {
    /// A directory.
    Directory,
    /// An attribute.
    Attribute(Mode),
}

impl Node {
    /// The kind of this node.
    #[must_use]
    pub const fn kind(self) -> NodeKind {
        match self {
            Self::Object(_) | Self::Group(..) => NodeKind::Directory,
            Self::Attribute(_, attribute) => NodeKind::Attribute(attribute.mode()),
        }
    }
}

/// Lists a directory: first the objects, then the attributes.
///
/// # Errors
///
/// [`ControlError`] when the node is an attribute.
pub fn list(source: &impl FactSource, node: Node) -> Result<Vec<DirectoryEntry>, ControlError> {
    let (object, prefix) = match node {
        Node::Object(object) => (object, None),
        Node::Group(object, group) => (object, Some(group)),
        Node::Attribute(..) => {
            return Err(ControlError::new(Errno::NotDirectory, "It is an attribute, not a directory"));
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

/// Reads an attribute.
///
/// # Errors
///
/// [`ControlError`] when it is write-only, or the node is a directory.
pub fn read(source: &impl FactSource, node: Node) -> Result<Value, ControlError> {
    let Node::Attribute(object, attribute) = node else {
        return Err(ControlError::new(Errno::IsDirectory, "It is a directory, and cannot be read"));
    };
    if !attribute.mode().reads() {
        return Err(ControlError::new(Errno::Denied, format!("{} can only be written", attribute.name)));
    }
    let value = Facts::of(source, object)?.read(attribute);
    value.ok_or_else(|| ControlError::missing(&format!("{}/{}", object.path(), attribute.name)))
}

/// Reads a node and all below it, as JSON objects by name.
///
/// # Errors
///
/// [`ControlError`] when it no longer exists, or is write-only.
pub(crate) fn read_below(source: &impl FactSource, node: Node) -> Result<Json, ControlError> {
    let (object, prefix) = match node {
        Node::Attribute(..) => return Ok(read(source, node)?.json()),
        Node::Object(object) => (object, ""),
        Node::Group(object, group) => (object, group),
    };
    let facts = Facts::of(source, object)?;
    let mut all = Map::new();
    if prefix.is_empty() {
        for child in object.children(source) {
            // The whole tree takes long: let an I/O worker that waits for this CPU run.
            std::thread::yield_now();
            // Leave out an object that was removed meanwhile.
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

/// Turns a text that is written to a node into an operation. Surrounding white space is ignored.
///
/// # Errors
///
/// [`ControlError`] when the node cannot be written, or the text is not valid for it.
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
