//! The host's changes in the journal, and changes that were reverted: `exitless restore`.

pub mod json;
pub mod terminal;
