//! Advice with the functions that take the time of its exits: `exitless advise --profile`.

mod json;
mod terminal;

pub use self::json::json;
pub use self::terminal::terminal;
