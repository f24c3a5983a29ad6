//! Machines that were booted once, up to where their agent waits for an order, and are continued from there by each run.
//!
//! A snapshot serves all runs of one shape: the same program as agent, emulator, image, CPUs, memory and arguments. It is
//! made the first time that a shape is asked for, and removed when others have been used since and the room is needed.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::{FlockOperation, flock};
use serde::Serialize;

use crate::cache::{Cache, disk_usage};
use crate::error::Error;
use crate::recipe::key;
use crate::recorded::{remove, take_place};

/// Room for all snapshots together, in bytes.
const ROOM: u64 = 6 << 30;
/// Free room on the disk below which no snapshot is made, in MiB.
const SPACE_TO_SAVE: u64 = 3000;
/// The file that says what shape a snapshot has, for people.
const SHAPE: &str = "shape.json";

/// All that a saved machine depends on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Shape {
    pub(crate) lab: &'static str,
    /// The program that becomes the agent: device, inode, size and time of change.
    pub(crate) agent: [u64; 4],
    /// SHA-256 of the emulator.
    pub(crate) emulator: String,
    /// SHA-256 of the disks in its images.
    pub(crate) images: Vec<String>,
    pub(crate) cpus: u16,
    pub(crate) memory_mib: u64,
    pub(crate) with_disk: bool,
    pub(crate) guest_image: bool,
    pub(crate) kernel_arguments: String,
    pub(crate) hypervisor_arguments: String,
}

impl Shape {
    fn text(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    fn key(&self) -> String {
        key([self.text().as_str()].iter())
    }
}

/// What tells this program's file from others.
pub(crate) fn agent_identity() -> Result<[u64; 4], Error> {
    let path = Path::new("/proc/self/exe");
    let metadata = path.metadata().map_err(Error::file("Could not look at", path))?;
    let changed = metadata.mtime().unsigned_abs().wrapping_mul(1_000_000_000);
    Ok([
        metadata.dev(),
        metadata.ino(),
        metadata.len(),
        changed.wrapping_add(metadata.mtime_nsec().unsigned_abs()),
    ])
}

/// A saved machine. It is not removed while this lives.
#[derive(Debug)]
pub(crate) struct Snapshot {
    folder: PathBuf,
    _in_use: File,
}

impl Snapshot {
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The snapshot of a shape; `save` makes it in a folder if there is none.
    ///
    /// # Errors
    /// What `save` gives, and when the folder cannot be made or the disk is too small.
    pub(crate) fn find_or_make(
        cache: &Cache,
        shape: &Shape,
        save: impl Fn(&Path) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        let (all, key) = (cache.snapshots(), shape.key());
        fs::create_dir_all(&all).map_err(Error::file("Could not make the folder for snapshots", &all))?;
        let folder = all.join(&key);
        let lock = all.join(format!("{key}.lock"));
        let locked = |operation| {
            let file = File::create(&lock).map_err(Error::file("Could not open the lock", &lock))?;
            flock(&file, operation).map_err(io::Error::from).map_err(Error::file("Could not lock", &lock))?;
            Ok::<_, Error>(file)
        };
        loop {
            let in_use = locked(FlockOperation::LockShared)?;
            if used_now(&folder) {
                return Ok(Self { folder, _in_use: in_use });
            }
            drop(in_use);
            let alone = locked(FlockOperation::LockExclusive)?;
            // Another process may have made it while this one waited.
            if !folder.exists() {
                cache.require_space(SPACE_TO_SAVE)?;
                make_room(&all, ROOM);
                let work = all.join(format!("{key}.making"));
                remove(&work)?;
                fs::create_dir(&work).map_err(Error::file("Could not make", &work))?;
                let saved = save(&work).and_then(|()| {
                    let path = work.join(SHAPE);
                    fs::write(&path, shape.text()).map_err(Error::file("Could not write", path))
                });
                match saved {
                    Ok(()) => take_place(&work, &folder)?,
                    Err(error) => {
                        let _ = remove(&work);
                        return Err(error);
                    }
                }
            }
            drop(alone);
        }
    }
}

/// Notes that a snapshot is used, if it is there.
fn used_now(folder: &Path) -> bool {
    let Ok(shape) = File::options().append(true).open(folder.join(SHAPE)) else { return false };
    // Without the note it is only removed sooner.
    let _ = shape.set_modified(SystemTime::now());
    true
}

/// Removes the snapshots that were not used for longest, until the others take no more than `room` bytes. One that is in
/// use stays.
fn make_room(all: &Path, room: u64) {
    let entries = fs::read_dir(all).into_iter().flatten().flatten();
    let mut known: Vec<(SystemTime, PathBuf, u64)> = entries
        .filter_map(|entry| {
            let folder = entry.path();
            let used = folder.join(SHAPE).metadata().and_then(|metadata| metadata.modified()).ok()?;
            let size = disk_usage(&folder);
            Some((used, folder, size))
        })
        .collect();
    known.sort();
    let mut taken: u64 = known.iter().map(|(_, _, size)| size).sum();
    for (_, folder, size) in known {
        if taken <= room {
            break;
        }
        let Ok(lock) = File::create(folder.with_extension("lock")) else { continue };
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            continue;
        }
        match remove(&folder) {
            Ok(()) => taken -= size,
            Err(error) => tracing::warn!("{error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn shape(cpus: u16) -> Shape {
        Shape {
            lab: "amd-svm",
            agent: [1, 2, 3, 4],
            emulator: "00".to_owned(),
            images: Vec::new(),
            cpus,
            memory_mib: 512,
            with_disk: false,
            guest_image: false,
            kernel_arguments: String::new(),
            hypervisor_arguments: String::new(),
        }
    }

    #[test]
    fn a_shape_is_saved_once_and_another_shape_apart() {
        let root = tempfile::tempdir().unwrap();
        let cache = Cache::at(root.path());
        let saves = Cell::new(0);
        let open = |cpus| {
            Snapshot::find_or_make(&cache, &shape(cpus), |folder| {
                saves.set(saves.get() + 1);
                fs::write(folder.join("memory"), b"saved").unwrap();
                Ok(())
            })
            .unwrap()
        };
        let first = open(2);
        assert_eq!(fs::read(first.folder().join("memory")).unwrap(), b"saved");
        assert_eq!((open(2).folder(), saves.get()), (first.folder(), 1));
        assert_ne!(open(4).folder(), first.folder());
        assert_eq!(saves.get(), 2);
    }

    #[test]
    fn a_save_that_failed_leaves_nothing_and_is_made_again() {
        let root = tempfile::tempdir().unwrap();
        let cache = Cache::at(root.path());
        let failed = Snapshot::find_or_make(&cache, &shape(2), |folder| {
            fs::write(folder.join("memory"), b"half").unwrap();
            Err(Error::Interrupted)
        });
        assert!(matches!(failed, Err(Error::Interrupted)));
        let made = Snapshot::find_or_make(&cache, &shape(2), |_| Ok(())).unwrap();
        assert!(!made.folder().join("memory").exists());
    }

    #[test]
    fn what_was_not_used_for_longest_goes_first_and_what_is_in_use_stays() {
        let root = tempfile::tempdir().unwrap();
        let cache = Cache::at(root.path());
        let make = |cpus| {
            let save = |folder: &Path| {
                fs::write(folder.join("memory"), vec![1; 1 << 20]).unwrap();
                Ok(())
            };
            Snapshot::find_or_make(&cache, &shape(cpus), save).unwrap()
        };
        let (in_use, older, newer) = (make(1), make(2), make(3));
        let (in_use_folder, older_folder, newer_folder) =
            (in_use.folder().to_owned(), older.folder().to_owned(), newer.folder().to_owned());
        drop((older, newer));
        make_room(&cache.snapshots(), (2 << 20) + (512 << 10));
        assert!(in_use_folder.exists() && !older_folder.exists() && newer_folder.exists());
        make_room(&cache.snapshots(), 0);
        assert!(in_use_folder.exists() && !newer_folder.exists());
    }
}
