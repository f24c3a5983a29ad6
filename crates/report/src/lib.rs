//! Presentation of results: tables for the terminal, pages that open offline, and documents for programs.
//!
//! Nothing is computed here. JSON for programs is the result type itself, such as
//! [`prove::Outcome`], or a document of [`json`] that combines several results.

mod compared;
pub mod csv;
mod fixing;
mod flame_graph;
mod format;
pub mod html;
pub mod json;
pub mod parquet;
mod proved;
pub mod rows;
mod running;
mod studied;
pub mod terminal;
mod text;
pub mod top;
pub mod tuned;

pub use compared::Compared;
pub use flame_graph::flame_graph;
pub use running::{Counted, Running};
