//! The monitor's policy next to the best possible one, phase by phase: `exitless iocm simulate`.

mod page;
mod terminal;

pub use self::page::{Moment, page};
pub use self::terminal::terminal;
