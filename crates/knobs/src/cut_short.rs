//! Points at which a process can be cut short, between two lasting effects.
//!
//! Tests count these points, and simulate the end of the process at each of them in turn.

#[cfg(not(test))]
mod place {
    use std::io;

    #[expect(clippy::unnecessary_wraps, reason = "in tests the process may end here")]
    pub(crate) fn here() -> io::Result<()> {
        Ok(())
    }

    pub(crate) fn written(bytes: &[u8]) -> &[u8] {
        bytes
    }
}

#[cfg(test)]
#[path = "cut_short_tests.rs"]
mod place;

pub(crate) use place::*;
