//! The devices that cause exits, and what to change: `exitless advise`.

mod json;
mod terminal;
pub(crate) mod words;

pub use self::json::json;
pub use self::terminal::{AdviceView, terminal};
