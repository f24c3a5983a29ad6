//! Findings of rules: `exitless vm lint`.

pub(crate) mod change;
mod json;
mod terminal;
pub(crate) mod tree;

pub use self::json::json;
pub use self::terminal::terminal;
pub use self::tree::FindingsView;
