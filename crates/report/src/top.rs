//! The page of `exitless top`: its content and its drawing.
//!
//! [`Top`] receives observations and the user's actions, and [`draw()`] renders it to a frame. Both depend only on their
//! inputs, not on clocks, terminals or the kernel, so that every screen can be tested.

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
