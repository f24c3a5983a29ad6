//! The place of a value in its text.

use serde::{Deserialize, Serialize};

/// A part of the text that a definition was read from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The first byte of the part. For a running process, bytes are those of `/proc/PID/cmdline`.
    pub start: usize,
    /// The byte after the last.
    pub end: usize,
    /// Its line, from 1; always 1 for command lines on one line.
    pub line: usize,
    /// The part as in the text, shortened if long: the evidence for messages.
    pub text: String,
}

/// A value from the text, with its place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Set<T> {
    /// The value.
    pub value: T,
    /// Its place; if the text sets it several times, that of the effective one.
    pub place: Place,
}

impl<T> Set<T> {
    /// A value with its place.
    #[must_use]
    pub const fn new(value: T, place: Place) -> Self {
        Self { value, place }
    }
}
