//! Presentation of results: tables for the terminal, pages that open offline, and documents for programs.
//!
//! Nothing is computed here. JSON for programs is the result type itself, such as
//! [`experiment::prove::Outcome`], or a document of [`json`] that combines several results.

mod compared;
pub mod csv;
mod figure;
mod fixing;
mod flame_graph;
pub mod html;
pub mod json;
pub mod parquet;
mod quantity;
pub mod rows;
mod running;
mod studied;
pub mod terminal;
pub mod top;
pub mod tuned;

pub use compared::Compared;
pub use flame_graph::flame_graph;
pub use running::{Counted, Running};
