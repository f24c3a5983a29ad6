//! Presentation of results: tables for the terminal, pages that open offline, and documents for programs.
//!
//! Nothing is computed here. Each module presents a result; `RESULT::MEDIUM` writes it, for example
//! [`comparison::terminal()`], [`comparison::page()`], [`comparison::json()`] and [`comparison::csv()`]. A result without a
//! `json` function here is serialized itself, for example [`::prove::Proof`].

pub mod advice;
pub mod comparison;
pub mod counting;
mod csv;
pub mod enable;
pub mod examination;
pub mod findings;
pub mod fixed;
mod format;
pub mod hot_advice;
pub mod hot_spots;
pub mod iocm;
pub mod json;
pub mod load;
mod page;
pub mod prediction;
pub mod probe;
pub mod profile;
pub mod prove;
pub mod readiness;
pub mod recordings;
pub mod restore;
pub mod study;
pub mod suite;
mod terminal;
mod text;
pub mod timeline;
pub mod top;
pub mod trace;
pub mod tuning;
pub mod verify;
pub mod vms;

pub use format::duration;
pub use terminal::curve::with_ascii_symbols;
