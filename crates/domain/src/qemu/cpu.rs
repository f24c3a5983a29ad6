//! `-cpu`: the model, and features that are enabled or disabled.

use super::properties::switch;
use super::reading::Reading;
use crate::{CpuModel, FeatureState, Set};
use std::ops::Range;

/// A part of `-cpu` after the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    /// Its range in the argument.
    pub(super) at: Range<usize>,
    /// The name, with dashes, in QEMU's current form.
    pub(super) name: String,
    /// Its syntax.
    pub(super) how: How,
}

/// The syntax of a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum How {
    /// `+x`.
    Plus,
    /// `-x`.
    Minus,
    /// `x=value`, or `x` alone, which is `on`.
    Value(String),
}

/// The parts of `-cpu`. Commas cannot be doubled here: QEMU splits this argument with `strtok`
/// (`x86_cpu_parse_featurestr` in `target/i386/cpu.c`).
pub(super) fn parts(said: &str) -> (Range<usize>, Vec<Part>) {
    let mut found = Vec::new();
    let mut start = 0;
    let mut model = 0..said.len();
    for (number, part) in said.split(',').enumerate() {
        let at = start..start + part.len();
        start = at.end + 1;
        if number == 0 {
            model = at;
        } else if !part.is_empty() {
            let (name, how) = match (part.strip_prefix('+'), part.strip_prefix('-'), part.split_once('=')) {
                (Some(name), _, _) => (name, How::Plus),
                (_, Some(name), _) => (name, How::Minus),
                (_, _, Some((name, value))) => (name, How::Value(value.to_owned())),
                _ => (part, How::Value("on".to_owned())),
            };
            found.push(Part { at, name: canonical(name), how });
        }
    }
    (model, found)
}

/// QEMU's current name of a feature. Dashes replace underscores (`feat2prop`), and old names are aliases
/// (`x86_cpu_initfn` in `target/i386/cpu.c`).
pub(super) fn canonical(name: &str) -> String {
    let name = name.to_ascii_lowercase().replace('_', "-");
    let name = match name.as_str() {
        "sse3" => "pni",
        "pclmuldq" => "pclmulqdq",
        "sse4-1" => "sse4.1",
        "sse4-2" => "sse4.2",
        "xd" => "nx",
        "ffxsr" => "fxsr-opt",
        "i64" => "lm",
        "hv-apicv" => "hv-avic",
        _ => return name,
    };
    name.to_owned()
}

/// The effective part for a feature: `-x` overrides `+x`, and that overrides the last `x=value`, in any order
/// (`x86_cpu_expand_features` applies the lists in that order, after the properties).
pub(super) fn deciding<'a>(named: &[&'a Part]) -> Option<&'a Part> {
    let last = |how: &How| named.iter().rev().find(|part| part.how == *how);
    last(&How::Minus).or_else(|| last(&How::Plus)).or(named.last()).copied()
}

/// The model with QEMU's name.
pub(super) fn model(name: &str) -> CpuModel {
    match name {
        "host" => CpuModel::Host,
        "max" => CpuModel::Maximum,
        other => CpuModel::Named(other.to_owned()),
    }
}

/// Reads `-cpu`, and `-global` of CPU drivers for properties that `-cpu` does not set. The last of several
/// `-cpu` counts.
pub(super) fn read(reading: &mut Reading<'_>) {
    if let Some(item) = reading.items.iter().rposition(|item| item.name == "cpu") {
        let item = reading.items[item].clone();
        let said =
            if item.given.is_some() { item.said.clone() } else { item.text("model").unwrap_or_default() };
        let (model_at, parts) = parts(&said);
        let place = |at: Range<usize>| match item.given.and_then(|given| given.argument) {
            Some(argument) => reading.command.arguments[argument].place(at, &reading.text.bytes),
            None => item.place.clone(),
        };
        let name = &said[model_at];
        let mut cpu = std::mem::take(&mut reading.definition.cpu);
        let mut doubts = Vec::new();
        if !name.is_empty() {
            cpu.model = Some(Set::new(model(name), item.place.clone()));
        }
        let mut sorted: Vec<&Part> = parts.iter().collect();
        // A stable sort: parts with the same name keep their order.
        sorted.sort_by(|one, other| one.name.cmp(&other.name));
        for named in sorted.chunk_by(|one, other| one.name == other.name) {
            let Some(part) = deciding(named) else { continue };
            let place = place(part.at.clone());
            match (&part.how, state(&part.how)) {
                (How::Value(value), None) => valued(&mut cpu, &part.name, value, place),
                (_, Some(state)) => feature(&mut cpu, &part.name, state, place),
                _ => {}
            }
        }
        // Restore the order of the text.
        cpu.properties.sort_by_key(|set| set.place.start);
        if parts.iter().any(|part| part.name.is_empty()) {
            doubts.push(format!("Line {}: a part of -cpu has no name.", item.place.line));
        }
        reading.definition.cpu = cpu;
        reading.definition.doubts.append(&mut doubts);
    }
    globals(reading);
    clocks(reading);
}

fn state(how: &How) -> Option<FeatureState> {
    let on = match how {
        How::Plus => true,
        How::Minus => false,
        How::Value(value) => switch(value)?,
    };
    Some(if on { FeatureState::On } else { FeatureState::Off })
}

fn feature(cpu: &mut crate::GuestCpu, name: &str, state: FeatureState, place: crate::Place) {
    let on = state == FeatureState::On;
    match name.strip_prefix("hv-") {
        Some("passthrough") => cpu.hyperv.passthrough = Some(Set::new(on, place)),
        Some(name) => drop(cpu.hyperv.features.insert(name.to_owned(), Set::new(on, place))),
        None => drop(cpu.features.insert(name.to_owned(), Set::new(state, place))),
    }
}

fn valued(cpu: &mut crate::GuestCpu, name: &str, value: &str, place: crate::Place) {
    if matches!(name, "hv-spinlocks" | "hv-vendor-id") {
        feature(cpu, name, FeatureState::On, place.clone());
    }
    cpu.properties.push(Set::new((name.to_owned(), value.to_owned()), place));
}

/// Tests whether a driver is that of a CPU, of any model.
pub(super) fn is_cpu_driver(driver: &str) -> bool {
    driver == "cpu" || driver.ends_with("x86_64-cpu") || driver.ends_with("i386-cpu")
}

fn globals(reading: &mut Reading<'_>) {
    let definition = &mut reading.definition;
    for global in definition.globals.iter().filter(|global| is_cpu_driver(&global.value.0)) {
        let (_, property, value) = &global.value;
        let name = canonical(property);
        let known = match name.strip_prefix("hv-") {
            Some(name) => definition.cpu.hyperv.features.contains_key(name),
            None => definition.cpu.features.contains_key(&name),
        };
        if let (Some(state), false) = (state(&How::Value(value.clone())), known) {
            feature(&mut definition.cpu, &name, state, global.place.clone());
        }
    }
}

/// Reads the clocks that are CPU features in QEMU but timers in libvirt.
fn clocks(reading: &mut Reading<'_>) {
    let definition = &mut reading.definition;
    if let Some(clock) = definition.cpu.features.get("kvmclock") {
        let on = clock.value != FeatureState::Off;
        definition.timers.kvm_clock = Some(Set::new(on, clock.place.clone()));
    }
    definition.timers.hyperv_clock = definition.cpu.hyperv.features.get("time").cloned();
}
