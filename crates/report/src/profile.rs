//! The exits of recordings: `exitless report`.

mod csv;
mod empty;
mod json;
pub(crate) mod page;
mod terminal;

pub use self::csv::csv;
pub use self::json::json;
pub use self::page::page;
pub use self::terminal::terminal;
