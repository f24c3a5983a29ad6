//! Snapshots: machines that were booted once, until the agent waited for an order. Runs continue from there.
//!
//! A snapshot serves all runs of the same shape: the same agent program, emulator, images, CPUs, memory and
//! arguments. It is made when its shape is first requested, and evicted, least recently used first, when
//! space is needed.

use std::fs::{self, File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use rustix::fs::FlockOperation;
use serde::Serialize;
use serde_json::{Value, json};

use crate::cache::{Cache, try_lock};
use crate::definition::Lab;
use crate::error::Error;
use crate::recipe::key;
use crate::speed::Speed;
use crate::tree::{disk_usage, remove, take_place};

/// The total size to which snapshots are limited, in bytes.
const ROOM: u64 = 12 << 30;
/// The least free disk space for making a snapshot, in MiB.
const SPACE_TO_SAVE: u64 = 3000;
/// The pause between two looks at a snapshot that another process is making.
const PAUSE: Duration = Duration::from_millis(20);
/// The file that describes a snapshot: its shape, for people to read, and the sizes of its files.
const SHAPE: &str = "shape.json";
const FILES: &str = "files";
/// The file name extension of a snapshot under construction.
const MAKING: &str = "making";

/// Everything that a saved machine depends on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Shape {
    pub(crate) lab: &'static str,
    /// Identifies the file of the agent program: device, inode, size and time of change.
    pub(crate) agent: [u64; 4],
    /// Identifies the file of the agent program for nested guests, if it is another one.
    pub(crate) guest_agent: Option<[u64; 4]>,
    /// SHA-256 of the emulator.
    pub(crate) emulator: String,
    /// Digests of the manifests of its images, including the guest image: a saved machine does not work with
    /// other disks, kernels or firmware.
    pub(crate) images: Vec<String>,
    pub(crate) cpus: u16,
    pub(crate) speed: Speed,
    pub(crate) memory_mib: u64,
    pub(crate) with_disk: bool,
    /// The names of the devices for assignment, in the order of their ports.
    pub(crate) devices: Vec<&'static str>,
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

/// Identifies this program's file.
pub(crate) fn agent_identity() -> Result<[u64; 4], Error> {
    let path = Path::new("/proc/self/exe");
    path.metadata().map(|metadata| identity(&metadata)).map_err(Error::file("Could not look at", path))
}

/// Identifies a file and its state: device, inode, size and time of change.
pub(crate) fn identity(metadata: &Metadata) -> [u64; 4] {
    let changed = metadata.mtime().unsigned_abs().wrapping_mul(1_000_000_000);
    [
        metadata.dev(),
        metadata.ino(),
        metadata.len(),
        changed.wrapping_add(metadata.mtime_nsec().unsigned_abs()),
    ]
}

/// A saved machine, locked against removal while this exists.
#[derive(Debug)]
pub(crate) struct Snapshot {
    folder: PathBuf,
    _in_use: File,
}

impl Snapshot {
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Finds the snapshot of a shape, or makes it with `save` in a folder. Waits if another process is making
    /// it, until `stop` is set.
    ///
    /// # Errors
    /// Those of `save`, [`Error::Interrupted`], and if the folder cannot be made or the disk is too small.
    pub(crate) fn find_or_make(
        cache: &Cache,
        shape: &Shape,
        stop: &AtomicBool,
        mut save: impl FnMut(&Path) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        let (all, key) = (cache.snapshots(), shape.key());
        fs::create_dir_all(&all).map_err(Error::file("Could not make the folder for snapshots", &all))?;
        let folder = all.join(&key);
        let lock = lock_of(&folder);
        loop {
            // Look in each turn, because who made the snapshot may then use it for hours.
            if let Some(in_use) = try_lock(&lock, FlockOperation::NonBlockingLockShared)?
                && used_now(&folder)
            {
                return Ok(Self { folder, _in_use: in_use });
            }
            let Some(alone) = try_lock(&lock, FlockOperation::NonBlockingLockExclusive)? else {
                if stop.load(Ordering::Relaxed) {
                    return Err(Error::Interrupted);
                }
                std::thread::sleep(PAUSE);
                continue;
            };
            // Another process may have made it while this one waited for the lock. A folder without a shape
            // is incomplete.
            if !used_now(&folder) {
                remove(&folder)?;
                make_room(&all, ROOM);
                make_space(cache, SPACE_TO_SAVE)?;
                let work = folder.with_extension(MAKING);
                remove(&work)?;
                fs::create_dir(&work).map_err(Error::file("Could not make", &work))?;
                match save(&work).and_then(|()| describe(&work, shape)) {
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

    /// Removes a snapshot that does not work, unless others are using it.
    pub(crate) fn discard(self) {
        let Self { folder, _in_use } = self;
        drop(_in_use);
        remove_unused(&folder);
    }
}

/// The disk space that a laboratory's snapshots take, in bytes.
pub fn snapshots_size(cache: &Cache, lab: &Lab) -> u64 {
    let folders = fs::read_dir(cache.snapshots()).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_of_lab = |folder: &PathBuf| {
        // Earlier versions wrote only the shape.
        description(folder).is_some_and(|of| of.get("shape").unwrap_or(&of)["lab"] == lab.name)
    };
    folders.filter(is_of_lab).map(|folder| disk_usage(&folder)).sum()
}

fn lock_of(folder: &Path) -> PathBuf {
    folder.with_extension("lock")
}

/// If less than `needed_mib` MiB are free, removes all unused snapshots, provided that this frees enough.
fn make_space(cache: &Cache, needed_mib: u64) -> Result<(), Error> {
    let all = cache.snapshots();
    let require = |needed| {
        cache.require_space(needed).map_err(|error| match error {
            Error::NoSpace { path, free_mib, .. } => Error::NoSpaceToSave { path, free_mib, needed_mib },
            error => error,
        })
    };
    if require(needed_mib).is_ok() {
        return Ok(());
    }
    require(needed_mib.saturating_sub(removable(&all) >> 20))?;
    make_room(&all, 0);
    require(needed_mib)
}

/// Marks a snapshot as complete, by writing its shape and the sizes of its files.
fn describe(folder: &Path, shape: &Shape) -> Result<(), Error> {
    let mut files = serde_json::Map::new();
    for entry in fs::read_dir(folder).map_err(Error::file("Could not read", folder))?.flatten() {
        let size = entry.metadata().map_err(Error::file("Could not look at", entry.path()))?.len();
        files.insert(entry.file_name().to_string_lossy().into_owned(), size.into());
    }
    let text = json!({ "shape": shape, FILES: files });
    let path = folder.join(SHAPE);
    fs::write(&path, format!("{text:#}")).map_err(Error::file("Could not write", path))
}

/// Reads what [`describe`] wrote.
fn description(folder: &Path) -> Option<Value> {
    serde_json::from_slice(&fs::read(folder.join(SHAPE)).ok()?).ok()
}

/// Tests whether the files have the sizes that [`describe`] wrote: after a power failure they may be shorter.
fn has_its_files(folder: &Path) -> bool {
    let has_size = |(name, size): (&String, &Value)| {
        folder.join(name).metadata().is_ok_and(|about| Some(about.len()) == size.as_u64())
    };
    description(folder)
        .is_some_and(|of| of[FILES].as_object().is_some_and(|files| files.iter().all(has_size)))
}

/// Records that a snapshot is being used. Returns false if it does not exist or is damaged.
fn used_now(folder: &Path) -> bool {
    let Ok(shape) = File::options().append(true).open(folder.join(SHAPE)) else { return false };
    if !has_its_files(folder) {
        return false;
    }
    // If this fails, the snapshot is merely evicted sooner.
    let _ = shape.set_modified(SystemTime::now());
    true
}

/// The size of the snapshots that no process is using, in bytes.
fn removable(all: &Path) -> u64 {
    let entries = fs::read_dir(all).into_iter().flatten().flatten();
    let unused = entries.map(|entry| entry.path()).filter(|path| path.is_dir()).filter(|folder| {
        matches!(try_lock(&lock_of(folder), FlockOperation::NonBlockingLockExclusive), Ok(Some(_)))
    });
    unused.map(|folder| disk_usage(&folder)).sum()
}

/// Removes what killed processes left behind; then the least recently used snapshots, until the rest takes at
/// most `room` bytes. Snapshots in use stay.
fn make_room(all: &Path, room: u64) {
    let entries = fs::read_dir(all).into_iter().flatten().flatten();
    let folders = entries.map(|entry| entry.path()).filter(|path| path.is_dir());
    let mut known: Vec<(SystemTime, PathBuf, u64)> = Vec::new();
    for folder in folders {
        let used = folder.join(SHAPE).metadata().and_then(|metadata| metadata.modified());
        match used {
            Ok(used) if folder.extension().is_none() => {
                let size = disk_usage(&folder);
                known.push((used, folder, size));
            }
            _ => drop(remove_unused(&folder)),
        }
    }
    known.sort();
    let mut taken: u64 = known.iter().map(|(_, _, size)| size).sum();
    for (_, folder, size) in known {
        if taken <= room {
            break;
        }
        if remove_unused(&folder) {
            taken -= size;
        }
    }
}

/// Removes a snapshot or the rest of one, with its lock file, unless a process holds the lock.
fn remove_unused(folder: &Path) -> bool {
    let lock = lock_of(folder);
    let Ok(Some(_alone)) = try_lock(&lock, FlockOperation::NonBlockingLockExclusive) else { return false };
    // Remove the shape first, because it marks a snapshot as complete: if this process is killed here, the
    // rest must not be taken for one.
    let _ = fs::remove_file(folder.join(SHAPE));
    if let Err(error) = remove(folder) {
        tracing::warn!("{}", error.with_causes());
        return false;
    }
    // A process that waits for this lock notices that its file is gone, and creates a new one.
    let _ = fs::remove_file(lock);
    true
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::definition::{LABS, Lab};

    static NEVER: AtomicBool = AtomicBool::new(false);

    pub(crate) fn shape(cpus: u16) -> Shape {
        Shape {
            lab: "amd-svm",
            agent: [1, 2, 3, 4],
            guest_agent: None,
            emulator: "00".to_owned(),
            images: Vec::new(),
            cpus,
            speed: Speed::of(Lab::find("amd-svm").unwrap(), None).unwrap(),
            memory_mib: 512,
            with_disk: false,
            devices: Vec::new(),
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
            Snapshot::find_or_make(&cache, &shape(cpus), &NEVER, |folder| {
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
        // Another agent program for nested guests, and the same one after a rebuild.
        let with_agent = |changed| Shape { guest_agent: Some([1, 2, 3, changed]), ..shape(2) }.key();
        assert_eq!(with_agent(4), with_agent(4));
        assert_ne!(with_agent(4), with_agent(5));
        assert_ne!(with_agent(4), shape(2).key());
    }

    #[test]
    fn a_snapshot_that_lost_bytes_is_made_again() {
        let root = tempfile::tempdir().unwrap();
        let cache = Cache::at(root.path());
        let saves = Cell::new(0);
        let open = || {
            let save = |folder: &Path| {
                saves.set(saves.get() + 1);
                fs::write(folder.join("state"), b"saved").unwrap();
                Ok(())
            };
            Snapshot::find_or_make(&cache, &shape(2), &NEVER, save).unwrap().folder().to_owned()
        };
        let folder = open();
        for (file, saved) in [(SHAPE, 2), ("state", 3)] {
            fs::write(folder.join(file), "").unwrap();
            open();
            assert_eq!((saves.get(), fs::read(folder.join("state")).unwrap()), (saved, b"saved".to_vec()));
        }
        open();
        assert_eq!(saves.get(), 3);
    }

    #[test]
    fn without_enough_to_remove_nothing_is_removed() {
        let root = tempfile::tempdir().unwrap();
        let cache = Cache::at(root.path());
        let save = |folder: &Path| {
            fs::write(folder.join("memory"), vec![1; 2 << 20]).unwrap();
            Ok(())
        };
        let made = Snapshot::find_or_make(&cache, &shape(2), &NEVER, save).unwrap();
        let folder = made.folder().to_owned();
        assert_eq!(removable(&cache.snapshots()), 0);
        drop(made);
        assert_eq!(removable(&cache.snapshots()) >> 20, 2);
        let message = make_space(&cache, u64::MAX >> 21).unwrap_err().to_string();
        assert!(message.contains("--boot") && folder.exists(), "{message}");
    }

    #[test]
    fn a_save_that_failed_leaves_nothing_and_is_made_again() {
        let root = tempfile::tempdir().unwrap();
        let cache = Cache::at(root.path());
        let failed = Snapshot::find_or_make(&cache, &shape(2), &NEVER, |folder| {
            fs::write(folder.join("memory"), b"half").unwrap();
            Err(Error::Interrupted)
        });
        assert!(matches!(failed, Err(Error::Interrupted)));
        let made = Snapshot::find_or_make(&cache, &shape(2), &NEVER, |_| Ok(())).unwrap();
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
            Snapshot::find_or_make(&cache, &shape(cpus), &NEVER, save).unwrap()
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

    #[test]
    fn what_killed_processes_left_is_removed_and_made_again() {
        let root = tempfile::tempdir().unwrap();
        let cache = Cache::at(root.path());
        let all = cache.snapshots();
        // A snapshot that was half removed, one half made for a shape that is never requested again, and one
        // half made by a running process.
        let (rest, dead, living) = (all.join(shape(2).key()), all.join("00.making"), all.join("01.making"));
        for folder in [&rest, &dead, &living] {
            fs::create_dir_all(folder).unwrap();
            fs::write(folder.join("memory"), b"half").unwrap();
        }
        let _held = try_lock(&lock_of(&living), FlockOperation::NonBlockingLockExclusive).unwrap().unwrap();
        let made = Snapshot::find_or_make(&cache, &shape(2), &NEVER, |_| Ok(())).unwrap();
        assert!(!made.folder().join("memory").exists() && !dead.exists() && living.exists());
        assert!(!lock_of(&dead).exists());
    }

    #[test]
    fn waiting_for_another_process_ends_with_an_interrupt() {
        let root = tempfile::tempdir().unwrap();
        let cache = Cache::at(root.path());
        let lock = lock_of(&cache.snapshots().join(shape(2).key()));
        let _other = try_lock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap().unwrap();
        let waited = Snapshot::find_or_make(&cache, &shape(2), &AtomicBool::new(true), |_| Ok(()));
        assert!(matches!(waited, Err(Error::Interrupted)));
    }

    #[test]
    fn of_two_that_find_none_one_makes_it_and_the_other_does_not_wait_until_it_is_unused() {
        let root = tempfile::tempdir().unwrap();
        let cache = Cache::at(root.path());
        let lock = lock_of(&cache.snapshots().join(shape(2).key()));
        // Both look for the snapshot and wait to make it.
        let both_wait = try_lock(&lock, FlockOperation::NonBlockingLockShared).unwrap().unwrap();
        let (made, kept) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                let (made, cache) = (made.clone(), &cache);
                scope.spawn(move || {
                    made.send(Snapshot::find_or_make(cache, &shape(2), &NEVER, |_| Ok(())).unwrap()).unwrap();
                });
            }
            std::thread::sleep(PAUSE * 5);
            drop(both_wait);
            let [_first, _second] = [(); 2].map(|()| kept.recv_timeout(Duration::from_secs(60)).unwrap());
        });
    }

    #[test]
    fn snapshots_of_earlier_versions_are_counted() {
        let root = tempfile::tempdir().unwrap();
        let cache = Cache::at(root.path());
        let folder = cache.snapshots().join("older");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(SHAPE), shape(2).text()).unwrap();
        assert!(snapshots_size(&cache, Lab::find("amd-svm").unwrap()) > 0);
    }

    #[test]
    fn a_discarded_snapshot_goes_with_its_lock() {
        let root = tempfile::tempdir().unwrap();
        let cache = Cache::at(root.path());
        let made = Snapshot::find_or_make(&cache, &shape(2), &NEVER, |_| Ok(())).unwrap();
        let sized = |name| snapshots_size(&cache, LABS.iter().find(|lab| lab.name == name).unwrap());
        assert!(sized("amd-svm") > 0);
        assert_eq!(sized("intel-apicv"), 0);
        let folder = made.folder().to_owned();
        made.discard();
        assert!(!folder.exists() && !lock_of(&folder).exists());
    }
}
