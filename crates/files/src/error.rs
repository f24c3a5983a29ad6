//! The reason why a directory is not used.

use std::io;
use std::path::PathBuf;

/// The reason why a directory is not used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// It is not there, or the kernel refuses.
    #[error("Cannot open the directory {path}")]
    Open {
        /// The directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It belongs to somebody else, who could put other files there.
    #[error(
        "{path} belongs to user {owner}, expected user {expected}; use another directory, or give it to that user"
    )]
    Owner {
        /// The directory.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
        /// Whose it should be.
        expected: String,
    },
    /// Others may write to it, or look into what is secret.
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
        /// Whose it is.
        owner: u32,
    },
}

impl Error {
    /// The kernel's answer, for those who expect one.
    #[must_use]
    pub fn into_io(self) -> io::Error {
        match self {
            Self::Open { source, .. } => source,
            refused => io::Error::new(io::ErrorKind::PermissionDenied, refused),
        }
    }

    /// Tests whether it is not there.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Open { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}
