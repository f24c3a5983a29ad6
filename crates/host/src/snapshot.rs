//! Snapshots: all facts by which a host is judged, in one archive, to judge it on another machine.
//!
//! An archive contains exactly the files that [`Inspection::read`] read, with their contents at that time.
//! Secrets are removed, and the manifest lists their kinds.

mod archive;
mod error;
mod manifest;
mod secrets;

use crate::root::Tree;
use crate::{Error, Fingerprint, Inspection, Root};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

pub use error::SnapshotError;
pub use manifest::{Manifest, Removed};

/// A host at one time, without its secrets.
#[derive(Debug)]
pub struct Snapshot {
    tree: Tree,
    manifest: Manifest,
    inspection: Inspection,
}

impl Snapshot {
    /// Inspects a host and keeps the files that were read. `tool` is the name and version of the program, for
    /// the manifest.
    ///
    /// # Errors
    /// Those of [`Inspection::read`].
    pub fn take(root: Root, tool: &str) -> Result<Self, Error> {
        let root = root.recording();
        let inspection = Inspection::read(&root)?;
        let mut tree = root.into_record();
        let removed = secrets::remove(&mut tree);
        // Ignore the error of a clock before 1970.
        let created = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let manifest = Manifest::of(&tree, tool, created, removed);
        Ok(Self { tree, manifest, inspection })
    }

    /// The archive's manifest.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The inspection of the host. It contains the secrets that the archive lacks.
    #[must_use]
    pub fn inspection(&self) -> &Inspection {
        &self.inspection
    }

    /// Writes the archive: tar, compressed with zstd.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write(&self, writer: impl Write) -> io::Result<()> {
        archive::write(&self.tree, &self.manifest, writer)
    }

    /// Writes the archive completely or not at all to a file that only its owner may read, replacing an
    /// existing one. A path that is not a regular file (`/dev/stdout`, a pipe) is written directly.
    ///
    /// # Errors
    /// If the file or its directory cannot be written.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        let new = files::Replacement::begin(path, 0o600)?;
        if new.is_beside() {
            new.file().set_permissions(fs::Permissions::from_mode(0o600))?;
        }
        self.write(io::BufWriter::new(new.file()))?;
        new.finish()
    }
}

/// The fingerprint that a snapshot of the same host has: without secrets.
#[must_use]
pub fn without_secrets(fingerprint: &Fingerprint) -> Fingerprint {
    let cmdline = fingerprint.cmdline.as_deref().map(secrets::without_those_of_kernel);
    Fingerprint { cmdline, ..fingerprint.clone() }
}

/// Tests whether two command lines of kernels are alike, apart from arguments that snapshots of one version of this program
/// lack as secrets, and those of another keep.
#[must_use]
pub fn same_arguments(one: &str, other: &str) -> bool {
    secrets::are_alike(one, other)
}

/// A host from an archive or a directory.
#[derive(Debug)]
pub struct Opened {
    /// The host.
    pub root: Root,
    /// The archive's manifest; `None` for a directory.
    pub manifest: Option<Manifest>,
    /// Defects of the archive, with byte offsets; its intact part is available.
    pub warnings: Vec<String>,
}

/// Opens an archive, or a directory (`/` is this machine).
///
/// # Errors
/// [`SnapshotError`] if it does not exist, is not a snapshot, or is a directory without a host.
pub fn open(path: &Path) -> Result<Opened, SnapshotError> {
    let read = |source| SnapshotError::Read { path: path.to_owned(), source };
    if fs::metadata(path).map_err(read)?.is_dir() {
        let root = Root::below(path).map_err(SnapshotError::Root)?;
        return Ok(Opened { root, manifest: None, warnings: Vec::new() });
    }
    self::read(File::open(path).map_err(read)?, path)
}

/// Reads an archive; `name` is its name in messages.
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
