//! Studies: factors, guests, workloads and repeats, as a plan that anyone can run.

pub mod analysis;
pub mod engine;
pub mod factor;
pub mod forecast;
mod metric;
pub mod plan;
mod record;
pub mod sampling;
pub mod schedule;
pub mod store;
pub mod stream;
pub mod suite;
pub mod target;
pub mod tuning;
pub mod workload;

pub use guests::Span;
pub use metric::{Better, Combine, Metric, Unit};
pub use plan::Plan;
pub use record::{Cell, Repetition, Resumption, Run, STUDY_FORMAT, Study};
