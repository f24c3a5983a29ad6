//! Makes changes in a command line; all other bytes are unchanged.

mod boot;
mod conversion;
mod cpu;
mod draft;
mod editor;
mod input_output;
mod model;
mod platform;
mod vhost_user;

use super::command::cut;
use super::reader;
use super::reading::Reading;
use crate::{DefinitionChange, DeviceKind, Edited, Error, Files, Refusal, Text};
use draft::Draft;
use editor::Editor;
use std::collections::BTreeSet;
use std::path::Path;

/// The largest number of attempts at one change: a disk may first have to be converted to a longer form.
const STEPS: usize = 8;

/// The reason why disks keep their places.
const OTHER_BOOT_DISK: &str = "Without bootindex= the firmware starts the guest from the first disk by kind and place, which \
                               would be another disk then. Give the disk with the system bootindex=1 in its -device, or \
                               put it before the others, first.";

/// Makes the changes in order, those of the machine's default devices last.
///
/// # Errors
///
/// Those of [`reader::read`].
pub(super) fn apply(text: &Text, files: &dyn Files, changes: &[DefinitionChange]) -> Result<Edited, Error> {
    let before = reader::read(text, files)?;
    let mut draft = Draft::new(&text.bytes);
    let unread = unread(&before, files);
    let (mut notes, mut refused) = (Vec::new(), Vec::new());
    // Default devices come last: a change adds them to the text, which shifts the indices of others.
    let (own, said): (Vec<_>, Vec<_>) = changes.iter().partition(|change| implied(&before, change).is_some());
    for change in said.into_iter().chain(own) {
        let kept = draft.clone();
        let result = match &unread {
            Some(path) if position(change).is_some() => Err(format!(
                "{path} was not read, and it may have devices that come before this one. Give that file as well."
            )),
            _ => make(&before, &mut draft, files, change),
        };
        match result {
            Ok(mut more) => notes.append(&mut more),
            Err(reason) => {
                draft = kept;
                refused.push(Refusal { change: change.clone(), reason });
            }
        }
    }
    let now = Text::new(&*text.name, draft.bytes());
    let after = match reader::read(&now, files) {
        Ok(after) => after,
        // In a script, a longer argument can change the meaning of the words around it.
        Err(error) => {
            let reason = format!(
                "The text can no longer be read with it: {error}. Name a file with the command alone."
            );
            let refuse =
                |change: &DefinitionChange| Refusal { change: change.clone(), reason: reason.clone() };
            let refused = changes.iter().map(refuse).collect();
            return Ok(Edited { bytes: text.bytes.clone(), edits: Vec::new(), notes: Vec::new(), refused });
        }
    };
    if boot::disk(&before).is_some_and(|disk| boot::disk(&after) != Some(disk)) {
        // Without the changes of models, those of the form may move no disk.
        let by_model = changes.iter().any(|change| moves_disk(&before, change, true));
        let (moved, rest): (Vec<_>, Vec<_>) =
            changes.iter().cloned().partition(|change| moves_disk(&before, change, by_model));
        if !moved.is_empty() {
            let mut edited = apply(text, files, &rest)?;
            edited.refused.extend(moved.into_iter().map(|change| {
                let known = refused.iter().find(|refusal| refusal.change == change);
                let reason = known.map_or(OTHER_BOOT_DISK, |refusal| refusal.reason.as_str()).to_owned();
                Refusal { change, reason }
            }));
            return Ok(edited);
        }
    }
    notes.extend(newly_implied(&before, &after));
    let mut seen = BTreeSet::new();
    notes.retain(|note| seen.insert(note.clone()));
    Ok(Edited { bytes: now.bytes, edits: draft.into_edits(), notes, refused })
}

/// A file that the command names but that cannot be read.
fn unread(before: &Reading<'_>, files: &dyn Files) -> Option<String> {
    let command = &before.command;
    let named = command.given.iter().filter(|given| command.name(**given) == "readconfig");
    let mut paths = named.map(|given| command.said(*given));
    paths.find(|path| files.contents(Path::new(path)).is_err()).map(cut)
}

/// The device of a change if it is a default device of the machine, otherwise `None`.
fn implied<'a>(before: &'a Reading<'_>, change: &DefinitionChange) -> Option<&'a crate::Device> {
    let device = position(change)?;
    let origin = before.origins.get(device)?;
    (origin.item.is_none() && origin.image.is_none()).then(|| &before.definition.devices[device])
}

/// The device of a change.
fn position(change: &DefinitionChange) -> Option<usize> {
    match change {
        DefinitionChange::DeviceModel { device, .. }
        | DefinitionChange::Vhost { device, .. }
        | DefinitionChange::Queues { device, .. }
        | DefinitionChange::IoThread { device, .. }
        | DefinitionChange::Reconnect { device }
        | DefinitionChange::Aio { device, .. } => Some(*device),
        _ => None,
    }
}

/// Tests whether a change can move a disk: by another model, or else by a longer form of the disk.
fn moves_disk(before: &Reading<'_>, change: &DefinitionChange, by_model: bool) -> bool {
    let device = position(change).and_then(|device| before.definition.devices.get(device));
    let of_disk =
        device.is_some_and(|device| matches!(device.kind, DeviceKind::Disk | DeviceKind::Controller));
    let moves = match change {
        DefinitionChange::DeviceModel { .. } => by_model,
        DefinitionChange::Queues { .. } | DefinitionChange::IoThread { .. } => !by_model,
        _ => false,
    };
    of_disk && moves
}

/// Makes one change in a draft; returns notes, or the reason why it cannot be made.
fn make(
    before: &Reading<'_>,
    draft: &mut Draft<'_>,
    files: &dyn Files,
    change: &DefinitionChange,
) -> Result<Vec<String>, String> {
    let mut notes = Vec::new();
    for _ in 0..STEPS {
        let text = Text::new(&*before.text.name, draft.bytes());
        let reading = reader::read(&text, files).map_err(|problem| problem.to_string())?;
        let device = match (position(change), implied(before, change)) {
            (None, _) => 0,
            (Some(position), None) => position,
            (Some(_), Some(device)) => {
                // Look for it among the current default devices. If it is gone, the change is already made.
                let same = |(number, other): &(usize, &crate::Device)| {
                    other.model == device.model && reading.origins[*number].item.is_none()
                };
                match reading.definition.devices.iter().enumerate().find(same) {
                    Some((number, _)) => number,
                    None => return Ok(notes),
                }
            }
        };
        if position(change).is_some() && device >= reading.definition.devices.len() {
            let devices = reading.definition.devices.len();
            return Err(format!("There is no device {device}; the text has {devices}. Read it again."));
        }
        let mut editor = Editor::new(&reading);
        match change {
            DefinitionChange::Irqchip(chip) => platform::irqchip(&mut editor, *chip),
            DefinitionChange::PitTickPolicy(policy) => platform::pit(&mut editor, *policy),
            DefinitionChange::Hpet(on) => platform::hpet(&mut editor, *on),
            DefinitionChange::InterruptRemapping => platform::interrupt_remapping(&mut editor),
            DefinitionChange::CpuModel(model) => cpu::model(&mut editor, model),
            DefinitionChange::CpuFeature(name, state) => cpu::feature(&mut editor, name, *state),
            DefinitionChange::HyperV(name, on) => cpu::hyperv(&mut editor, name, *on),
            DefinitionChange::DeviceModel { model, .. } => model::change(&mut editor, device, model),
            DefinitionChange::Vhost { on, .. } => input_output::vhost(&mut editor, device, *on),
            DefinitionChange::Queues { queues, .. } => input_output::queues(&mut editor, device, *queues),
            DefinitionChange::IoThread { iothread, .. } => {
                input_output::iothread(&mut editor, device, iothread)
            }
            DefinitionChange::Aio { aio, .. } => input_output::aio(&mut editor, device, aio),
            DefinitionChange::SharedMemory => vhost_user::shared_memory(&mut editor),
            DefinitionChange::Reconnect { .. } => vhost_user::reconnect(&mut editor, device),
        }?;
        let again = editor.again;
        notes.append(&mut editor.notes);
        draft.replace(editor.into_replacements());
        if !again {
            break;
        }
    }
    Ok(notes)
}

/// Default devices that the machine has now and did not have before, as a note each.
fn newly_implied(before: &Reading<'_>, after: &Reading<'_>) -> Vec<String> {
    let models = |reading: &Reading<'_>| -> Vec<String> {
        let devices = reading.definition.devices.iter().zip(&reading.origins);
        let own = devices.filter(|(_, origin)| origin.item.is_none() && origin.image.is_none());
        own.map(|(device, _)| device.model.clone()).collect()
    };
    let known = models(before);
    let new = models(after).into_iter().filter(|model| !known.contains(model));
    new.map(|model| {
        format!(
            "QEMU adds {model} by default now, because nothing replaces it any more; -nodefaults leaves it out."
        )
    })
    .collect()
}
