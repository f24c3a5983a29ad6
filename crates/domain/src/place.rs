//! Where in its text a value is said.

use serde::{Deserialize, Serialize};

/// A part of the text that a definition was read from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// First byte of the part, and the one after its last. For a running process the bytes of `/proc/PID/cmdline`.
    pub start: usize,
    /// The byte after the last.
    pub end: usize,
    /// The line it begins in, from 1; 1 always for command lines without line ends.
    pub line: usize,
    /// The part as it is written there, shortened when it is long: what is shown as evidence.
    pub text: String,
}

/// A value that the text says, with the place that says it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Set<T> {
    /// The value.
    pub value: T,
    /// Where it is said. Where it is said more than once, the place that counts.
    pub place: Place,
}

impl<T> Set<T> {
    /// A value with its place.
    #[must_use]
    pub const fn new(value: T, place: Place) -> Self {
        Self { value, place }
    }
}
