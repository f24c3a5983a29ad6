//! Errors of opening directories.

use std::io;
use std::path::PathBuf;

/// The reason why a directory is not used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The directory does not exist, or the kernel refuses to open it.
    #[error("Cannot open the directory {path}")]
    Open {
        /// The directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It belongs to another user, who could put other files there.
    #[error(
        "{path} belongs to user {owner}, expected user {expected}; use another directory, or give it to that user"
    )]
    Owner {
        /// The directory.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// The expected owner.
        expected: String,
    },
    /// Others may write to it, or read a directory that must be private.
    #[error(
        "{path} has mode {mode:04o}, which lets others in; use another directory, or run `chmod {wanted} {path}`"
    )]
    Mode {
        /// The directory.
        path: PathBuf,
        /// Its permission bits (inode(7)).
        mode: u32,
        /// The mode for chmod(1).
        wanted: &'static str,
    },
    /// A link that others could have put there.
    #[error("{path} is a symbolic link of user {owner}, which is not followed; name the directory itself")]
    Link {
        /// The link.
        path: PathBuf,
        /// Its owner.
        owner: u32,
    },
}

impl Error {
    /// The kernel's error, or `PermissionDenied` if this crate refused the directory.
    #[must_use]
    pub fn into_io(self) -> io::Error {
        match self {
            Self::Open { source, .. } => source,
            refused => io::Error::new(io::ErrorKind::PermissionDenied, refused),
        }
    }

    /// Tests whether the directory does not exist.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Open { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}
