//! The monitor: I/O cores that follow the load.
//!
//! Policies are functions: a [`View`] of the host in, a [`Decision`] out. What they read and what they act on is
//! elsewhere, so that the same policy is tried on machines that exist and, by [`simulator`], on those that do not.

pub mod actuator;
mod balance;
mod course;
mod demand;
pub mod evaluation;
mod layout;
mod policy;
mod recorder;
mod settings;
pub mod simulator;
mod state;
mod trial;
mod view;
mod vm;

pub use balance::balance;
pub use course::{Decided, Figures, MONITOR_FORMAT, Monitor, Step};
pub use layout::{Action, Layout, WorkerCore};
pub use policy::{Decision, Reason, decide, polling};
pub use recorder::Recorder;
pub use settings::{BadSetting, Settings};
pub use state::{NoState, STATE, State};
pub use trial::{Direction, PolicyState};
pub use view::{Core, QueueView, View, WorkerView};
pub use vm::{ExitsSeen, VmExits, VmFigures};
