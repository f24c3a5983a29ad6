//! A model of a host: tries a policy on loads and machines that are not at hand.
//!
//! The model has only what the policy is about. Cores are either I/O cores or shared by vCPUs. vCPUs that find too few
//! cores slow down, and so do their requests. A worker serves its queues in equal turns, as far as its core allows. A
//! request costs more if its worker shares cores with vCPUs, or if it comes from another NUMA node. The model predicts
//! ratios between arrangements, not the figures of a machine.

mod arrangement;
mod file;
mod made;
mod replay;
mod trace;

pub use arrangement::{Served, StaticChoice, best_static};
pub use file::{NoTrace, TRACE_FORMAT, TraceDamage, TraceWriter};
pub use made::{Kind, made};

pub use replay::{Period, PhaseOutcome, Replay, Replayed, replay};
pub use trace::{BadTrace, Group, Load, Machine, Phase, Trace};
