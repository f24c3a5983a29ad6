//! The kernel's descriptions of its tracepoints: the `format` files of tracefs, which recordings carry too.
//!
//! Texts in, descriptions out; no I/O, no `unsafe`.

mod format;
mod symbols;

pub use format::{EventFormat, Field, FormatError};
pub use symbols::{Symbol, SymbolTable, Symbols};
