//! The functions in which the host handles exits: `exitless profile`.

mod flame_graph;
mod json;
#[cfg(test)]
mod sample;
mod terminal;

pub use self::flame_graph::flame_graph;
pub use self::json::json;
pub use self::terminal::{HotSpotsView, terminal};
