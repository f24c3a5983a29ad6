//! Attributes of the daemon, and of its collections.

use super::{Attribute, Reader, attribute, worker_of, written};
use crate::config::{DeviceConfig, WorkerConfig};
use crate::control::action::Action;
use crate::control::node::Object;
use crate::control::refusal::Refusal;
use crate::control::value::Value;

pub(super) fn root() -> Vec<Attribute> {
    let version = || Value::Text(format!("exitless {}", env!("CARGO_PKG_VERSION")));
    vec![
        attribute("version", "text", "The program and its version.".to_owned(), Reader::Fixed(version)),
        attribute(
            "pid",
            "process",
            "The daemon's process.".to_owned(),
            Reader::Daemon(|daemon| Value::Number(daemon.pid.into())),
        ),
        attribute(
            "ticks_per_second",
            "ticks of the TSC",
            "What makes seconds of counters in ticks.".to_owned(),
            Reader::Daemon(|daemon| Value::Number(daemon.ticks_per_second)),
        ),
        attribute(
            "configuration",
            "TOML",
            "The file that would make the daemon as it is now: with all devices, limits, sizes and CPUs. Ways of waiting \
             that differ between workers have no place in a file; the first worker's is written."
                .to_owned(),
            Reader::Daemon(|daemon| Value::Lines(daemon.configuration.clone())),
        ),
    ]
}

pub(super) fn workers() -> Vec<Attribute> {
    let create = "Makes one more I/O worker. What is written is empty, or says `cpus`, `polling` and `longest-nap-us` as a \
                  table of TOML or an object of JSON.";
    let remove = "Takes away the I/O worker that is named. Its queues go to those that have the fewest. The last one stays.";
    vec![
        written(attribute("create", "TOML or JSON", create.to_owned(), Reader::None), |_, text| {
            Ok(Action::AddWorker(WorkerConfig::parse(text)?))
        }),
        written(attribute("remove", "worker", remove.to_owned(), Reader::None), |_, text| {
            Ok(Action::RemoveWorker(worker_of(text)?))
        }),
    ]
}

pub(super) fn devices() -> Vec<Attribute> {
    let create = "Makes one more device. What is written is a `[[device]]` of the configuration, as a table of TOML or an \
                  object of JSON.";
    let remove = "Removes the device that is named, after its requests under way. Its front-end sees the connection close.";
    vec![
        written(attribute("create", "TOML or JSON", create.to_owned(), Reader::None), |_, text| {
            Ok(Action::AddDevice(Box::new(DeviceConfig::parse(text)?)))
        }),
        written(attribute("remove", "device", remove.to_owned(), Reader::None), |_, text| {
            match Object::of_name(text) {
                Some(Object::Device(number)) => Ok(Action::RemoveDevice(number)),
                _ => Err(Refusal::invalid(format!("`{text}` is no device's name, such as d.0"))),
            }
        }),
    ]
}
