//! The commands that work on a host, for programs.

use ::readiness::{Checked, CommandReadiness, Readiness};
use serde::Serialize;

use super::{missing, setcap, systemd};
use crate::json::Document;

/// The document of `exitless self-test`; `docs/install.md` describes its fields.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Fields<'a> {
    user: u32,
    kernel: Option<&'a str>,
    commands: Vec<Row<'a>>,
    parts: &'a [Checked],
    missing_capabilities: Vec<&'static str>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Row<'a> {
    #[serde(flatten)]
    command: &'a CommandReadiness,
    setcap: Option<String>,
    systemd: Vec<String>,
}

/// The document; `program` is the path of the program that gets capabilities.
#[must_use]
pub fn json<'a>(readiness: &'a Readiness, program: &str) -> impl Serialize + use<'a> {
    let row = |command: &'_ CommandReadiness| {
        let capabilities = Some(&command.capabilities[..]).filter(|all| !all.is_empty());
        (
            capabilities.map(|all| setcap(all, program)),
            capabilities.map_or(Vec::new(), |all| systemd(all).to_vec()),
        )
    };
    let commands = readiness.commands.iter();
    Document::new(Fields {
        user: readiness.user,
        kernel: readiness.kernel.as_deref(),
        commands: commands
            .map(|command| {
                let (setcap, systemd) = row(command);
                Row { command, setcap, systemd }
            })
            .collect(),
        parts: &readiness.parts,
        missing_capabilities: missing(readiness).unwrap_or_default(),
    })
}
