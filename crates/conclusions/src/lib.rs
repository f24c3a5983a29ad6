//! Conclusions from VM exits and from the state of a VM: the status of interrupt virtualization, the exits that it would
//! avoid, and the changes between two recordings.
//!
//! No I/O, no `unsafe`, no kernel formats.

pub mod activation;
mod comparison;
pub mod prediction;
pub mod profile_comparison;

pub use comparison::{Comparison, Difference, RelativeChange, Side};
