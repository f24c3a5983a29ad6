//! The requirements of vhost-user devices: shared memory, and a reconnect after a restart of the process behind
//! them.

use super::super::machine::memory_backends;
use super::conversion::free_id;
use super::editor::{Editor, Outcome, Value};

/// Makes the guest's memory a shared file.
pub(super) fn shared_memory(editor: &mut Editor<'_>) -> Outcome {
    if editor.reading.definition.shared_memory.as_ref().is_some_and(|set| set.value) {
        return Ok(());
    }
    let backends = memory_backends(editor.reading);
    for &number in &backends {
        match editor.item(number).value("qom-type") {
            Some("memory-backend-memfd" | "memory-backend-file") => {
                editor.set(number, "share", Value::Switch(true))?;
            }
            Some("memory-backend-ram") => {
                editor.set(number, "qom-type", Value::Text("memory-backend-memfd"))?;
                editor.set(number, "share", Value::Switch(true))?;
            }
            _ => {
                return Err(
                    "The guest's memory is an object that cannot be shared. Make it a memory-backend-memfd."
                        .to_owned(),
                );
            }
        }
    }
    if !backends.is_empty() {
        return Ok(());
    }
    if editor.reading.has(&["numa", "mem-path"]) {
        return Err(
            "The memory is set by -numa or -mem-path. Make it objects of memory-backend-memfd with share=on."
                .to_owned(),
        );
    }
    // QEMU's default without -m (`mc->default_ram_size`).
    let mebibytes = editor.reading.definition.memory_mib.as_ref().map_or(128, |set| set.value);
    let id = free_id(editor, "mem");
    editor.add_last("object", &format!("memory-backend-memfd,id={id},size={mebibytes}M,share=on"));
    super::platform::add_to_machine(editor, "memory-backend", Value::Text(&id))
}

/// Makes QEMU reconnect. The property is `reconnect-ms` since 9.2, and 10.2 has no `reconnect` any more
/// (`docs/about/removed-features.rst`); the machine type is the only hint at QEMU's version, and sets its lowest.
pub(super) fn reconnect(editor: &mut Editor<'_>, device: usize) -> Outcome {
    if editor.reading.definition.devices[device].reconnects == Some(true) {
        return Ok(());
    }
    let origin = &editor.reading.origins[device];
    let item = origin.backend.or(origin.item).map(|number| editor.item(number));
    let socket = item.and_then(|item| editor.reading.named("chardev", "id", item.value("chardev")?));
    let socket = socket.ok_or("The device has no -chardev to another process that is written here.")?;
    if editor.reading.definition.machine_version().is_none_or(|version| version < (9, 2)) {
        return Err("QEMU before 9.2 takes only reconnect=1, and from 10.2 on only reconnect-ms=1000; the machine type \
                    does not show which QEMU it is. Add the one that it takes to the -chardev."
            .to_owned());
    }
    // QEMU refuses both together, also a reconnect=0.
    editor.drop_properties(socket, |key| key == "reconnect")?;
    editor.set(socket, "reconnect-ms", Value::Number(1000))
}
