//! The table of all attributes. Files, answers, the manual page and the listings come from it.

mod device;
mod queue;
mod worker;

use super::attribute::{Attribute, Reader, Value, Writer};
use super::error::ControlError;
use super::facts::{FactSource, Operation};
use super::object::Object;
use crate::config::{DeviceConfig, WorkerConfig};
use std::sync::LazyLock;

static TABLES: LazyLock<[Vec<Attribute>; 7]> = LazyLock::new(|| {
    [
        root(),
        workers(),
        devices(),
        Vec::new(),
        worker::attributes(),
        device::attributes(),
        queue::attributes(),
    ]
});

/// The attributes of a kind of object, in order.
#[must_use]
pub fn of(object: Object) -> &'static [Attribute] {
    &TABLES[match object {
        Object::Root => 0,
        Object::Workers => 1,
        Object::Devices => 2,
        Object::Queues => 3,
        Object::Worker(_) => 4,
        Object::Device(_) => 5,
        Object::Queue(_) => 6,
    }]
}

/// All attributes with the path of their object, which has `N` and `M` for numbers.
pub fn attributes() -> impl Iterator<Item = (&'static str, &'static Attribute)> {
    const SECTIONS: [&str; 7] =
        ["", "workers/", "devices/", "queues/", "workers/w.N/", "devices/d.N/", "queues/vq.N.M/"];
    SECTIONS
        .iter()
        .zip(TABLES.iter())
        .flat_map(|(section, table)| table.iter().map(move |one| (*section, one)))
}

/// The attributes that an object has; none if it does not exist.
pub(super) fn visible(object: Object, source: &impl FactSource) -> Vec<&'static Attribute> {
    let all = of(object).iter();
    let Object::Device(number) = object else {
        return if object.exists(source) { all.collect() } else { Vec::new() };
    };
    let Some(facts) = source.device(number) else { return Vec::new() };
    let has = |attribute: &&Attribute| match attribute.reader {
        Reader::Device(read) => read(&facts).is_some(),
        _ => true,
    };
    all.filter(has).collect()
}

/// The directories below an object.
pub(super) fn groups(object: Object) -> Vec<&'static str> {
    let mut groups: Vec<&str> =
        of(object).iter().filter_map(|one| Some(one.name.split_once('/')?.0)).collect();
    groups.dedup();
    groups
}

const fn attribute(name: &'static str, unit: &'static str, about: String, reader: Reader) -> Attribute {
    Attribute { name, unit, about, reader, writer: None }
}

fn written(attribute: Attribute, writer: Writer) -> Attribute {
    Attribute { writer: Some(writer), ..attribute }
}

/// The unit of a counter, by its name.
fn unit(counter: &str) -> &'static str {
    match counter {
        name if name.ends_with("_ns") => "ns",
        name if name.ends_with("_ticks") => "ticks of the TSC",
        "bytes" => "bytes",
        _ => "",
    }
}

/// Parses a number that was written.
fn number(text: &str, what: &str) -> Result<u64, ControlError> {
    text.parse().map_err(|_| ControlError::invalid(format!("`{text}` is not a number of {what}")))
}

/// Parses the name of a worker that was written.
fn worker_of(text: &str) -> Result<u32, ControlError> {
    match Object::of_name(text) {
        Some(Object::Worker(number)) => Ok(number),
        _ => Err(ControlError::invalid(format!("`{text}` is not the name of an I/O worker, such as w.0"))),
    }
}

fn root() -> Vec<Attribute> {
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
            "Converts counters in ticks to seconds.".to_owned(),
            Reader::Daemon(|daemon| Value::Number(daemon.ticks_per_second)),
        ),
        attribute(
            "removed_workers/sleeps",
            "",
            "Times that removed I/O workers slept until an event.".to_owned(),
            Reader::Daemon(|daemon| Value::Number(daemon.removed.sleeps)),
        ),
        attribute(
            "removed_workers/useful_ticks",
            unit("useful_ticks"),
            "Ticks of the TSC that these workers spent on requests.".to_owned(),
            Reader::Daemon(|daemon| Value::Number(daemon.removed.useful_ticks)),
        ),
        attribute(
            "removed_workers/awake_ticks",
            unit("awake_ticks"),
            "Ticks of the TSC in which these workers were awake.".to_owned(),
            Reader::Daemon(|daemon| Value::Number(daemon.removed.awake_ticks)),
        ),
        attribute(
            "refused",
            "devices",
            "The devices of the daemon's file that are not served because their disks cannot be used, one per line, each with \
             the reason. Once that is repaired, a restart serves the device, and so does creating one with the same name."
                .to_owned(),
            Reader::Daemon(|daemon| Value::Names(daemon.refused.clone())),
        ),
        attribute(
            "configuration",
            "TOML",
            "The file for the daemon as it is now, with all devices, limits, sizes and CPUs. A file has one way of waiting for \
             all workers; if theirs differ, it is that of most, and a comment in the first line names the others."
                .to_owned(),
            Reader::Daemon(|daemon| Value::Lines(daemon.configuration.clone())),
        ),
    ]
}

fn workers() -> Vec<Attribute> {
    let create = "Creates an I/O worker. Write nothing, or `cpus`, `polling` and `longest-nap-us` as a TOML table or a JSON object.";
    let remove =
        "Removes the named I/O worker. Its queues go to those that have the fewest. The last one stays.";
    vec![
        written(attribute("create", "TOML or JSON", create.to_owned(), Reader::None), |_, text| {
            Ok(Operation::AddWorker(WorkerConfig::parse(text)?))
        }),
        written(attribute("remove", "worker", remove.to_owned(), Reader::None), |_, text| {
            Ok(Operation::RemoveWorker(worker_of(text)?))
        }),
    ]
}

fn devices() -> Vec<Attribute> {
    let create =
        "Creates a device. Write a `[[device]]` of the configuration, as a TOML table or a JSON object.";
    let remove =
        "Removes the named device, after its requests in flight. Its front-end sees the connection close.";
    vec![
        written(attribute("create", "TOML or JSON", create.to_owned(), Reader::None), |_, text| {
            Ok(Operation::AddDevice(Box::new(DeviceConfig::parse(text)?)))
        }),
        written(attribute("remove", "device", remove.to_owned(), Reader::None), |_, text| {
            match Object::of_name(text) {
                Some(Object::Device(number)) => Ok(Operation::RemoveDevice(number)),
                _ => Err(ControlError::invalid(format!("`{text}` is not the name of a device, such as d.0"))),
            }
        }),
    ]
}
