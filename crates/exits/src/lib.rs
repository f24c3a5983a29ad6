//! The vocabulary of VM exits: instruction sets, exit reasons, counts of them and their comparison, and
//! the reasons for which KVM inhibits interrupt virtualization.
//!
//! Floor 0 of the workspace: no I/O, no `unsafe`, no kernel formats.

mod comparison;
mod counts;
mod handling;
mod inhibit;
mod inhibits;
mod interrupt;
mod isa;
mod kernel_version;
mod numbering;
mod reason;
mod svm;
mod vmx;

pub use comparison::{Change, Comparison, Difference, Side};
pub use counts::ExitCounts;
pub use handling::HandlingTime;
pub use inhibit::{InhibitReason, UnknownInhibit};
pub use inhibits::{Inhibit, Inhibits};
pub use interrupt::Virtualized;
pub use isa::{Isa, UnknownIsa};
pub use kernel_version::{BadKernelVersion, KernelVersion};
pub use numbering::InhibitNumbering;
pub use reason::{ExitReason, UnknownReason};
