//! A definition fixed by rules: `exitless vm fix`.

mod json;
pub(crate) mod lines;
mod terminal;

pub use self::json::json;
pub use self::lines::quoted;
pub use self::terminal::{FixedView, terminal};
