//! Errors of reading or changing a definition.

use std::fmt;

/// The reason why a text is not a definition, or cannot be changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// The text's name: a path, `process 4711`, `libvirt domain web`.
    pub name: String,
    /// The line of the error, from 1; `None` if it concerns the whole text.
    pub line: Option<usize>,
    /// The problem, with the found and the expected value: the second half of a sentence, without a full
    /// stop.
    pub problem: String,
    /// The next step: a sentence without a full stop.
    pub advice: String,
}

impl Error {
    /// An error about a text as a whole.
    pub fn new(name: impl Into<String>, problem: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { name: name.into(), line: None, problem: problem.into(), advice: advice.into() }
    }

    /// The error with its line.
    #[must_use]
    pub fn at_line(mut self, line: usize) -> Self {
        self.line = Some(line);
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        if let Some(line) = self.line {
            write!(f, ", line {line}")?;
        }
        write!(f, ": {}. {}", self.problem, self.advice)
    }
}

impl std::error::Error for Error {}
