//! Emulated KVM hosts: a real, unmodified Linux KVM on any x86 machine.

pub mod agent;
mod archive;
mod assemble;
mod bochs_correction;
mod cache;
mod definition;
mod elf;
mod error;
mod frames;
#[doc(hidden)]
pub mod fuzz;
mod guest_image;
mod guest_initial_ram_disk;
mod guest_recipe;
mod image;
mod job;
mod kernel;
mod laboratory;
mod machine;
mod namespaces;
mod packages;
mod payload;
mod process;
mod progress;
mod recipe;
mod request;
mod rom;
mod run;
mod terminal;
mod tools;
mod unpack;
mod watch;

pub use cache::Cache;
pub use definition::{Emulator, LABS, Lab};
pub use error::Error;
pub use frames::{Ending, Moment};
pub use guest_image::{GUEST_BUILD_EFFORT, GuestImage, GuestManifest};
pub use image::{FileRecord, Image, Manifest, PackageRecord};
pub use laboratory::SELF_TEST;
pub use progress::{BUILD_EFFORT, Effort, OnProgress, Progress, Step};
pub use request::{Finished, Happening, Put, Request, Timings};
pub use run::Laboratory;
