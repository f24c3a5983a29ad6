//! Converts a disk to a longer form that allows more properties.

use super::super::drives;
use super::editor::{Editor, Outcome, Value};
use std::ops::Range;

/// Doubles the commas of a file's name, which separate properties in `-drive`.
fn double_commas(editor: &mut Editor<'_>, argument: usize, within: Range<usize>) {
    let text = &editor.reading.command.arguments[argument].text;
    let commas: Vec<usize> =
        text[within.clone()].match_indices(',').map(|(at, _)| within.start + at).collect();
    commas.into_iter().for_each(|at| editor.write(argument, at..at, ","));
}

/// Converts a disk of `-hda` and similar options, or a bare image, to `-drive`, with its place at the interface if that
/// stays. `false` if it is already in that form.
pub(super) fn into_drive(editor: &mut Editor<'_>, device: usize, stays: bool) -> Result<bool, String> {
    let origin = &editor.reading.origins[device];
    let (argument, index, media) = match (origin.item, origin.image) {
        (Some(number), _) => {
            let index = match editor.item(number).name.as_str() {
                "hda" => 0,
                "hdb" => 1,
                "hdc" | "cdrom" => 2,
                "hdd" => 3,
                _ => return Ok(false),
            };
            let media = if editor.item(number).name == "cdrom" { "cdrom" } else { "disk" };
            let given = editor.given(number)?;
            let option = &editor.reading.command.arguments[given.option].text;
            let dashes = option.len() - option.trim_start_matches('-').len();
            editor.write(given.option, dashes..option.len(), "drive");
            (editor.argument(number)?, index, media)
        }
        (None, Some(image)) => {
            let separator = if editor.reading.command.process { "\0" } else { " " };
            editor.put_before(image, &format!("-drive{separator}"));
            (image, 0, "disk")
        }
        (None, None) => return Ok(false),
    };
    let length = editor.reading.command.arguments[argument].text.len();
    editor.write(argument, 0..0, "file=");
    double_commas(editor, argument, 0..length);
    let place = if stays { format!(",index={index}") } else { String::new() };
    editor.write(argument, length..length, &format!("{place},media={media}"));
    editor.again = true;
    Ok(true)
}

/// Converts a disk of `-drive if=virtio` to `-drive if=none` with its own `-device`. `false` if it already
/// has a `-device`.
pub(super) fn into_device(editor: &mut Editor<'_>, device: usize) -> Result<bool, String> {
    let Some(number) =
        editor.reading.origins[device].item.filter(|&number| editor.item(number).name == "drive")
    else {
        return Ok(false);
    };
    let item = editor.item(number);
    if drives::interface(editor.reading, item) != "virtio" {
        return Err("The disk is not virtio. Change its model to virtio-blk-pci first.".to_owned());
    }
    let id = match item.text("id") {
        Some(id) => id,
        None => {
            let id = free_id(editor, "drive");
            editor.set(number, "id", Value::Text(&id))?;
            id
        }
    };
    editor.set(number, "if", Value::Text("none"))?;
    let model = editor.reading.definition.devices[device].model.clone();
    let given = editor.given(number)?;
    editor.add_behind(
        Some(given),
        "device",
        &format!("{model},drive={}", super::super::properties::escaped(&id)),
    );
    editor.again = true;
    Ok(true)
}

/// An unused name.
pub(super) fn free_id(editor: &Editor<'_>, stem: &str) -> String {
    let taken = |id: &str| editor.reading.items.iter().any(|item| item.value("id") == Some(id));
    let mut number = 0;
    loop {
        let id = format!("{stem}{number}");
        if !taken(&id) {
            return id;
        }
        number += 1;
    }
}

/// Converts a disk to the next longer form, so that the change can be tried again.
pub(super) fn longer(editor: &mut Editor<'_>, device: usize) -> Outcome {
    if into_drive(editor, device, true)? || into_device(editor, device)? {
        return Ok(());
    }
    Err("This disk is not written in a way that can take it. Write it with -drive and -device.".to_owned())
}
