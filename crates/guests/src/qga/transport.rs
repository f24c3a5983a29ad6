//! The transport to a guest agent.

use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::libvirt::Tool;

/// The time limit of an answer, from the command to its last byte. virsh's own (`--timeout`) is shorter, but it does not
/// cover a hanging libvirtd.
const PATIENCE: Duration = Duration::from_secs(40);
/// The largest accepted answer: guest-exec keeps 16 MiB of each output (qga/commands.c,
/// GUEST_EXEC_MAX_OUTPUT), which base64 makes a third longer.
const LARGEST_ANSWER: usize = 64 << 20;

/// A transport to a guest agent.
pub trait Transport: Send {
    /// Passes a request on, and returns the answer, both JSON.
    ///
    /// # Errors
    /// The reason why there is no answer.
    fn ask(&mut self, request: &str) -> Result<Vec<u8>, String>;
}

/// Parses an answer: the value of `return`, or the message of `error`.
pub(super) fn answer(text: &[u8]) -> Result<Value, String> {
    let mut message: Map<String, Value> =
        serde_json::from_slice(text).map_err(|error| format!("the answer is not understood: {error}"))?;
    if let Some(value) = message.remove("return") {
        return Ok(value);
    }
    let words = message.get("error").and_then(|error| error.get("desc")).and_then(Value::as_str);
    Err(words.unwrap_or("the answer holds neither `return` nor `error`").to_owned())
}

/// The request to execute a command.
pub(super) fn request(command: &str, arguments: Option<Value>) -> String {
    let mut request = json!({ "execute": command });
    if let (Some(request), Some(arguments)) = (request.as_object_mut(), arguments) {
        request.insert("arguments".to_owned(), arguments);
    }
    request.to_string()
}

/// libvirt's transport: `virsh qemu-agent-command`.
#[derive(Debug)]
pub(crate) struct Virsh {
    pub(crate) tool: Tool,
    pub(crate) domain: String,
}

impl Transport for Virsh {
    fn ask(&mut self, request: &str) -> Result<Vec<u8>, String> {
        let mut virsh = self.tool.command();
        virsh.args(["qemu-agent-command", "--timeout", "20", "--domain", &self.domain, "--cmd", request]);
        programs::answer(&mut virsh, PATIENCE, LARGEST_ANSWER)
            .map_err(|error| format!("{}: {error}", self.tool.program.display()))?
            .output()
    }
}
