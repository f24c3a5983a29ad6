//! The commands that work on a host: `exitless self-test`.

mod json;
mod terminal;

pub use self::json::json;
pub use self::terminal::terminal;

use ::readiness::Readiness;

/// The command that gives a program file these capabilities.
fn setcap(capabilities: &[&str], program: &str) -> String {
    format!("setcap {}=ep {program}", capabilities.join(",").to_lowercase())
}

/// The lines of a systemd unit that give a service these capabilities.
fn systemd(capabilities: &[&str]) -> [String; 2] {
    let list = capabilities.join(" ");
    [format!("AmbientCapabilities={list}"), format!("CapabilityBoundingSet={list}")]
}

/// The capabilities that would help now; `None` without any.
fn missing(readiness: &Readiness) -> Option<Vec<&'static str>> {
    Some(readiness.missing_capabilities()).filter(|all| !all.is_empty())
}
