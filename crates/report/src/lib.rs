//! Presentation of results: tables for the terminal, pages that open offline, and documents for programs.
//!
//! Nothing is computed here. A module is a result; it is written by `RESULT::MEDIUM`, as in
//! [`comparison::terminal()`], [`comparison::page()`], [`comparison::json()`] and [`comparison::csv()`]. JSON of a
//! result that is not here is the result itself, such as [`::prove::Proof`].

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
mod json;
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
