//! The counter of the points at which the process can be cut short.

use std::cell::Cell;
use std::io;

thread_local! {
    static LEFT: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Makes the process end at point number `places`, counted from 1; never if `None`.
pub(crate) fn after(places: Option<u64>) {
    LEFT.set(places);
}

/// Tests whether the process has ended.
pub(crate) fn ended() -> bool {
    LEFT.get() == Some(0)
}

pub(crate) fn here() -> io::Result<()> {
    match LEFT.get() {
        None => Ok(()),
        Some(left) => {
            LEFT.set(Some(left.saturating_sub(1)));
            if left <= 1 { Err(io::Error::other("the process was ended here")) } else { Ok(()) }
        }
    }
}

/// The part of a write that reaches the disk: half of it if the process ends at the next point.
pub(crate) fn written(bytes: &[u8]) -> &[u8] {
    match LEFT.get() {
        Some(0) => &[],
        Some(1) => &bytes[..bytes.len() / 2],
        _ => bytes,
    }
}
