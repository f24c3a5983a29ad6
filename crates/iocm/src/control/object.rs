//! The objects of the control tree: workers, devices and queues, by name and by path.

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
