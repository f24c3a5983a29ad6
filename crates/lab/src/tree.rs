//! Files and folders of the cache: writing, moving into place, measuring, removing.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use crate::error::Error;

/// Writes a file. Creates the folders above it if necessary.
pub(crate) fn write(path: &Path, contents: &[u8]) -> Result<(), Error> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(Error::file("Could not make", parent))?;
    }
    fs::write(path, contents).map_err(Error::file("Could not write", path))
}

pub(crate) fn copy(from: &Path, to: &Path) -> Result<(), Error> {
    fs::copy(from, to).map(drop).map_err(Error::file("Could not copy", from))
}

/// The largest file that [`take_place`] syncs, in bytes: manifests, states of machines and emulators are
/// smaller.
const SYNCED: u64 = 16 << 20;

/// Moves a finished folder to its place. Syncs the small files first, so that a power failure does not leave
/// empty ones. Syncing hundreds of MiB would take seconds, so a large file may still end up too short, or
/// full of zeros, as can the memory of a saved machine, whose size is set before its contents.
pub(crate) fn take_place(folder: &Path, place: &Path) -> Result<(), Error> {
    for entry in fs::read_dir(folder).map_err(Error::file("Could not read", folder))?.flatten() {
        if entry.metadata().is_ok_and(|about| about.is_file() && about.len() <= SYNCED) {
            let path = entry.path();
            File::open(&path)
                .and_then(|file| file.sync_all())
                .map_err(Error::file("Could not store", path))?;
        }
    }
    remove(place)?;
    fs::rename(folder, place).map_err(Error::file("Could not move the finished image to", place))
}

/// Creates folders and files that maintainer scripts of packages would create.
pub(crate) fn furnish(root: &Path, folders: &[&str], files: &[(&str, &str)]) -> Result<(), Error> {
    for folder in folders {
        let path = root.join(folder);
        fs::create_dir_all(&path).map_err(Error::file("Could not make", &path))?;
    }
    files.iter().try_for_each(|(path, contents)| write(&root.join(path), contents.as_bytes()))
}

/// Removes a folder if it exists.
pub(crate) fn remove(folder: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::file("Could not remove", folder)(error))
        }
        _ => Ok(()),
    }
}

/// SHA-256 of a file, in hexadecimal.
pub(crate) fn sha256(path: &Path) -> Result<String, Error> {
    let mut file = File::open(path).map_err(Error::file("Could not open", path))?;
    let mut hash = Sha256::new();
    let mut piece = vec![0; 1 << 20];
    loop {
        match file.read(&mut piece).map_err(Error::file("Could not read", path))? {
            0 => break,
            count => hash.update(&piece[..count]),
        }
    }
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The size of a file system's blocks in the disks of images, in bytes.
pub(crate) const BLOCK: u64 = 4096;

/// The space that a file or folder takes in blocks of [`BLOCK`] bytes, at least one for each entry. Unlike
/// [`disk_usage`], it does not depend on this machine's file system, which may compress the contents, or may not
/// have written them yet (ZFS). Does not follow links.
pub(crate) fn contents_size(path: &Path) -> u64 {
    let Ok(metadata) = path.symlink_metadata() else { return 0 };
    let own = metadata.len().max(1).next_multiple_of(BLOCK);
    if metadata.is_dir() { own + below(path).map(|entry| contents_size(&entry)).sum::<u64>() } else { own }
}

/// The disk space that a file or folder takes, in bytes. Does not follow links.
pub(crate) fn disk_usage(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let Ok(metadata) = path.symlink_metadata() else { return 0 };
    let own = metadata.blocks() * 512;
    if metadata.is_dir() { own + below(path).map(|entry| disk_usage(&entry)).sum::<u64>() } else { own }
}

/// The paths of a folder's entries.
fn below(folder: &Path) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok).map(|entry| entry.path())
}
