//! The exits that interrupt virtualization would avoid: `exitless predict`.

mod json;
mod terminal;

pub use self::json::json;
pub use self::terminal::terminal;
