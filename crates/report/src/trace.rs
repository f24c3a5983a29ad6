//! Single events: `exitless trace`.

pub mod json;
pub mod terminal;
