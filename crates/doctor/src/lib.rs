//! Rules over facts of a host and definitions of VMs: each finding has its state, its evidence, why it matters, and
//! the change that fixes it.

pub mod baseline;
pub mod enable;
pub mod examination;
mod finding;
pub mod fix;
pub mod lint;
pub mod managed;
mod section;
mod verdict;
mod xen;

pub use examination::{Conclusion, Examination, HostState, VmSide, examine, examine_below, node_features};
pub use finding::{Evidence, Finding, Fix, Managed, State};
pub use section::{Section, Tally, not_judged};

/// The date of the last change to the rules for hosts and definitions, to the table of kernels, or to the table of the
/// causes of exits in `advice`. Set it when you change one of them.
pub const RULES_DATE: &str = "2026-11-30";
