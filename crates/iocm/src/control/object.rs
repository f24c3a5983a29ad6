//! The objects of the control tree: workers, devices and queues, by name and by path.

use std::fmt;

/// The name of a queue: its device and its number.
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

/// An object that has attributes, or a collection of objects.
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

impl Object {
    /// The name in its collection; for a collection its own name; empty for the root.
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

    /// Parses the name of an object, which need not exist.
    #[must_use]
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        /// Parses a number without a sign and without leading zeros.
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

    /// The collection that it is in.
    #[must_use]
    pub const fn parent(self) -> Self {
        match self {
            Self::Worker(_) => Self::Workers,
            Self::Device(_) => Self::Devices,
            Self::Queue(_) => Self::Queues,
            Self::Root | Self::Workers | Self::Devices | Self::Queues => Self::Root,
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
