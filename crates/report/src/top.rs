//! The page of `exitless top`: its content and its look.
//!
//! [`Top`] receives observations and the user's actions, independent of clocks, terminals and the kernel;
//! [`draw()`] renders it to a frame. Both depend only on their inputs, so that every screen can be tested.

mod accesses;
mod cells;
mod columns;
mod course;
mod draw;
mod io_cores;
mod names;
mod observation;
mod page;
mod rows;
mod sort;
mod state;
mod texts;
mod vms;

pub use self::draw::{Look, draw};
pub use self::io_cores::IoCores;
pub use self::observation::{Observation, Source, VmFacts};
pub use self::state::{Action, Top};
