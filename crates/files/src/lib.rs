//! Files in places that others may write to.
//!
//! A path is only as good as its last lookup: if others may write to one of its directories, they can replace a
//! component with a link or another directory at any time. [`Directory`] walks a path once, by descriptor, and knows
//! whether others could have redirected it; everything below it is then done relative to its descriptor.
//! [`Replacement`] writes a file whole or not at all, and syncs it. [`Inside`] reads the directory tree of another
//! host, whose links stay in it. [`regular()`] does not block on a FIFO, and [`named()`] opens only files whose
//! opening and reading has no effect. [`look`] reads about a process without being blocked by it.

mod directory;
mod error;
mod inside;
mod look;
mod open;
mod replacement;
mod user;

pub use directory::{Directory, Missing};
pub use error::Error;
pub use inside::Inside;
pub use look::{look, look_at_files, look_into, many_looks};
pub use open::{allow_open_files, keep_end, named, read, read_end, read_start, regular};
pub use replacement::{Replacement, is_unfinished, sync_parent, write};
pub use user::user_cache;
