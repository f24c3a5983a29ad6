//! The place of a value in its text.

use serde::{Deserialize, Serialize};

/// A part of the text that a definition was read from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// First byte of the part, and the one after its last. For a running process the bytes of `/proc/PID/cmdline`.
    pub start: usize,
    /// The byte after the last.
    pub end: usize,
    /// Its line, from 1; always 1 for command lines without line ends.
    pub line: usize,
    /// The part as in the text, shortened if long: the evidence for messages.
    pub text: String,
}

/// A value from the text, with its place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Set<T> {
    /// The value.
    pub value: T,
    /// Its place. If it is given several times, the effective place.
    pub place: Place,
}

impl<T> Set<T> {
    /// A value with its place.
    #[must_use]
    pub const fn new(value: T, place: Place) -> Self {
        Self { value, place }
    }
}
