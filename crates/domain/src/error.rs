//! What stands in the way of reading a definition or of changing it.

use std::fmt;

/// Why a text is no definition, or why it cannot be changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// The text's name: a path, `process 4711`, `libvirt domain web`.
    pub name: String,
    /// The line where it went wrong, from 1; `None` where the text as a whole is meant.
    pub line: Option<usize>,
    /// What is wrong, with the value found and the one expected: a sentence's second half, without a full stop.
    pub problem: String,
    /// What to do next: a sentence without a full stop.
    pub advice: String,
}

impl Error {
    /// An error about a text as a whole.
    pub fn new(name: impl Into<String>, problem: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { name: name.into(), line: None, problem: problem.into(), advice: advice.into() }
    }

    /// The same error, of one line.
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
