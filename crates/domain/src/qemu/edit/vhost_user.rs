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

/// Makes QEMU reconnect.
pub(super) fn reconnect(editor: &mut Editor<'_>, device: usize) -> Outcome {
    if editor.reading.definition.devices[device].reconnects == Some(true) {
        return Ok(());
    }
    let origin = &editor.reading.origins[device];
    let item = origin.backend.or(origin.item).map(|number| editor.item(number));
    let socket = item.and_then(|item| editor.reading.named("chardev", "id", item.value("chardev")?));
    let socket = socket.ok_or("The device has no -chardev to another process that is written here.")?;
    // QEMU 9.2 and later also know `reconnect-ms`.
    editor.set(socket, "reconnect", Value::Number(1))
}
