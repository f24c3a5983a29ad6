//! Conclusions from VM exits and from the state of a VM: the status of interrupt virtualization, the exits that it would
//! avoid, and the changes between two recordings.
//!
//! No I/O, no `unsafe`, no kernel formats.

pub mod activation;
pub mod prediction;
pub mod profile_comparison;
mod relative_change;

pub use relative_change::RelativeChange;
