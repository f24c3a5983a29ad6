//! Running VMs: `exitless vms`.

mod json;
mod running;
mod terminal;

pub use self::json::json;
pub use self::running::{Counted, Running};
pub use self::terminal::terminal;

/// What lets exitless read other users' processes.
pub const AS_ROOT: &str = "run as root, with CAP_SYS_PTRACE (containers lack it)";
