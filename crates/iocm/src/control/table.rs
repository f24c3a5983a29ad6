//! All attributes, by what has them. Files, answers, the manual page and the lists come from here.

mod daemon;
mod device;
mod queue;
mod worker;

use super::attribute::{Attribute, Reader, Writer};
use super::facts::View;
use super::node::Object;
use super::refusal::Refusal;
use std::sync::LazyLock;

static TABLES: LazyLock<[Vec<Attribute>; 7]> = LazyLock::new(|| {
    [
        daemon::root(),
        daemon::workers(),
        daemon::devices(),
        Vec::new(),
        worker::attributes(),
        device::attributes(),
        queue::attributes(),
    ]
});

/// The attributes that objects of a kind can have, in order.
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

/// All attributes by the path of what has them, with `N` and `M` for numbers.
pub fn attributes() -> impl Iterator<Item = (&'static str, &'static Attribute)> {
    const PLACES: [&str; 7] =
        ["", "workers/", "devices/", "queues/", "workers/w.N/", "devices/d.N/", "queues/vq.N.M/"];
    PLACES.iter().zip(TABLES.iter()).flat_map(|(place, table)| table.iter().map(move |one| (*place, one)))
}

/// The attributes that an object has; none when it is not there.
pub(super) fn visible(object: Object, view: &impl View) -> Vec<&'static Attribute> {
    let all = of(object).iter();
    let Object::Device(number) = object else {
        return if object.exists(view) { all.collect() } else { Vec::new() };
    };
    let Some(facts) = view.device(number) else { return Vec::new() };
    let has = |attribute: &&Attribute| match attribute.reader {
        Reader::Device(read) => read(&facts).is_some(),
        _ => true,
    };
    all.filter(has).collect()
}

/// The directories within objects of a kind.
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

/// What a counter counts, as a sentence.
fn about(counter: &str) -> String {
    counter.trim().to_owned()
}

/// A number that was written, as it is.
fn number(text: &str, what: &str) -> Result<u64, Refusal> {
    text.parse().map_err(|_| Refusal::invalid(format!("`{text}` is no number of {what}")))
}

/// The worker that was written.
fn worker_of(text: &str) -> Result<u32, Refusal> {
    match Object::of_name(text) {
        Some(Object::Worker(number)) => Ok(number),
        _ => Err(Refusal::invalid(format!("`{text}` is no I/O worker's name, such as w.0"))),
    }
}
