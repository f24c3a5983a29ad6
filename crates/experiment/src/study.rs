//! Studies: factors, guests, workloads and repeats, as a plan that anyone can run.

pub mod analysis;
pub mod guest;
mod metric;
mod record;
pub mod sampling;
pub mod workload;

pub use metric::{Better, Combine, Metric, Unit};
pub use record::{Cell, Run, STUDY_FORMAT};
