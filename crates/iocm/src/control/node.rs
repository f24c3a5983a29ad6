//! Places in the tree, by name and by number.

use super::attribute::Attribute;
use super::facts::View;
use super::refusal::{Errno, Refusal};
use super::table;
use std::fmt;

/// Which queue: of which device, and which of its queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueName {
    /// The device's number.
    pub device: u32,
    /// The queue's number in the device.
    pub queue: u16,
}

impl fmt::Display for QueueName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "vq.{}.{}", self.device, self.queue)
    }
}

/// Something that has attributes, or a collection of such.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Object {
    /// The daemon.
    Root,
    /// Its workers.
    Workers,
    /// A worker.
    Worker(u32),
    /// Its devices.
    Devices,
    /// A device.
    Device(u32),
    /// The queues of all devices.
    Queues,
    /// A queue.
    Queue(QueueName),
}

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

impl Object {
    /// What it is called in its collection; the collection's own name for those; nothing for the root.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Root => String::new(),
            Self::Workers => "workers".to_owned(),
            Self::Devices => "devices".to_owned(),
            Self::Queues => "queues".to_owned(),
            Self::Worker(number) => format!("w.{number}"),
            Self::Device(number) => format!("d.{number}"),
            Self::Queue(name) => name.to_string(),
        }
    }

    /// The object that has this name, whether it is there or not.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        /// A number as it is written: no sign, no zeros before it.
        fn number<T: std::str::FromStr + ToString>(text: &str) -> Option<T> {
            let number: T = text.parse().ok()?;
            (number.to_string() == text).then_some(number)
        }
        match name.split_once('.')? {
            ("w", text) => Some(Self::Worker(number(text)?)),
            ("d", text) => Some(Self::Device(number(text)?)),
            ("vq", text) => {
                let (device, queue) = text.split_once('.')?;
                Some(Self::Queue(QueueName { device: number(device)?, queue: number(queue)? }))
            }
            _ => None,
        }
    }

    /// What it is in.
    #[must_use]
    pub const fn parent(self) -> Self {
        match self {
            Self::Worker(_) => Self::Workers,
            Self::Device(_) => Self::Devices,
            Self::Queue(_) => Self::Queues,
            Self::Root | Self::Workers | Self::Devices | Self::Queues => Self::Root,
        }
    }

    /// Whether it is there.
    pub fn exists(self, view: &impl View) -> bool {
        match self {
            Self::Worker(number) => view.workers().contains(&number),
            Self::Device(number) => view.devices().contains(&number),
            Self::Queue(name) => name.queue < view.queue_count(name.device),
            Self::Root | Self::Workers | Self::Devices | Self::Queues => true,
        }
    }

    /// What is in it, in order.
    pub fn children(self, view: &impl View) -> Vec<Self> {
        match self {
            Self::Root => vec![Self::Workers, Self::Devices, Self::Queues],
            Self::Workers => view.workers().into_iter().map(Self::Worker).collect(),
            Self::Devices => view.devices().into_iter().map(Self::Device).collect(),
            Self::Queues => {
                let of = |device| (0..view.queue_count(device)).map(move |queue| QueueName { device, queue });
                view.devices().into_iter().flat_map(of).map(Self::Queue).collect()
            }
            Self::Worker(_) | Self::Device(_) | Self::Queue(_) => Vec::new(),
        }
    }

    /// Its path from the root.
    #[must_use]
    pub fn path(self) -> String {
        match self {
            Self::Worker(_) | Self::Device(_) | Self::Queue(_) => {
                format!("{}/{}", self.parent().name(), self.name())
            }
            _ => self.name(),
        }
    }
}

impl Node {
    /// The place that a path names. The names of workers, devices and queues are enough by themselves: `w.0/cpu` is
    /// `workers/w.0/cpu`.
    ///
    /// # Errors
    /// [`Refusal`] when there is no such place.
    pub fn find(view: &impl View, path: &str) -> Result<Self, Refusal> {
        let mut node = Self::Object(Object::Root);
        let mut first = true;
        for name in path.split('/').filter(|name| !name.is_empty() && *name != ".") {
            let inside = match (first, Object::of_name(name)) {
                (true, Some(object)) => object.exists(view).then_some(Self::Object(object)),
                _ => node.child(view, name)?,
            };
            node = inside.ok_or_else(|| {
                // It may be of any length.
                let shown: String = path.chars().take(200).collect();
                Refusal::missing(&shown)
            })?;
            first = false;
        }
        Ok(node)
    }

    /// What is in it under this name.
    ///
    /// # Errors
    /// [`Refusal`] when nothing is in it at all.
    pub fn child(self, view: &impl View, name: &str) -> Result<Option<Self>, Refusal> {
        let (object, prefix) = match self {
            Self::Object(object) => (object, ""),
            Self::Group(object, group) => (object, group),
            Self::Attribute(_, attribute) => {
                return Err(Refusal::new(
                    Errno::NotDirectory,
                    format!("{} has nothing in it", attribute.name),
                ));
            }
        };
        if prefix.is_empty() {
            let collections = [Object::Workers, Object::Devices, Object::Queues];
            let collection = collections.into_iter().find(|one| object == Object::Root && one.name() == name);
            let named = Object::of_name(name).filter(|one| one.parent() == object && one.exists(view));
            if let Some(object) = collection.or(named) {
                return Ok(Some(Self::Object(object)));
            }
        }
        let has = table::visible(object, view);
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
