//! Files in places that others may write to.
//!
//! A path says what was there when it was looked up. Where somebody else may change one of its directories, a link or
//! another directory can be there a moment later. [`Directory`] walks a path once, by descriptors, and knows afterwards
//! whether others could have led it elsewhere; what is done below it is done by its descriptor. [`Replacement`] writes a
//! file whole or not at all, and brings it to the disk. [`Inside`] reads another host's directory, whose links stay in it.
//! [`regular()`] opens no FIFO and no device. [`look`] waits for no
//! process that holds whoever looks at it.

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
pub use look::{look, look_at_files, look_into};
pub use open::{read, read_end, read_start, regular};
pub use replacement::{Replacement, sync_parent, write};
pub use user::user_cache;
