//! Conversion of changes of a VM's definition to settings of a plan's guests.

use domain::{Definition, DefinitionChange, FeatureState, NoFiles, Text};
use toml::{Table, Value};

use guests::{GuestPlan, QemuPlan, merged, qemu_command_line};

/// The definition of the plan's guests.
///
/// # Errors
/// If the plan's own arguments are not valid for QEMU.
pub(super) fn definition_of(plan: &QemuPlan) -> Result<Definition, String> {
    let text = Text::new("the guests' command line", qemu_command_line(plan));
    domain::qemu::read(&text, &NoFiles).map_err(|error| error.to_string())
}

/// The table `guests` that makes these changes; empty if the guests already have them.
///
/// # Errors
/// The first change that a plan cannot express.
pub(super) fn overlay(plan: &QemuPlan, changes: &[DefinitionChange]) -> Result<Table, String> {
    // Apply one after the other, because two may affect the same setting.
    let (mut over, mut now) = (Table::new(), plan.clone());
    for change in changes {
        let one = settings(&now, change)?;
        let guests = GuestPlan::Qemu(Box::new(now.clone()));
        now = match guests.with([&one]).map_err(|error| error.to_string())? {
            GuestPlan::Qemu(plan) => *plan,
            _ => return Err("It makes other guests of them".to_owned()),
        };
        over = merged(&over, [&one]);
    }
    Ok(if now == *plan { Table::new() } else { over })
}

/// The settings for one change. Devices that every guest has for its agent and its root disk are not changed.
fn settings(plan: &QemuPlan, change: &DefinitionChange) -> Result<Table, String> {
    let definition = definition_of(plan)?;
    let of = |position: usize| {
        let device = definition.devices.get(position)?;
        let has = |name: &str, value: &str| {
            device.properties.iter().any(|(one, other)| (one.as_str(), other.as_str()) == (name, value))
        };
        match () {
            () if has("drive", "data") => Some("disk"),
            () if has("netdev", "net") => Some("net"),
            () => None,
        }
    };
    let in_table = |name: &str, key: &str, value: Value| {
        Table::from_iter([(name.to_owned(), Value::Table(Table::from_iter([(key.to_owned(), value)])))])
    };
    let top = |key: &str, value: Value| Table::from_iter([(key.to_owned(), value)]);
    let named = |value: &str| Value::String(value.to_owned());
    let device = |position: usize, wanted: &str, key: &str, value: Value| match of(position) {
        Some(name) if name == wanted => Ok(in_table(name, key, value)),
        Some(_) => Err(format!("The change is not about the {wanted} of the guests")),
        None => Ok(Table::new()),
    };
    let cannot = || Err(format!("The plan of guests has no setting for {}", in_words(change)));
    match change {
        DefinitionChange::Irqchip(irqchip) => Ok(top(
            "irqchip",
            named(match irqchip {
                domain::Irqchip::Kernel => "on",
                domain::Irqchip::Split => "split",
                domain::Irqchip::UserSpace => "off",
            }),
        )),
        DefinitionChange::PitTickPolicy(domain::TickPolicy::Discard) => Ok(top("pit", named("discard"))),
        DefinitionChange::Hpet(present) => {
            let value = if *present { "on" } else { "off" };
            Ok(top("machine", Value::String(with_option(&plan.machine, &["hpet"], &format!("hpet={value}")))))
        }
        DefinitionChange::CpuFeature(name, state) => {
            let value = if *state == FeatureState::Off { "off" } else { "on" };
            Ok(top("cpu", Value::String(with_feature(plan, name, value))))
        }
        DefinitionChange::HyperV(name, on) => {
            let value = if *on { "on" } else { "off" };
            Ok(top("cpu", Value::String(with_feature(plan, &format!("hv-{name}"), value))))
        }
        DefinitionChange::DeviceModel { device: position, model } => match (of(*position), model.as_str()) {
            (None, _) => Ok(Table::new()),
            (Some("disk"), "virtio-blk-pci") => Ok(in_table("disk", "bus", named("virtio-blk"))),
            (Some("net"), "virtio-net-pci") => Ok(in_table("net", "model", named("virtio-net"))),
            _ => cannot(),
        },
        DefinitionChange::Vhost { device: position, on } => {
            device(*position, "net", "backend", named(if *on { "vhost" } else { "tap" }))
        }
        DefinitionChange::IoThread { device: position, .. } => {
            device(*position, "disk", "iothread", Value::Boolean(true))
        }
        DefinitionChange::Aio { device: position, aio } => device(*position, "disk", "aio", named(aio)),
        DefinitionChange::Queues { device: position, queues } => match of(*position) {
            Some(name) => Ok(in_table(name, "queues", Value::Integer(i64::from(*queues)))),
            None => Ok(Table::new()),
        },
        _ => cannot(),
    }
}

fn in_words(change: &DefinitionChange) -> String {
    serde_json::to_string(change).unwrap_or_default()
}

/// Replaces the options with these names in a comma-separated list by `option`.
fn with_option(options: &str, names: &[&str], option: &str) -> String {
    let name =
        |part: &str| part.split('=').next().unwrap_or_default().trim_start_matches(['+', '-']).to_owned();
    let kept = options.split(',').filter(|part| !names.contains(&name(part).as_str()));
    kept.chain([option]).collect::<Vec<_>>().join(",")
}

fn with_feature(plan: &QemuPlan, feature: &str, value: &str) -> String {
    let cpu = plan.cpu.clone().unwrap_or_else(|| "host".to_owned());
    // QEMU accepts both spellings (`x86_cpu_parse_featurestr` in target/i386/cpu.c).
    let other = feature.replace('-', "_");
    with_option(&cpu, &[feature, &other], &format!("{feature}={value}"))
}

#[cfg(test)]
#[path = "overlay_tests.rs"]
mod tests;
