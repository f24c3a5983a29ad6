//! What can go wrong while facts are read.

use std::path::PathBuf;

/// A failure to read the host, with what was expected and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file that should hold a fact could not be read.
    #[error("Cannot read {path}: expected {expected}; {next}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What it should hold.
        expected: &'static str,
        /// What to do.
        next: &'static str,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A file was read but does not say what it should.
    #[error("{path} says `{found}`, expected {expected}; {next}")]
    Content {
        /// The file.
        path: PathBuf,
        /// What it says (its beginning).
        found: String,
        /// What it should say.
        expected: &'static str,
        /// What to do.
        next: &'static str,
    },
    /// The root is no directory, so there is no host to describe.
    #[error("{path} is not a directory; give the directory that holds the host's proc and sys, usually /")]
    Root {
        /// The root as given.
        path: PathBuf,
    },
}

impl Error {
    /// A failed read of a file that should hold `expected`.
    pub(crate) fn read(path: PathBuf, expected: &'static str, source: std::io::Error) -> Self {
        let next = match source.kind() {
            std::io::ErrorKind::PermissionDenied => "run as root",
            std::io::ErrorKind::NotFound => "the kernel or its configuration does not offer it",
            _ => "see the cause",
        };
        Self::Read { path, expected, next, source }
    }
}
