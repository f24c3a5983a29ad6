//! Snapshots: all that is read to judge a host, in one archive, so that it can be judged elsewhere.
//!
//! What goes in is what [`Inspection::read`] looked at, as it was when it looked, and nothing else. Secrets are taken
//! out, and the archive's manifest lists what was.

mod archive;
mod error;
mod manifest;
mod secrets;

use crate::root::Tree;
use crate::{Error, Inspection, Root};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

pub use error::SnapshotError;
pub use manifest::{Manifest, Removed};

/// A host as it was, without its secrets.
#[derive(Debug)]
pub struct Snapshot {
    tree: Tree,
    manifest: Manifest,
    inspection: Inspection,
}

impl Snapshot {
    /// Looks at a host and keeps what was read. `tool` is the name and version of the program, for the manifest.
    ///
    /// # Errors
    /// Those of [`Inspection::read`].
    pub fn take(root: Root, tool: &str) -> Result<Self, Error> {
        let root = root.recording();
        let inspection = Inspection::read(&root)?;
        let mut tree = root.into_record();
        let removed = secrets::remove(&mut tree);
        // A clock before 1970 has no right to stop anything.
        let created = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let manifest = Manifest::of(&tree, tool, created, removed);
        Ok(Self { tree, manifest, inspection })
    }

    /// What the archive says of itself.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The host that was looked at; with its secrets, which the archive lacks.
    #[must_use]
    pub fn inspection(&self) -> &Inspection {
        &self.inspection
    }

    /// Writes the archive: tar, packed by zstd.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write(&self, writer: impl Write) -> io::Result<()> {
        archive::write(&self.tree, &self.manifest, writer)
    }

    /// Writes the archive to a file that only its owner may read: all of it or nothing, in place of one that is there.
    /// A path that is no ordinary file (`/dev/stdout`, a pipe) is written to as it is.
    ///
    /// # Errors
    /// When the file or its directory cannot be written.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        if fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
            return self.write(File::options().write(true).open(path)?);
        }
        let new = files::Replacement::begin(path, 0o600)?;
        new.file().set_permissions(fs::Permissions::from_mode(0o600))?;
        self.write(io::BufWriter::new(new.file()))?;
        new.finish()
    }
}

/// A host out of an archive or a directory.
#[derive(Debug)]
pub struct Opened {
    /// The host.
    pub root: Root,
    /// What the archive says of itself; `None` of a directory.
    pub manifest: Option<Manifest>,
    /// What is wrong with the archive, with byte offsets; what was whole is there.
    pub warnings: Vec<String>,
}

/// Opens an archive, or takes a directory as it is (`/` is this machine).
///
/// # Errors
/// [`SnapshotError`] when there is nothing, or nothing that is a snapshot.
pub fn open(path: &Path) -> Result<Opened, SnapshotError> {
    let read = |source| SnapshotError::Read { path: path.to_owned(), source };
    if fs::metadata(path).map_err(read)?.is_dir() {
        return Ok(Opened { root: Root::directory(path), manifest: None, warnings: Vec::new() });
    }
    self::read(File::open(path).map_err(read)?, path)
}

/// Reads an archive; `name` is what messages call it.
///
/// # Errors
/// Those of [`open`].
pub fn read(reader: impl Read, name: &Path) -> Result<Opened, SnapshotError> {
    let (tree, manifest, warnings) = archive::read(reader, name)?;
    Ok(Opened { root: Root::kept(tree), manifest: Some(manifest), warnings })
}

#[cfg(test)]
#[path = "snapshot_tests.rs"]
mod tests;
