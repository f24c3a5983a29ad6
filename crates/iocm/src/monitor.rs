//! The monitor: I/O cores that follow the load.
//!
//! Policies are functions: a [`View`] of the host in, a [`Decision`] out. What they read and what they act on is
//! elsewhere, so that the same policy is tried on machines that exist and, by [`simulator`], on those that do not.

mod balance;
mod cores;
mod decision;
mod layout;
mod memory;
mod policy;
mod settings;
pub mod simulator;
mod trial;
mod view;
mod wanted;

pub use balance::balance;
pub use decision::{Decision, Direction, Reason};
pub use layout::{Action, Layout, Place};
pub use memory::Memory;
pub use policy::decide;
pub use settings::Settings;
pub use view::{Core, QueueView, View, WorkerView};
