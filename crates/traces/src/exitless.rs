//! exitless's own recordings of exits: an Apache Arrow IPC stream with one row per exit.
//!
//! A stream needs no footer: if a full disk or a kill cuts the file, all complete batches can be read, by any tool
//! that reads Arrow. `docs/format.md` describes columns and metadata.
//!
//! The reader uses arrow-ipc only for verified messages and decodes the few columns itself: the readers of arrow-ipc
//! 59 allocate whatever a corrupt length says, which aborts the process, and panic on corrupt schemas and buffers.

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

pub use profile::{Packing, fit, write_profile};
pub use schema::Header;
pub use summary::Summary;
pub use writer::{WriteError, Writer, Written};

pub(crate) use reading::read;

/// Tests whether a recording starts as an Arrow stream.
pub(crate) fn begins(start: &[u8]) -> bool {
    message::begins(start)
}
