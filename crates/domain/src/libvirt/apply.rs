//! Makes changes in libvirt's XML, one after the other, each by replacing a few bytes.

mod boot;
mod devices;
mod holds;
mod order;
mod platform;
mod processor;
mod traffic;
mod vhost_user;

use super::{find, read_domain};
use crate::cpu::NEEDS;
use crate::xml::{Node, Pieces, Replacement, Style, Tree};
use crate::{Definition, DefinitionChange, DeviceKind, Edited, Error, Irqchip, NoFiles, Refusal, Text};
use holds::holds;

/// The reason why disks keep their models.
const OTHER_BOOT_DISK: &str = "libvirt starts the guest from the first disk by bus and target, which would be another disk \
                               then. Put <boot order='1'/> into the disk with the system, and remove <boot dev=> of <os>, \
                               first.";

/// The replacements of a change.
#[derive(Debug, Default)]
struct Made {
    replacements: Vec<Replacement>,
    notes: Vec<String>,
}

impl Made {
    fn of(replacements: Vec<Replacement>) -> Self {
        Self { replacements, notes: Vec::new() }
    }

    fn and(mut self, replacements: Vec<Replacement>) -> Self {
        self.replacements.extend(replacements);
        self
    }

    fn noting(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }
}

/// The state that a change uses. A refusal is a `String`: whole sentences.
struct Step<'t> {
    domain: Node<'t>,
    definition: &'t Definition,
    style: Style,
}

/// The text during the changes.
struct Editing<'o> {
    name: &'o str,
    pieces: Pieces,
    current: String,
    /// The start of each device of the definition in the original text.
    devices: Vec<usize>,
}

/// See [`apply`](super::apply()).
pub(super) fn apply(text: &Text, changes: &[DefinitionChange]) -> Result<Edited, Error> {
    let tree = Tree::read(&text.name, &text.bytes)?;
    let domain = find::domain(&text.name, &tree)?;
    let definition = read_domain(domain, &NoFiles);
    let boot_disk = boot::disk(domain).map(|disk| disk.element().tag.start);
    let mut editing = Editing {
        name: &text.name,
        pieces: Pieces::of(text.bytes.len()),
        current: tree.text.to_owned(),
        devices: definition.devices.iter().map(|device| device.place.start).collect(),
    };
    let mut edited = Edited { bytes: Vec::new(), edits: Vec::new(), notes: Vec::new(), refused: Vec::new() };
    for change in changes {
        match editing.make(change) {
            Ok(notes) => edited.notes.extend(notes),
            Err(reason) => edited.refused.push(Refusal { change: change.clone(), reason }),
        }
    }
    // No other change moves a disk.
    let moves_disk = |change: &DefinitionChange| match change {
        DefinitionChange::DeviceModel { device, .. } => {
            definition.devices.get(*device).is_some_and(|device| device.kind == DeviceKind::Disk)
        }
        _ => false,
    };
    if changes.iter().any(moves_disk)
        && boot_disk.is_some_and(|old| editing.boot_disk() != editing.pieces.now(old))
    {
        let (moved, rest): (Vec<_>, Vec<_>) = changes.iter().cloned().partition(moves_disk);
        let refused = edited.refused;
        edited = apply(text, &rest)?;
        edited.refused.extend(moved.into_iter().map(|change| {
            let known = refused.iter().find(|refusal| refusal.change == change);
            let reason = known.map_or(OTHER_BOOT_DISK, |refusal| refusal.reason.as_str()).to_owned();
            Refusal { change, reason }
        }));
        return Ok(edited);
    }
    edited.notes.extend(editing.missing_enlightenments());
    let mut seen = Vec::new();
    edited.notes.retain(|note| {
        let new = !seen.contains(note);
        seen.push(note.clone());
        new
    });
    edited.edits = editing.pieces.edits(tree.text);
    edited.bytes = editing.current.into_bytes();
    Ok(edited)
}

impl Editing<'_> {
    fn make(&mut self, change: &DefinitionChange) -> Result<Vec<String>, String> {
        let made = {
            let (tree, definition) = (self.tree()?, self.definition()?);
            let change = self.moved(change, &definition)?;
            if holds(&definition, &change) {
                return Ok(Vec::new());
            }
            let domain = find::domain(self.name, &tree).map_err(|error| error.to_string())?;
            Step { domain, definition: &definition, style: Style::of(&tree) }.make(&change)?
        };
        let mut replacements = made.replacements;
        // Start at the end, so that the places of earlier replacements stay valid.
        replacements.sort_by_key(|(part, _)| part.start);
        let (mut pieces, mut current) = (self.pieces.clone(), self.current.clone());
        for (part, new) in replacements.iter().rev() {
            pieces.replace(part, new);
            current.replace_range(part.clone(), new);
        }
        let after = Editing { name: self.name, pieces, current, devices: self.devices.clone() };
        let definition = after.definition()?;
        if !holds(&definition, &after.moved(change, &definition)?) {
            return Err("QEMU's own arguments in the XML (<qemu:commandline> or <qemu:override>) say something else, \
                        and win. Change them there."
                .into());
        }
        *self = after;
        Ok(made.notes)
    }

    fn tree(&self) -> Result<Tree<'_>, String> {
        Tree::read(self.name, self.current.as_bytes()).map_err(|error| error.to_string())
    }

    fn definition(&self) -> Result<Definition, String> {
        let tree = self.tree()?;
        Ok(read_domain(find::domain(self.name, &tree).map_err(|error| error.to_string())?, &NoFiles))
    }

    /// The start of the disk from which the guest starts.
    fn boot_disk(&self) -> Option<usize> {
        let tree = self.tree().ok()?;
        let domain = find::domain(self.name, &tree).ok()?;
        boot::disk(domain).map(|disk| disk.element().tag.start)
    }

    /// The change with its device's index in the current text: an earlier change may have added a device.
    fn moved(&self, change: &DefinitionChange, definition: &Definition) -> Result<DefinitionChange, String> {
        let mut change = change.clone();
        let position = match &mut change {
            DefinitionChange::DeviceModel { device, .. }
            | DefinitionChange::Vhost { device, .. }
            | DefinitionChange::Queues { device, .. }
            | DefinitionChange::IoThread { device, .. }
            | DefinitionChange::Reconnect { device }
            | DefinitionChange::Aio { device, .. } => device,
            _ => return Ok(change),
        };
        let start = self.devices.get(*position).and_then(|old| self.pieces.now(*old));
        let found = definition.devices.iter().position(|device| Some(device.place.start) == start);
        *position = found.ok_or_else(|| format!("The definition has no device {position}."))?;
        Ok(change)
    }

    /// Enlightenments without which QEMU refuses to start.
    fn missing_enlightenments(&self) -> Vec<String> {
        let Ok(definition) = self.definition() else { return Vec::new() };
        let hyperv = &definition.cpu.hyperv;
        if hyperv.passthrough.is_some() || self.pieces.is_untouched() {
            return Vec::new();
        }
        let on = |name: &str| hyperv.features.get(name).is_some_and(|set| set.value);
        let needs = NEEDS.iter().filter(|(name, _)| on(name));
        let needs = needs.flat_map(|(name, needed)| needed.iter().map(move |needed| (name, needed)));
        let missing = needs.filter(|(_, needed)| !on(needed));
        missing
            .map(|(name, needed)| {
                format!(
                    "The enlightenment {name} needs {needed}, which is off: QEMU will not start the guest."
                )
            })
            .collect()
    }
}

impl<'t> Step<'t> {
    fn make(&self, change: &DefinitionChange) -> Result<Made, String> {
        match change {
            DefinitionChange::Irqchip(Irqchip::UserSpace) => {
                Err("libvirt has no element for interrupt controllers in the VMM \
                alone (kernel-irqchip=off), and interrupt virtualization cannot be used with them."
                    .into())
            }
            DefinitionChange::Irqchip(irqchip) => self.irqchip(*irqchip),
            DefinitionChange::PitTickPolicy(policy) => self.pit(*policy),
            DefinitionChange::Hpet(present) => {
                Ok(self.timer("hpet", "present", if *present { "yes" } else { "no" }))
            }
            DefinitionChange::CpuModel(model) => self.cpu_model(model),
            DefinitionChange::CpuFeature(name, state) => self.cpu_feature(name, *state),
            DefinitionChange::HyperV(name, on) => self.hyperv(name, *on),
            DefinitionChange::InterruptRemapping => self.interrupt_remapping(),
            DefinitionChange::DeviceModel { device, model } => self.device_model(*device, model),
            DefinitionChange::Vhost { device, on } => self.vhost(*device, *on),
            DefinitionChange::Queues { device, queues } => self.queues(*device, *queues),
            DefinitionChange::IoThread { device, iothread } => self.iothread(*device, iothread),
            DefinitionChange::Aio { device, aio } => self.aio(*device, aio),
            DefinitionChange::SharedMemory => self.shared_memory(),
            DefinitionChange::Reconnect { device } => self.reconnect(*device),
        }
    }

    /// The element of a device of the definition.
    fn element(&self, device: usize) -> Result<Node<'t>, String> {
        let device = self.definition.devices.get(device).ok_or("The definition has no such device.")?;
        let start = device.place.start;
        let devices = self.domain.child("devices").into_iter().flat_map(Node::children);
        devices.into_iter().find(|node| node.element().tag.start == start).ok_or_else(|| {
            format!(
                "{} is given in <qemu:commandline> (line {}). Change it there.",
                device.model, device.place.line
            )
        })
    }
}

#[cfg(test)]
#[path = "apply/tests.rs"]
mod tests;
