//! The exits of recordings over time: `exitless timeline`.

mod csv;
mod json;
mod page;
mod terminal;

pub use self::csv::csv;
pub use self::json::json;
pub use self::page::page;
pub use self::terminal::{Screen, terminal};
