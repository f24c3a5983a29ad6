//! The vocabulary of VM exits: instruction sets, exit reasons and their counts, profiles with handling times, and the
//! reasons for which KVM inhibits interrupt virtualization.
//!
//! No I/O, no `unsafe`, no kernel formats.

mod access;
mod apic_register;
mod counts;
mod grouped_timeline;
mod grouping;
mod handling;
mod histogram;
mod hypervisor;
mod inhibit;
mod inhibit_cures;
mod inhibits;
mod interrupt;
mod isa;
mod json;
mod kernel_version;
mod long_exit;
mod losses;
mod msr;
mod nested;
mod numbering;
mod octave;
pub mod parsing;
mod profile;
mod reason;
mod selection;
mod svm;
mod table;
mod text;
mod timeline;
mod timeline_rows;
mod vmx;
mod xen_guest_type;

pub use access::{Access, AccessKind, Direction, UnknownAccess, incomplete_ipi_cause};
pub use apic_register::name as apic_register_name;
pub use counts::ExitCounts;
pub use grouped_timeline::GroupedTimeline;
pub use grouping::{BadGrouping, Dimension, Grouping, Key, UnknownDimension, What, Whose};
pub use handling::HandlingTime;
pub use hypervisor::Hypervisor;
pub use inhibit::{InhibitReason, UnknownInhibit};
pub use inhibit_cures::{Cure, CurePlace};
pub use inhibits::{Inhibit, Inhibits};
pub use interrupt::Virtualized;
pub use isa::{Isa, UnknownIsa};
pub use json::JsonEscaper;
pub use kernel_version::{BadKernelVersion, KernelVersion};
pub use long_exit::{LongExit, LongExits, LongOptions, Meanwhile};
pub use losses::Losses;
pub use nested::{ExitLevels, Nested};
pub use numbering::InhibitNumbering;
pub use octave::Octave;
pub use profile::{Exits, Profile, Span, Vcpu, VcpuExits};
pub use reason::{ExitReason, UnknownReason};
pub use selection::{NotThere, Selection};
pub use table::{Order, Rest, Row, Table, UnknownOrder};
pub use text::{
    agree, counted, csv_cell, grouped, is_harmful, printable, with_causes, with_causes_in_brackets,
};
pub use timeline::{SeriesIndex, SeriesKey, Slice, Timeline};
pub use timeline_rows::{Column, TimelineFigure, TimelineRest, TimelineRow, TimelineRows};
pub use xen_guest_type::XenGuestType;
