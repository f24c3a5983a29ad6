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

use std::path::Path;

use self::source::{Source, Tracepoint};
use crate::{Error, Tracefs};

pub use event::{Event, IrteUpdate, Loss, Occurrence, What};
pub use ipi::{DeliveryMode, Destination, Ipi};
pub use kind::{EventKind, UnknownEventKind};
pub use missing::{Missing, by_reason};
pub use owner::Owner;
pub use state::{InhibitReport, InhibitState};
pub use tracer::{Item, Options, Summary, Tracer};

/// Opens a tracepoint that every kernel has on all CPUs of the host below `root`, and closes it again: a check of what
/// [`Tracer`] and [`crate::ChangesWatch`] need, without KVM.
///
/// # Errors
/// [`Error::NoTracefs`], [`Error::TracefsDenied`] and [`Error::NoEvent`] if tracepoints are not accessible; [`Error::OnCpu`]
/// if they may not be watched.
pub fn try_all_cpus(root: &Path) -> Result<(), Error> {
    let event = Tracefs::find(root)?.format("sched", "sched_switch")?;
    let name = "sched:sched_switch".to_owned();
    Source::open(vec![Tracepoint { id: event.id, name, filter: None }], &cpus::online(root)?).map(drop)
}
