//! A definition fixed by rules: `exitless vm fix`.

mod json;
pub(crate) mod lines;
mod terminal;

pub use self::json::{FixedDocument, json};
pub use self::terminal::{FixedView, terminal};
