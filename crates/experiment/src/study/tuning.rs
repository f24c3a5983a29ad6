//! The tuning loop: one candidate change after the other against the best so far, each a study of its own, kept or reverted
//! by the study's three gates.
//!
//! After "Extending Xen with Intel Virtualization Technology" (Intel Technology Journal 10, 2006), whose authors ran a
//! workload, traced exits, changed the device model the exits came from, and measured again.

mod definition;
mod judge;
mod outcome;
mod plan;
mod run;
mod shipped;
mod step;

pub use outcome::{Judged, Ruling, Step, TUNING_FORMAT, Tuning};
pub use plan::{Change, Rules, TuningPlan};
pub use run::{Measured, Measuring, Preview, folder_of, preview, runs, text, tried, tune};
pub use shipped::{SHIPPED_TUNING, ShippedTuning};
pub use step::{BEFORE, Best, TUNED, confirmation, step};
