//! The directories of the journal, and its files in them.

use crate::Error;
use files::{Directory, Missing};
use rustix::fs::OFlags;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// The name of the journal's file in both directories.
pub(super) const NAME: &str = "journal";
/// The name of the file that is renamed over it.
pub(super) const NEW: &str = "journal.new";

/// Opens the directory of the journal's file `path` on the host below `root`, and checks that it belongs only to the
/// user of this process.
pub(super) fn directory(root: &Path, path: &str, missing: Missing) -> Result<Directory, Error> {
    let path = Path::new(path).parent().unwrap_or(Path::new("/"));
    let refused = |error| Error::place(error, rustix::process::geteuid().as_raw());
    Directory::private(root, path, missing).map_err(refused)
}

/// Opens the journal's file.
pub(super) fn file(directory: &Directory, flags: OFlags) -> io::Result<File> {
    named(directory, NAME, flags)
}

/// Opens a file in the directory. Refuses one that somebody else may have left there while the directory was
/// writable for others.
pub(super) fn named(directory: &Directory, name: &str, flags: OFlags) -> io::Result<File> {
    let file = directory.open_file(name, flags, 0o600)?;
    let (found, user) = (file.metadata()?, rustix::process::geteuid().as_raw());
    if found.uid() == user && found.mode() & 0o022 == 0 && found.nlink() <= 1 {
        return Ok(file);
    }
    let why = format!(
        "{name} belongs to user {} with mode {:04o} and {} names, expected user {user} alone: look at it, and remove it",
        found.uid(),
        found.mode() & 0o7777,
        found.nlink()
    );
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}
