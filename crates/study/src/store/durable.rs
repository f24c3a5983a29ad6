//! Files that are on the disk before their names are visible.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

use super::StoreError;

/// Writes a file completely or not at all.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<(), StoreError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let beside = path.with_file_name(format!(".writing-{name}"));
    let written = File::create(&beside).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    written.map_err(StoreError::file("Could not write", &beside))?;
    fs::rename(&beside, path).map_err(StoreError::file("Could not write", path))?;
    sync_parent(path)
}

/// Syncs a folder and all files below it to the disk. Links are not part of a run.
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

/// Syncs a file's directory entry to the disk.
pub(super) fn sync_parent(path: &Path) -> Result<(), StoreError> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let synced = File::open(parent).and_then(|folder| folder.sync_all());
    synced.map_err(StoreError::file("Could not sync to the disk", parent))
}
