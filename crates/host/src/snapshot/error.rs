//! Errors of opening a snapshot.

use std::io;
use std::path::PathBuf;

/// A failure to open a snapshot.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// The file cannot be read.
    #[error(
        "Cannot read {path}: expected an archive of `exitless snapshot` or a directory with proc and sys in it"
    )]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// It is a directory without a host.
    #[error(transparent)]
    Root(crate::Error),
    /// It is not a snapshot.
    #[error(
        "{path} is not an archive of `exitless snapshot` ({why}); make one with `exitless snapshot OUT.tar.zst` on the host, \
         or unpack this one and give the directory that holds its proc and sys"
    )]
    NoSnapshot {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// It is cut off or damaged before anything of the host.
    #[error(
        "{path} is cut off or damaged, and nothing of it can be unpacked ({why}); copy it again from its host"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// A later version wrote it.
    #[error(
        "{path} has format {found} and this program reads up to {known}; use the version that wrote it ({tool})"
    )]
    Format {
        /// The file.
        path: PathBuf,
        /// The format's number.
        found: u32,
        /// The latest known format.
        known: u32,
        /// The program that wrote it.
        tool: String,
    },
}
