//! A common model of VM definitions: the settings of a QEMU command line, a running process or libvirt's XML
//! that concern interrupts and I/O.
//!
//! A [`Definition`] is read from a text, and every value in it has its [`Place`] there. A [`DefinitionChange`] is
//! written back into the same text, and all other bytes are unchanged.

mod change;
mod cpu;
mod defaults;
mod definition;
mod device;
mod error;
pub mod libvirt;
mod machine;
mod place;
pub mod qemu;
mod text;
pub mod xl;
mod xml;

pub use change::DefinitionChange;
pub use cpu::{CpuModel, FeatureState, GuestCpu, HyperV};
pub use definition::{Definition, Form, IoThread, Vcpus};
pub use device::{Backend, Device, DeviceKind, GuestIommu};
pub use error::Error;
pub use machine::{Accelerator, Irqchip, Machine, TickPolicy, Timers};
pub use place::{Place, Set};
pub use text::{Edit, Edited, Files, FilesBelow, NoFiles, Refusal, Text};
