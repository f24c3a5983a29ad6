//! Interrupt controllers, timers and the IOMMU.

use super::super::machine::{global_parts, iommu_model};
use super::super::properties::{same_name, switch};
use super::editor::{Editor, Outcome, Value};
use crate::change::SPLIT_NOTE;
use crate::{Accelerator, Irqchip, TickPolicy};

/// The effective item for a property of the machine or the accelerator.
fn deciding(editor: &Editor<'_>, names: &[&str], key: &str) -> Option<usize> {
    editor.reading.items.iter().rposition(|item| {
        names.contains(&item.name.as_str())
            && item.properties.list.iter().any(|property| same_name(&property.key, key))
    })
}

/// Sets the irqchip mode.
pub(super) fn irqchip(editor: &mut Editor<'_>, chip: Irqchip) -> Outcome {
    let definition = &editor.reading.definition;
    if definition.irqchip_in_force() == chip {
        return Ok(());
    }
    if definition.accelerator_in_force() != Accelerator::Kvm {
        return Err("Without KVM the interrupt controllers are QEMU's own. Add -accel kvm first.".to_owned());
    }
    if chip != Irqchip::Split && remaps(editor) {
        return Err(
            "The intel-iommu of this VM remaps interrupts, which QEMU does with a split irqchip alone \
                    (vtd_decide_config). Set its intremap=off first."
                .to_owned(),
        );
    }
    if chip == Irqchip::Split && definition.irqchip_in_force() == Irqchip::Kernel {
        editor.notes.push(SPLIT_NOTE.to_owned());
    }
    let value = Value::Text(match chip {
        Irqchip::Kernel => "on",
        Irqchip::Split => "split",
        Irqchip::UserSpace => "off",
    });
    let short: Vec<usize> = (0..editor.reading.items.len())
        .filter(|&number| editor.item(number).name == "no-kvm-irqchip")
        .collect();
    for &number in &short {
        let given = editor.given(number)?;
        editor.drop_option(given);
    }
    // The property of the accelerator overrides that of the machine.
    let decides = |name| deciding(editor, &[name], "kernel-irqchip");
    if let Some(number) = decides("accel").or_else(|| decides("machine")) {
        return editor.set(number, "kernel-irqchip", value);
    }
    if !short.is_empty() && chip == Irqchip::Kernel {
        return Ok(());
    }
    add_to_machine(editor, "kernel-irqchip", value)
}

pub(super) fn add_to_machine(editor: &mut Editor<'_>, key: &str, value: Value<'_>) -> Outcome {
    if let Some(number) = editor.last_option("machine") {
        return editor.set(number, key, value);
    }
    let value = match value {
        Value::Text(text) => text.to_owned(),
        Value::Switch(on) => if on { "on" } else { "off" }.to_owned(),
        Value::Number(number) => number.to_string(),
    };
    editor.add_behind(None, "machine", &format!("{key}={value}"));
    Ok(())
}

fn remaps(editor: &Editor<'_>) -> bool {
    let iommus = &editor.reading.definition.iommus;
    iommus.iter().any(|iommu| {
        iommu.model == "intel-iommu" && iommu.interrupt_remapping.as_ref().is_some_and(|set| set.value)
    })
}

/// Sets the policy of KVM's PIT for lost ticks.
pub(super) fn pit(editor: &mut Editor<'_>, policy: TickPolicy) -> Outcome {
    let value = match policy {
        TickPolicy::Delay => "delay",
        TickPolicy::Discard => "discard",
        TickPolicy::CatchUp | TickPolicy::Merge => {
            return Err("KVM's PIT can delay or discard lost ticks and nothing else (kvm_pit_realizefn). \
                        Choose one of these."
                .to_owned());
        }
    };
    match editor.reading.definition.kernel_pit_in_force() {
        None => {
            return Err(
                "This VM has no PIT in the kernel, so that it has no such policy. Leave it as it is."
                    .to_owned(),
            );
        }
        Some(now) if now == policy => return Ok(()),
        Some(_) => {}
    }
    // The last of these is effective.
    let mut found = None;
    for number in 0..editor.reading.items.len() {
        let item = editor.item(number);
        let global = item.name == "global"
            && global_parts(item)
                .is_some_and(|(driver, key, _)| driver == "kvm-pit" && same_name(&key, "lost_tick_policy"));
        if global {
            found = Some(number);
        } else if item.name == "no-kvm-pit-reinjection" {
            let given = editor.given(number)?;
            editor.drop_option(given);
        }
    }
    match found {
        Some(number) if editor.item(number).value("driver").is_some() => {
            editor.set(number, "value", Value::Text(value))
        }
        Some(number) => {
            let argument = editor.argument(number)?;
            let said = &editor.item(number).said;
            let start = said.find('=').map_or(said.len(), |at| at + 1);
            editor.write(argument, start..said.len(), value);
            Ok(())
        }
        None if policy == TickPolicy::Delay => Ok(()),
        None => {
            editor.add_behind(editor.machine(), "global", &format!("kvm-pit.lost_tick_policy={value}"));
            Ok(())
        }
    }
}

/// Adds or removes the HPET.
pub(super) fn hpet(editor: &mut Editor<'_>, on: bool) -> Outcome {
    if editor.reading.definition.has_hpet() == on {
        return Ok(());
    }
    if editor.reading.definition.is_microvm() {
        return Err("A microvm has no HPET. Use a machine of type q35 if the guest needs one.".to_owned());
    }
    let mut dropped = false;
    for number in 0..editor.reading.items.len() {
        if editor.item(number).name == "no-hpet" {
            let given = editor.given(number)?;
            editor.drop_option(given);
            dropped = true;
        }
    }
    match deciding(editor, &["machine"], "hpet") {
        Some(number) => editor.set(number, "hpet", Value::Switch(on)),
        None if dropped => Ok(()),
        None => add_to_machine(editor, "hpet", Value::Switch(on)),
    }
}

/// Adds an Intel IOMMU with interrupt remapping and APIC IDs above 255.
pub(super) fn interrupt_remapping(editor: &mut Editor<'_>) -> Outcome {
    let definition = &editor.reading.definition;
    if !definition.is_q35() {
        return Err(format!(
            "A machine of type {} cannot have an intel-iommu. Use q35, or up to 255 vCPUs.",
            definition.machine_kind()
        ));
    }
    if let Some(other) = definition.iommus.iter().find(|iommu| iommu.model != "intel-iommu") {
        let place = &other.place;
        return Err(format!(
            "Line {}: the VM has an IOMMU already, {}. Remove it first.",
            place.line, place.text
        ));
    }
    if definition.irqchip_in_force() != Irqchip::Split {
        irqchip(editor, Irqchip::Split)?;
        editor.notes.push("The irqchip is split now: QEMU remaps interrupts with no other.".to_owned());
    }
    let assigned = definition.has_assigned_device();
    let position = |driver: Option<&str>| driver.and_then(iommu_model) == Some("intel-iommu");
    let present =
        editor.reading.items.iter().rposition(|item| item.name == "device" && position(item.value("driver")));
    if let Some(number) = present {
        for key in ["intremap", "eim"] {
            // `intremap` is a string in JSON, because it may be `auto`.
            if editor.item(number).value(key).and_then(switch) != Some(true) {
                editor.set(number, key, Value::Text("on"))?;
            }
        }
        if assigned && editor.item(number).value("caching-mode").and_then(switch) != Some(true) {
            editor.set(number, "caching-mode", Value::Switch(true))?;
        }
        return Ok(());
    }
    let caching = if assigned { ",caching-mode=on" } else { "" };
    let value = format!("intel-iommu,intremap=on,eim=on{caching}");
    // Devices behind an IOMMU must come after it.
    match editor
        .reading
        .items
        .iter()
        .find(|item| item.name == "device" && item.given.is_some())
        .and_then(|item| item.given)
    {
        Some(first) => editor.add_before(first, "device", &value),
        None => editor.add_behind(editor.machine(), "device", &value),
    }
    Ok(())
}
