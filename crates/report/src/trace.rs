//! Single events: `exitless trace`.

pub mod json;
pub mod long;
pub mod terminal;
