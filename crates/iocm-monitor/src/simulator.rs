//! A host on paper: what a policy does on loads and machines that are not at hand.
//!
//! The model knows what the policy is about and no more: cores are either I/O cores or shared by vCPUs; vCPUs that find
//! too few cores slow down, and their requests with them; a worker serves what its core can carry, in equal turns; a
//! request costs more while its worker must be woken for it, or while it comes from another NUMA node. It foretells
//! ratios between arrangements, not the figures of a machine.

mod arrangement;
mod file;
mod made;
mod replay;
mod trace;

#[cfg(test)]
#[path = "simulator_tests.rs"]
mod tests;

pub use arrangement::{Served, StaticChoice, best_static};
pub use file::{NoTrace, TRACE_FORMAT, TraceDamage, TraceWriter};
pub use made::{Kind, made};

pub use replay::{Period, PhaseOutcome, Replay, Replayed, replay};
pub use trace::{BadTrace, Group, Load, Machine, Phase, Trace};
