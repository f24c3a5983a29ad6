//! Running VMs: `exitless vms`.

mod json;
mod running;
mod terminal;

pub use self::json::json;
pub use self::running::{Counted, Running};
pub use self::terminal::terminal;
