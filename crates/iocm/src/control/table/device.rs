//! Attributes of a device.

use super::{Attribute, Reader, attribute, number, unit, worker_of, written};
use crate::control::attribute::Value;
use crate::control::error::ControlError;
use crate::control::facts::{DeviceFacts, Operation};
use crate::control::object::Object;
use crate::statistics::QueueFigures;

fn of(object: Object) -> Result<u32, ControlError> {
    match object {
        Object::Device(number) => Ok(number),
        other => Err(ControlError::missing(&other.path())),
    }
}

fn text(value: impl Into<String>) -> Option<Value> {
    Some(Value::Text(value.into()))
}

fn workers(device: &DeviceFacts) -> Vec<String> {
    let mut workers: Vec<u32> = device.queues.iter().filter_map(|queue| queue.worker).collect();
    workers.sort_unstable();
    workers.dedup();
    workers.into_iter().map(|number| Object::Worker(number).name()).collect()
}

fn state(device: &DeviceFacts) -> &'static str {
    match (device.closing, device.connected) {
        (true, _) => "removing",
        (false, true) => "connected",
        (false, false) => "waiting",
    }
}

/// The counters of its queues that are summed for a device.
const COUNTERS: [&str; 6] = [
    "statistics/requests",
    "statistics/bytes",
    "statistics/errors",
    "statistics/kicks",
    "statistics/calls",
    "statistics/in_flight",
];

pub(super) fn attributes() -> Vec<Attribute> {
    let plain = |name, unit, says: &str, read: fn(&DeviceFacts) -> Option<Value>| {
        attribute(name, unit, says.to_owned(), Reader::Device(read))
    };
    let mut all = vec![
        plain("name", "text", "Its name in the configuration.", |device| text(device.config.name.as_str())),
        plain(
            "vm",
            "text",
            "The VM whose front-end is connected: its name by the command line of the process, else the name of the process. Empty while there is none.",
            |device| text(device.peer.as_ref().map_or("", |peer| peer.vm.as_str())),
        ),
        plain("pid", "process", "The connected process. Empty while there is none.", |device| {
            let none = Value::Text(String::new());
            Some(device.peer.as_ref().map_or(none, |peer| Value::Number(peer.pid.unsigned_abs().into())))
        }),
        plain("type", "word", "What it is: `block` or `net`.", |device| text(device.kind)),
        plain(
            "state",
            "word",
            "`waiting` for a front-end, `connected`, or `removing` while its last requests are in flight.",
            |device| text(state(device)),
        ),
        plain("socket", "path", "Where it waits for its front-end.", |device| {
            text(device.config.socket.to_string_lossy())
        }),
        written(
            plain(
                "worker",
                "workers",
                "The I/O workers that serve its queues, one per line. Writing one gives it all queues, \
                 now and when a front-end connects.",
                |device| Some(Value::Names(workers(device))),
            ),
            |object, text| Ok(Operation::MoveDevice(of(object)?, worker_of(text)?)),
        ),
        plain("queues", "queues", "Its queues, one per line.", |device| {
            Some(Value::Names(device.queues.iter().map(|queue| queue.name.to_string()).collect()))
        }),
        plain("path", "path", "The file or block device of a disk; a null disk has none.", |device| {
            text(device.config.path.as_ref()?.to_string_lossy())
        }),
        plain("serial", "text", "The serial number of a disk.", |device| {
            device.size.and_then(|_| text(device.config.serial.as_str()))
        }),
        plain("read_only", "yes or no", "Whether the guest may only read a disk.", |device| {
            device.size.map(|_| Value::Switch(device.config.read_only))
        }),
        plain("direct", "yes or no", "Whether the host's page cache is bypassed.", |device| {
            device.size.map(|_| Value::Switch(device.config.direct))
        }),
        plain("block_size", "bytes", "The block size of a disk, as the guest sees it.", |device| {
            device.size.map(|_| Value::Number(device.config.block().block_size.into()))
        }),
        written(
            plain(
                "size",
                "bytes",
                "The size of a disk. Writing a larger one makes its file larger and tells the guest; \
                  writing `file` takes the size that the file, or the block device, has now. A disk never gets smaller, \
                  nor smaller than its file.",
                |device| device.size.map(Value::Number),
            ),
            |object, text| {
                let bytes = if text == "file" { None } else { Some(number(text, "bytes")?) };
                Ok(Operation::Resize(of(object)?, bytes))
            },
        ),
        written(
            plain(
                "limits/requests_per_second",
                "requests/s",
                "The maximum rate over all its queues; 0 for no limit.",
                |device| device.limits.map(|limits| Value::Number(limits[0])),
            ),
            |object, text| Ok(Operation::LimitRequests(of(object)?, number(text, "requests a second")?)),
        ),
        written(
            plain("limits/bytes_per_second", "bytes/s", "The same in bytes; 0 for no limit.", |device| {
                device.limits.map(|limits| Value::Number(limits[1]))
            }),
            |object, text| Ok(Operation::LimitBytes(of(object)?, number(text, "bytes a second")?)),
        ),
    ];
    for path in COUNTERS {
        let index =
            QueueFigures::NAMES.iter().position(|name| path.strip_prefix("statistics/") == Some(name));
        if let Some(index) = index {
            let says = format!("Of all its queues: {}", QueueFigures::ABOUT[index].trim());
            all.push(attribute(path, unit(QueueFigures::NAMES[index]), says, Reader::DeviceCounter(index)));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::facts::FactSource as _;
    use crate::testing::MadeUpDaemon;

    #[test]
    fn the_block_size_is_that_of_the_guest_and_a_network_device_has_none() {
        let all = attributes();
        let Some(Reader::Device(read)) =
            all.iter().find(|one| one.name == "block_size").map(|one| one.reader)
        else {
            panic!("no attribute of devices has this name")
        };
        let usual = MadeUpDaemon::default().device(1).unwrap();
        let mut large = usual.clone();
        large.config.block_size = Some(4096);
        let net = DeviceFacts { kind: "net", size: None, ..usual.clone() };
        let sizes = [&usual, &large, &net].map(read);
        assert_eq!(sizes, [Some(Value::Number(512)), Some(Value::Number(4096)), None]);
    }
}
