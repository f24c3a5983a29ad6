//! Exits counted live: `exitless stat`.

mod json;
mod terminal;

pub use self::json::json;
pub use self::terminal::terminal;
