//! exitless's own recordings of exits: an Apache Arrow IPC stream with one row an exit.
//!
//! A stream needs nothing at its end: a file that a full disk or a kill cut short gives every whole batch, and
//! every tool that knows Arrow reads it. `docs/format.md` describes columns and metadata.
//!
//! The reader takes from arrow-ipc only the verified messages and unpacks the few columns itself: the readers of
//! arrow-ipc 59 allocate whatever a broken length says, which ends the process, and panic on schemas and buffers
//! that are broken.

mod annotate;
mod batch;
mod columns;
mod layout;
mod message;
pub(crate) mod profile;
pub(crate) mod reading;
mod rows;
mod schema;
mod summary;
mod tally;
mod texts;
mod writer;

pub use profile::{Packing, write_profile};
pub use schema::Header;
pub use summary::Summary;
pub use writer::{WriteError, Writer, Written};

pub(crate) use reading::read;

/// Tests whether a recording starts as an Arrow stream.
pub(crate) fn begins(start: &[u8]) -> bool {
    message::begins(start)
}
