//! Results for people: tables for the terminal and pages that open offline.
//!
//! Nothing is computed here. JSON for programs is the result type itself, such as
//! [`experiment::prove::Outcome`].

mod figure;
pub mod html;
pub mod terminal;
