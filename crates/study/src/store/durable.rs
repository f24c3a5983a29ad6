//! Files that are synced before they are visible under their names.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

use files::{Directory, Missing, Replacement};

use super::StoreError;

/// Writes a file completely or not at all, in a folder that nobody else can change or replace.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<(), StoreError> {
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let directory = Directory::below(folder, Path::new(""), Missing::Refused).map_err(files::Error::into_io);
    let name = path.file_name().unwrap_or_default();
    let written = directory.and_then(|directory| {
        let new = Replacement::within(directory, name, 0o666)?;
        new.file().write_all(bytes)?;
        new.finish()
    });
    written.map_err(StoreError::file("Could not write", path))
}

/// Syncs a folder and all files below it. Skips links, which are not part of a run.
pub(super) fn sync_tree(folder: &Path) -> Result<(), StoreError> {
    let failed = |path: &Path| StoreError::file("Could not sync to the disk", path);
    for entry in fs::read_dir(folder).map_err(failed(folder))? {
        let entry = entry.map_err(failed(folder))?;
        let (path, kind) = (entry.path(), entry.file_type().map_err(failed(folder))?);
        if kind.is_dir() {
            sync_tree(&path)?;
        } else if kind.is_file() {
            File::open(&path).and_then(|file| file.sync_all()).map_err(failed(&path))?;
        }
    }
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed(folder))
}
