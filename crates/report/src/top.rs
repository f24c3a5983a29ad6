//! The page of `exitless top`: what is on it, and how it looks.
//!
//! [`Top`] is told what was counted and what the user wants, and knows nothing of clocks, terminals or the kernel;
//! [`draw`] puts it into a frame. Both are functions of what they are given, so that every screen can be tested.

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
