//! Errors of reading facts.

use std::path::{Path, PathBuf};

/// A failure to read the host, with the expectation and the next step.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be read.
    #[error("Cannot read {path}: expected {expected}; {next}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Its expected content.
        expected: &'static str,
        /// The next step.
        next: &'static str,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A file does not have the expected content.
    #[error("{path} says `{found}`, expected {expected}; {next}")]
    Content {
        /// The file.
        path: PathBuf,
        /// Its content (the beginning).
        found: String,
        /// The expected content.
        expected: &'static str,
        /// The next step.
        next: &'static str,
    },
    /// The root is not a directory.
    #[error(
        "{path} is not a directory; give the directory that holds the host's proc and sys, or unpack the archive first"
    )]
    Root {
        /// The root as given.
        path: PathBuf,
    },
    /// The root does not contain a host.
    #[error("{path} has neither proc nor sys; give {}", host_in(.below.as_deref()))]
    NoHost {
        /// The root as given.
        path: PathBuf,
        /// The only directory in it that has both.
        below: Option<PathBuf>,
    },
}

/// The directory to give as a root.
fn host_in(below: Option<&Path>) -> String {
    below.map_or("the directory that holds them".to_owned(), |path| {
        format!("{}, which has both", path.display())
    })
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
