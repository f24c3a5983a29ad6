//! What this machine lets these tests do.

use live::Error;

/// `None` if the user may not do it, or the kernel does not support it.
pub(crate) fn may<T>(attached: Result<T, Error>) -> Option<T> {
    match attached {
        Ok(attached) => Some(attached),
        Err(
            error @ (Error::Load { .. }
            | Error::LockedDown
            | Error::NoTracefs { .. }
            | Error::TracefsDenied { .. }),
        ) => {
            eprintln!("not tested: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}
