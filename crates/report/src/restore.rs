//! Changes of the host that the journal keeps, and those that were undone: `exitless restore`.

pub mod json;
pub mod terminal;
