//! Applying the changes that were kept in the guests to the definition of the VM that they represent.

use std::collections::BTreeSet;

use domain::{
    CpuModel, Definition, DefinitionChange, Device, DeviceKind, Edited, Files, Form, Text, TickPolicy,
};
use serde::Serialize;
use toml::Value;

use super::likeness::{disk, interface, likeness};
use super::overlay::definition_of;
use super::plan::TuningPlan;
use guests::{Aio, DiskBus, GuestPlan, Irqchip, NetBackend, NetModel, Pit, QemuPlan};

/// A VM's definition with the changes of a tuning. This is only text: no file is written, and no VM is changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Carried {
    /// The definition with the kept changes.
    pub text: String,
    /// Notes on the changes: requirements on the guest, dropped settings.
    pub notes: Vec<String>,
    /// Kept changes that the definition cannot express, each with the reason.
    pub left: Vec<String>,
}

/// The CPU feature of KVM's clock, which a timer of the definition sets too.
const KVM_CLOCK: &str = "kvmclock";

/// The reason why guests cannot represent a VM.
#[derive(Debug, thiserror::Error)]
pub enum Unlike {
    /// The plan's guests are not started for the study.
    #[error("The plan's guests are not of kind \"qemu\": only those can resemble a definition")]
    Kind,
    /// The definition cannot be read, or definitions of its form cannot be edited.
    #[error(transparent)]
    Definition(#[from] domain::Error),
    /// The definition is for Xen.
    #[error("{0} is for Xen: only definitions of QEMU and libvirt can be tuned")]
    Xen(String),
    /// The resulting guests are not valid.
    #[error("Guests like {name} cannot be measured: {why}")]
    Guests {
        /// The definition.
        name: String,
        /// The fault.
        why: String,
    },
}

impl TuningPlan {
    /// The plan with guests that resemble the VM of `definition`, and notes on the remaining differences.
    ///
    /// # Errors
    /// [`Unlike`]
    pub fn like(&self, definition: &Definition, name: &str) -> Result<(Self, Vec<String>), Unlike> {
        let GuestPlan::Qemu(plan) = &self.base.guests else { return Err(Unlike::Kind) };
        if definition.form == Form::Xl {
            return Err(Unlike::Xen(name.to_owned()));
        }
        let like = likeness(plan, definition);
        let unlike = |why: String| Unlike::Guests { name: name.to_owned(), why };
        let mut plan = self.clone();
        plan.base.guests = plan.base.guests.with([&like.over]).map_err(|error| unlike(error.to_string()))?;
        match plan.check().into_iter().next() {
            Some(problem) => Err(unlike(format!("{}: {}", problem.field, problem.what))),
            None => Ok((plan, like.notes)),
        }
    }
}

/// Applies to `text` the differences between the guests `before` and `after`.
///
/// # Errors
/// If the text is not a definition.
pub fn carried(
    before: &GuestPlan,
    after: &GuestPlan,
    text: &Text,
    files: &dyn Files,
    form: Form,
) -> Result<Carried, Unlike> {
    let (GuestPlan::Qemu(before), GuestPlan::Qemu(after)) = (before, after) else { return Err(Unlike::Kind) };
    let definition = match form {
        Form::Libvirt => domain::libvirt::read(text, files)?,
        Form::Qemu => domain::qemu::read(text, files)?,
        _ => return Err(Unlike::Xen(text.name.clone())),
    };
    let (changes, mut left) = differences(before, after, &definition);
    let Edited { bytes, notes, refused, .. } = match form {
        Form::Libvirt => domain::libvirt::apply(text, &changes)?,
        _ => domain::qemu::apply_with(text, files, &changes)?,
    };
    left.extend(refused.into_iter().map(|refusal| refusal.reason));
    Ok(Carried { text: String::from_utf8_lossy(&bytes).into_owned(), notes, left })
}

/// The changes of a definition that correspond to the differences of the guests, and the differences that have none.
fn differences(
    before: &QemuPlan,
    after: &QemuPlan,
    definition: &Definition,
) -> (Vec<DefinitionChange>, Vec<String>) {
    let mut changes = Vec::new();
    if before.irqchip != after.irqchip {
        changes.extend(after.irqchip.map(|irqchip| {
            DefinitionChange::Irqchip(match irqchip {
                Irqchip::On => domain::Irqchip::Kernel,
                Irqchip::Split => domain::Irqchip::Split,
                Irqchip::Off => domain::Irqchip::UserSpace,
            })
        }));
    }
    if before.pit != after.pit && after.pit == Some(Pit::Discard) {
        changes.push(DefinitionChange::PitTickPolicy(TickPolicy::Discard));
    }
    changes.extend(of_machine(before, after));
    changes.extend(of_disks(before, after, definition));
    changes.extend(of_interfaces(before, after, definition));
    (changes, left(before, after, definition))
}

/// Changes of timers and CPU features, which a plan can also set by QEMU's arguments.
fn of_machine(before: &QemuPlan, after: &QemuPlan) -> Vec<DefinitionChange> {
    let (Ok(before), Ok(after)) = (definition_of(before), definition_of(after)) else { return Vec::new() };
    let mut changes = Vec::new();
    if before.has_hpet() != after.has_hpet() {
        changes.push(DefinitionChange::Hpet(after.has_hpet()));
    }
    let model = |definition: &Definition| definition.cpu.model.as_ref().map(|set| set.value.clone());
    if model(&before) != model(&after) {
        changes.push(DefinitionChange::CpuModel(model(&after).unwrap_or(CpuModel::Host)));
    }
    for (name, set) in &after.cpu.features {
        if before.cpu.feature(name) != Some(set.value) {
            changes.push(DefinitionChange::CpuFeature(name.clone(), set.value));
        }
    }
    let of_hyperv = |definition: &Definition| definition.cpu.hyperv.features.keys().cloned().collect();
    let names: [BTreeSet<String>; 2] = [of_hyperv(&before), of_hyperv(&after)];
    // Before an enlightenment is switched off, those that need it are: stimer-direct before stimer, for instance. Apart from
    // such names, the alphabet has that order.
    let all = &names[0] | &names[1];
    let (parts, whole): (Vec<String>, Vec<String>) = all.into_iter().partition(|name| name.contains('-'));
    for name in parts.into_iter().chain(whole) {
        let on = after.hyperv(&name);
        if before.hyperv(&name) != on {
            changes.push(DefinitionChange::HyperV(name, on));
        }
    }
    let clock = |definition: &Definition| definition.timers.kvm_clock.as_ref().map(|set| set.value);
    if clock(&before) != clock(&after) {
        let on = clock(&after) != Some(false);
        let state = if on { domain::FeatureState::On } else { domain::FeatureState::Off };
        let change = DefinitionChange::CpuFeature(KVM_CLOCK.to_owned(), state);
        if !changes.contains(&change) {
            changes.push(change);
        }
    }
    changes
}

/// The devices of the same kind and model as `one`, which the plan's device represents.
fn like(definition: &Definition, kind: DeviceKind, one: Option<&Device>) -> Vec<usize> {
    let model = one.map(|device| device.model.as_str());
    let is = |device: &Device| device.kind == kind && Some(device.model.as_str()) == model;
    let numbered = definition.devices.iter().enumerate().filter(|(_, device)| is(device));
    numbered.map(|(number, _)| number).collect()
}

fn of_disks(before: &QemuPlan, after: &QemuPlan, definition: &Definition) -> Vec<DefinitionChange> {
    let (Some(old), Some(new)) = (before.disk(), after.disk()) else { return Vec::new() };
    let mut changes = Vec::new();
    for device in like(definition, DeviceKind::Disk, disk(definition)) {
        let model = match new.bus {
            _ if new.bus == old.bus => None,
            DiskBus::VirtioBlk => Some("virtio-blk-pci"),
            DiskBus::VirtioScsi => Some("scsi-hd"),
            DiskBus::Ide => Some("ide-hd"),
            DiskBus::Nvme => Some("nvme"),
            DiskBus::None => None,
        };
        changes.extend(model.map(|model| DefinitionChange::DeviceModel { device, model: model.to_owned() }));
        if new.iothread && !old.iothread {
            changes.push(DefinitionChange::IoThread { device, iothread: "iothread1".to_owned() });
        }
        let aio = new.aio.filter(|_| new.aio != old.aio).map(|aio| match aio {
            Aio::Threads => "threads",
            Aio::Native => "native",
            Aio::IoUring => "io_uring",
        });
        changes.extend(aio.map(|aio| DefinitionChange::Aio { device, aio: aio.to_owned() }));
        let queues = new.queues.filter(|_| new.queues != old.queues);
        changes.extend(queues.map(|queues| DefinitionChange::Queues { device, queues: u32::from(queues) }));
    }
    changes
}

fn of_interfaces(before: &QemuPlan, after: &QemuPlan, definition: &Definition) -> Vec<DefinitionChange> {
    let (Some(old), Some(new)) = (before.net(), after.net()) else { return Vec::new() };
    let mut changes = Vec::new();
    for device in like(definition, DeviceKind::Network, interface(definition)) {
        let model = match new.model {
            _ if new.model == old.model => None,
            NetModel::VirtioNet => Some("virtio-net-pci"),
            NetModel::E1000 => Some("e1000"),
            NetModel::Rtl8139 => Some("rtl8139"),
            NetModel::Vmxnet3 => Some("vmxnet3"),
            NetModel::None => None,
        };
        changes.extend(model.map(|model| DefinitionChange::DeviceModel { device, model: model.to_owned() }));
        if (old.backend == NetBackend::Vhost) != (new.backend == NetBackend::Vhost) {
            changes.push(DefinitionChange::Vhost { device, on: new.backend == NetBackend::Vhost });
        }
        if old.queues != new.queues {
            changes.push(DefinitionChange::Queues { device, queues: new.queues });
        }
    }
    changes
}

/// Settings of the plan that differ, and that no change of a definition corresponds to.
fn left(before: &QemuPlan, after: &QemuPlan, definition: &Definition) -> Vec<String> {
    let has_disks = before.disk().is_some() && after.disk().is_some() && disk(definition).is_some();
    let has_interfaces = before.net().is_some() && after.net().is_some() && interface(definition).is_some();
    let has_thread = |plan: &QemuPlan| plan.disk().is_some_and(|disk| disk.iothread);
    let loses_thread = has_thread(before) && !has_thread(after);
    let loses_feature = loses_feature(before, after);
    let rest = |plan: &QemuPlan| {
        let mut plan = plan.clone();
        plan.irqchip = None;
        plan.pit = plan.pit.filter(|_| after.pit != Some(Pit::Discard));
        plan.cpu = plan.cpu.filter(|_| loses_feature);
        let options = plan.machine.split(',').filter(|option| !option.starts_with("hpet="));
        plan.machine = options.collect::<Vec<_>>().join(",");
        if let Some(disk) = plan.disk.as_mut().filter(|_| has_disks) {
            (disk.bus, disk.aio, disk.queues) = (DiskBus::default(), None, None);
            disk.iothread &= loses_thread;
        }
        if let Some(net) = plan.net.as_mut().filter(|_| has_interfaces) {
            (net.model, net.queues) = (NetModel::default(), 1);
            if matches!(net.backend, NetBackend::Vhost | NetBackend::Tap) {
                net.backend = NetBackend::Tap;
            }
        }
        Value::try_from(&plan).ok()
    };
    differing("guests", rest(before).as_ref(), rest(after).as_ref())
}

/// Tests whether the CPU's features can differ without a change of a definition: none gives a feature back to its CPU
/// model.
fn loses_feature(before: &QemuPlan, after: &QemuPlan) -> bool {
    let (Ok(before), Ok(after)) = (definition_of(before), definition_of(after)) else { return true };
    let mut names = before.cpu.features.keys();
    names.any(|name| name != KVM_CLOCK && after.cpu.feature(name).is_none())
}

/// Sentences about the settings that differ, those of tables one by one.
fn differing(name: &str, before: Option<&Value>, after: Option<&Value>) -> Vec<String> {
    if let (Some(Value::Table(before)), Some(Value::Table(after))) = (before, after) {
        let keys: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
        let of = |key: &String| differing(&format!("{name}.{key}"), before.get(key), after.get(key));
        return keys.into_iter().flat_map(of).collect();
    }
    let value = || after.map_or_else(|| "nothing".to_owned(), ToString::to_string);
    let differ =
        (before != after).then(|| format!("{name} became {}; a definition has no such change.", value()));
    differ.into_iter().collect()
}

#[cfg(test)]
#[path = "carried_tests.rs"]
mod tests;
