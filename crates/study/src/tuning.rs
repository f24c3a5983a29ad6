//! The tuning loop: tries one candidate change at a time. Each is compared with the best configuration so far in a
//! study of its own, and kept or reverted by the study's three gates. The plan lists the candidates, or they are
//! derived from the exits of the best configuration so far.
//!
//! After "Extending Xen with Intel Virtualization Technology" (Intel Technology Journal 10, 2006), whose
//! authors ran a workload, traced its exits, changed the device model that caused them, and measured again.

mod advised;
mod carried;
mod definition;
mod folder;
mod judge;
mod likeness;
mod outcome;
mod overlay;
mod plan;
mod recorded;
mod run;
mod shipped;
mod step;

pub use advised::{AdvisedFor, Left, LeftTo};
pub use carried::{Carried, Unlike, carried};
pub use folder::TuningFolder;
pub use outcome::{Judged, Ruling, Step, TUNING_FORMAT, TunedDefinition, Tuning};
pub use plan::{Advised, TuningPlan};
pub use recorded::{Recorded, RecordedError, recorded};
pub use run::{Measured, Measuring, Preview, Seen, preview, tune};
pub use shipped::{SHIPPED_TUNING, ShippedTuning};
