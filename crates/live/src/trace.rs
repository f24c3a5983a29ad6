//! Rare events of interrupt virtualization on the whole host, as they happen.
//!
//! Unlike [`crate::ExitCounter`], which counts the exits of known threads, a [`Tracer`] watches every CPU. So it also
//! sees VMs that start later, and what the kernel does in interrupts. It returns single events in order of time. The
//! kernel filters exits: only those that were requested produce records.

pub(crate) mod clock;
pub(crate) mod cpus;
mod decoder;
mod event;
mod ipi;
mod kind;
mod missing;
mod order;
pub(crate) mod owner;
pub(crate) mod source;
mod state;
mod tracer;

pub use event::{Event, IrteUpdate, Loss, Occurrence, What};
pub use ipi::{DeliveryMode, Destination, Ipi};
pub use kind::{EventKind, UnknownEventKind};
pub use missing::{Missing, by_reason};
pub use owner::Owner;
pub use state::{InhibitReport, InhibitState};
pub use tracer::{Item, Options, Summary, Tracer};
