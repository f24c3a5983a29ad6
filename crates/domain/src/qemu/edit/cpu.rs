//! The CPU that the guest sees.

use super::super::cpu::{How, Part, canonical, deciding, parts};
use super::super::properties::switch;
use super::editor::{Editor, Outcome};
use crate::change::INVTSC_NOTE;
use crate::cpu::NEEDS;
use crate::{CpuModel, FeatureState};

/// QEMU's default model (`TARGET_DEFAULT_CPU_TYPE` in `target/i386/cpu.h`).
fn default_model(editor: &Editor<'_>) -> &'static str {
    let program = editor.reading.definition.program.as_ref();
    if program.is_some_and(|program| program.value.ends_with("i386")) { "qemu32" } else { "qemu64" }
}

/// The last `-cpu`; refused if it is in a file.
fn option(editor: &Editor<'_>) -> Result<Option<usize>, String> {
    let found = editor.reading.items.iter().rposition(|item| item.name == "cpu");
    if let Some(number) = found {
        editor.argument(number)?;
    }
    Ok(found)
}

/// Sets the CPU model.
pub(super) fn model(editor: &mut Editor<'_>, model: &CpuModel) -> Outcome {
    let name = match model {
        CpuModel::Host => "host",
        CpuModel::Maximum => "max",
        CpuModel::Named(name) if !name.is_empty() && !name.contains([',', '=']) => name,
        CpuModel::Named(name) => {
            return Err(format!("{name:?} is not a CPU model. `-cpu help` lists them."));
        }
        CpuModel::HostModel => {
            return Err(
                "QEMU has no host-model: libvirt works it out. Use host, or a model by name.".to_owned()
            );
        }
    };
    match option(editor)? {
        Some(number) => {
            let (at, _) = parts(&editor.item(number).said);
            if &editor.item(number).said[at.clone()] != name {
                let argument = editor.argument(number)?;
                editor.write(argument, at, name);
            }
        }
        None if name == default_model(editor) => {}
        None => editor.add_behind(editor.machine(), "cpu", name),
    }
    Ok(())
}

/// Sets a CPU feature.
pub(super) fn feature(editor: &mut Editor<'_>, name: &str, state: FeatureState) -> Outcome {
    let on = match state {
        FeatureState::On => true,
        FeatureState::Off => false,
        FeatureState::Optional => {
            return Err("QEMU gives a feature or withholds it. Say on or off.".to_owned());
        }
    };
    let name = canonical(name);
    if name.is_empty() || name.contains([',', '=', '+']) {
        return Err(format!("{name:?} is not a CPU feature. `-cpu help` lists them."));
    }
    if name == "invtsc" && on && editor.reading.definition.cpu.feature(&name) != Some(FeatureState::On) {
        editor.notes.push(INVTSC_NOTE.to_owned());
    }
    match name.strip_prefix("hv-") {
        Some(name) => hyperv(editor, name, on),
        None => give(editor, &name, on),
    }
}

fn give(editor: &mut Editor<'_>, name: &str, on: bool) -> Outcome {
    let Some(number) = option(editor)? else {
        let model = default_model(editor);
        let value = format!("{model},{name}={}", if on { "on" } else { "off" });
        editor.add_behind(editor.machine(), "cpu", &value);
        editor
            .notes
            .push(format!("No CPU model was said; {model} is the one that QEMU took before as well."));
        return Ok(());
    };
    let argument = editor.argument(number)?;
    let said = &editor.item(number).said;
    let (_, parts) = parts(said);
    let named: Vec<&Part> = parts.iter().filter(|part| part.name == name).collect();
    let Some(part) = deciding(&named) else {
        let new = appended(&parts, name, on);
        editor.write(argument, said.len()..said.len(), &new);
        return Ok(());
    };
    if state(part) == Some(on) {
        return Ok(());
    }
    let written = &said[part.at.clone()];
    let new = match &part.how {
        How::Plus | How::Minus => format!("{}{}", if on { '+' } else { '-' }, &written[1..]),
        How::Value(_) => {
            let key = written.split('=').next().unwrap_or(written);
            format!("{key}={}", if on { "on" } else { "off" })
        }
    };
    editor.write(argument, part.at.clone(), &new);
    // Another `-x` would still override the new value.
    let others = parts
        .iter()
        .filter(|other| on && other.name == name && other.how == How::Minus && other.at != part.at);
    others.for_each(|other| editor.write(argument, other.at.start - 1..other.at.end, ""));
    Ok(())
}

fn state(part: &Part) -> Option<bool> {
    match &part.how {
        How::Plus => Some(true),
        How::Minus => Some(false),
        How::Value(value) => switch(value),
    }
}

/// The text of a new feature, in the style of the others in the argument.
fn appended(parts: &[Part], name: &str, on: bool) -> String {
    let signs = parts.iter().any(|part| !matches!(part.how, How::Value(_)));
    let pairs = parts.iter().any(|part| matches!(&part.how, How::Value(value) if switch(value).is_some()));
    match (signs && !pairs, on) {
        (true, true) => format!(",+{name}"),
        (true, false) => format!(",-{name}"),
        (false, true) => format!(",{name}=on"),
        (false, false) => format!(",{name}=off"),
    }
}

/// Sets an enlightenment.
pub(super) fn hyperv(editor: &mut Editor<'_>, name: &str, on: bool) -> Outcome {
    let name = if name == "apicv" { "avic" } else { name };
    if name.is_empty() || name.contains([',', '=', '+']) {
        return Err(format!("{name:?} is not an enlightenment. QEMU's documentation lists them."));
    }
    if editor.reading.definition.hyperv(name) == on {
        return Ok(());
    }
    let number = option(editor)?;
    if name == "spinlocks" || name == "vendor-id" {
        return valued(editor, number, name, on);
    }
    if on {
        let needed = NEEDS.iter().find(|(who, _)| *who == name).map_or(&[] as &[&str], |(_, what)| what);
        if let Some(missing) = needed.iter().find(|needed| !editor.reading.definition.hyperv(needed)) {
            editor.notes.push(format!("hv-{missing} is on now, because QEMU requires it for hv-{name}."));
            editor.again = true;
            return hyperv(editor, missing, true);
        }
    } else if let Some((who, _)) =
        NEEDS.iter().find(|(who, what)| what.contains(&name) && editor.reading.definition.hyperv(who))
    {
        return Err(format!("hv-{who} needs hv-{name}. Switch that off first."));
    }
    // Use the style of the others (`hv_` or `hv-`).
    let old = number.map_or("", |number| editor.item(number).said.as_str()).contains(",hv_");
    let name = format!("hv-{name}");
    let known =
        number.is_some_and(|number| parts(&editor.item(number).said).1.iter().any(|part| part.name == name));
    give(editor, &if old && !known { name.replace('-', "_") } else { name }, on)
}

/// Sets enlightenments with a value instead of on and off.
fn valued(editor: &mut Editor<'_>, number: Option<usize>, name: &str, on: bool) -> Outcome {
    if on && name == "vendor-id" {
        return Err("hv-vendor-id is a text of twelve characters. Write it into -cpu yourself.".to_owned());
    }
    if on {
        // The number of Windows' attempts before it notifies the hypervisor, as QEMU's documentation
        // recommends.
        const RETRIES: &str = "hv-spinlocks=0x1fff";
        match number {
            Some(number) => {
                let argument = editor.argument(number)?;
                let end = editor.item(number).said.len();
                editor.write(argument, end..end, &format!(",{RETRIES}"));
            }
            None => {
                let value = format!("{},{RETRIES}", default_model(editor));
                editor.add_behind(editor.machine(), "cpu", &value);
            }
        }
        return Ok(());
    }
    if let Some(number) = number {
        let argument = editor.argument(number)?;
        let (_, parts) = parts(&editor.item(number).said);
        let name = format!("hv-{name}");
        for part in parts.iter().filter(|part| part.name == name) {
            editor.write(argument, part.at.start - 1..part.at.end, "");
        }
    }
    Ok(())
}
