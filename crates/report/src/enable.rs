//! Enabling and disabling interrupt virtualization: `exitless enable` and `exitless disable`.

mod json;
pub mod terminal;

pub use self::json::json;
