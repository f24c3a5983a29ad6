//! Hot spots of a host, where it spends the time of handling VM exits: stack samples by exit reason, their symbols,
//! the file format, and the sums.
//!
//! Higher crates take the samples; nothing here is formatted for people.

mod folded;
mod kernel_symbols;
mod mappings;
mod model;
mod object_symbols;
mod reading;
mod summary;
mod symbols;
mod tree;
mod writing;

pub use folded::folded;
pub use kernel_symbols::KernelSymbols;
pub use model::{
    Activity, Away, Event, Frame, FrameNumber, Head, Losses, MOST_ADDRESSES, Measured, Part, Recording,
    Space, Stack,
};
pub use object_symbols::ObjectSymbols;
pub use reading::{ReadError, Reading, is_recording, read};
pub use summary::{Moment, ReasonRow, Selection, Summary, SymbolRow};
pub use symbols::Symbols;
pub use tree::{Node, NodeName, Weight, tree};
pub use writing::{FORMAT, write};
