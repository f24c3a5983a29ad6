//! The state of a host as OpenMetrics (exits of each VM by reason, their handling times, interrupt virtualization, the
//! findings of `doctor`), and the server that Prometheus scrapes.
//!
//! Names, units and types follow the OpenMetrics 1.0 specification. State sets, which `prometheus-client` does not write,
//! are gauges with a label for the state, one of which is 1. Prometheus' text format 0.0.4 is made from OpenMetrics.

mod highest;
mod io_workers;
mod metrics;
mod named;
mod serve;
mod totals;

pub use highest::Highest;
pub use io_workers::IoWorkers;
pub use metrics::{HaltPolling, Host, OwnCost, State, VmHost, text};
pub use named::{Named, Names};
pub use serve::{CONTENT_TYPE, Error, Listener, serve};
pub use totals::{OTHER, Totals, VmIdentity, shortened};
