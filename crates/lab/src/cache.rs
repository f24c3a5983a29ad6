//! The cache of laboratories on this machine, and the locks in it.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use files::{Directory, Missing};
use rustix::fs::{FlockOperation, flock, statvfs};
use rustix::io::Errno;
use tempfile::TempDir;

use crate::error::Error;
use crate::progress::{OnProgress, Progress, Step};

/// The cache folder: `$XDG_CACHE_HOME/exitless/lab`, or below `~/.cache`.
#[derive(Debug, Clone)]
pub struct Cache {
    root: PathBuf,
    stop: Arc<AtomicBool>,
}

/// The folder of a run, removed when dropped. It stays locked until then, so that later runs recognise what a
/// killed run left behind.
#[derive(Debug)]
pub(crate) struct RunFolder {
    folder: TempDir,
    _lock: File,
}

impl RunFolder {
    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// A shared lock that keeps a folder of the cache from being removed while it is used, also by programs with
/// other recipes. Has no effect on a file system without locks.
#[derive(Debug, Clone)]
pub(crate) struct InUse {
    _lock: Option<Arc<File>>,
}

impl InUse {
    pub(crate) fn of(folder: &Path) -> Self {
        // Waits, because another process may hold the lock alone for the moment in which it asks
        // `is_of_others`.
        let shared = |file: &File| flock(file, FlockOperation::LockShared).is_ok();
        Self { _lock: File::open(folder).ok().filter(shared).map(Arc::new) }
    }

    pub(crate) fn is_of_others(folder: &Path) -> bool {
        let alone = |file: File| flock(&file, FlockOperation::NonBlockingLockExclusive);
        matches!(File::open(folder).map(alone), Ok(Err(Errno::WOULDBLOCK)))
    }
}

/// The prefix of folders that are being removed.
const REMOVED_PREFIX: &str = "removed-";
const RUN_LOCK: &str = "lock";

impl Cache {
    /// The user's cache; its directory is created if missing. It contains programs that are run, so a
    /// directory that others may write to is rejected, as sudo and ssh do with their files.
    ///
    /// # Errors
    /// [`Error::CachePlace`].
    pub fn of_user() -> Result<Self, Error> {
        Self::checked(Path::new("/"), &files::user_cache().join("exitless/lab"))
    }

    /// The cache at a folder below `start`, which is assumed to be safe.
    fn checked(start: &Path, root: &Path) -> Result<Self, Error> {
        match Directory::trusted(start, root, Missing::Made(0o700)) {
            Ok(directory) => Ok(Self::at(directory.path())),
            // A missing directory holds nothing unsafe. The error of creating it comes when somebody needs
            // it.
            Err(files::Error::Open { .. }) => Ok(Self::at(root)),
            Err(refused) => Err(Error::CachePlace(refused)),
        }
    }

    /// A cache at a given folder.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), stop: Arc::default() }
    }

    /// The cache, with a flag that ends its builds.
    #[must_use]
    pub fn stopped_by(self, stop: Arc<AtomicBool>) -> Self {
        Self { stop, ..self }
    }

    /// The flag that a signal handler sets to end a build.
    pub(crate) fn stop(&self) -> &Arc<AtomicBool> {
        &self.stop
    }

    /// The cache's folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn packages(&self) -> PathBuf {
        self.root.join("packages")
    }

    /// Removes the folders of other recipes, except those that are in use. Only other versions of this
    /// program could use them again.
    pub(crate) fn remove_others(&self, prefix: &str, kept: &Path) {
        let entries = fs::read_dir(&self.root).into_iter().flatten().filter_map(Result::ok);
        let is_image = |name: &std::ffi::OsStr| name.to_string_lossy().starts_with(prefix);
        let others = entries.filter(|entry| is_image(&entry.file_name()) && entry.path() != kept);
        for other in others {
            if InUse::is_of_others(&other.path()) {
                tracing::debug!(folder = %other.path().display(), "another program uses it");
                continue;
            }
            if let Err(error) = self.discard(&other.path()) {
                tracing::warn!("{}", error.with_causes());
            }
        }
    }

    /// Removes a folder in the background, because deleting thousands of files can take a minute. Renames it
    /// first, so that it is gone at once; if the machine stops meanwhile, the next removal deletes the rest.
    pub(crate) fn discard(&self, folder: &Path) -> Result<(), Error> {
        self.move_away(folder)?;
        let mut rm = std::process::Command::new("rm");
        rm.args(["-rf", "--"]).args(self.moved_away()).stdin(std::process::Stdio::null());
        let mut rm = rm.spawn().map_err(Error::file("Could not start", "rm"))?;
        // A study discards many folders, and each `rm` that nobody waits for would stay as a zombie.
        std::thread::spawn(move || rm.wait());
        Ok(())
    }

    /// Renames a folder, if it exists, to one that is being removed.
    fn move_away(&self, folder: &Path) -> Result<(), Error> {
        let away = tempfile::Builder::new()
            .prefix(REMOVED_PREFIX)
            .tempdir_in(&self.root)
            .map_err(Error::file("Could not make a folder in", &self.root))?
            .keep();
        // Replaces the empty folder. Another process may have removed that meanwhile, so nothing may be moved
        // into it: an error that it is missing would look like one that `folder` is.
        match fs::rename(folder, &away) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::file("Could not remove", folder)(error))
            }
            _ => Ok(()),
        }
    }

    fn moved_away(&self) -> impl Iterator<Item = PathBuf> {
        let entries = fs::read_dir(&self.root).into_iter().flatten().filter_map(Result::ok);
        entries
            .filter(|entry| entry.file_name().to_string_lossy().starts_with(REMOVED_PREFIX))
            .map(|entry| entry.path())
    }

    pub(crate) fn snapshots(&self) -> PathBuf {
        self.root.join("snapshots")
    }

    pub(crate) fn verdicts(&self) -> PathBuf {
        self.root.join("self-tests")
    }

    /// Waits for the lock that allows only one build at a time.
    pub(crate) fn lock_building(&self, on_progress: OnProgress<'_>) -> Result<File, Error> {
        self.lock("building.lock", on_progress)
    }

    /// Waits for the lock file with this name.
    pub(crate) fn lock(&self, name: &str, on_progress: OnProgress<'_>) -> Result<File, Error> {
        let path = self.root.join(name);
        wait_for_lock(&path, FlockOperation::NonBlockingLockExclusive, &self.stop, &mut || {
            on_progress(Progress { step: Step::Waiting, done: 0, total: 0 });
        })
    }

    fn runs(&self) -> PathBuf {
        self.root.join("runs")
    }

    /// Serializes the creation and cleanup of run folders, so that no folder is removed after its creation
    /// and before it is locked.
    fn lock_runs(&self) -> Result<File, Error> {
        let path = self.root.join("runs.lock");
        wait_for_lock(&path, FlockOperation::NonBlockingLockExclusive, &self.stop, &mut || ())
    }

    /// Removes the whole cache, unless a run or another program uses a part of it. The caller must hold the
    /// locks of builds.
    ///
    /// # Errors
    /// [`Error::Running`], and if a file cannot be removed.
    pub(crate) fn remove(&self) -> Result<(), Error> {
        let _alone = self.lock_runs()?;
        let runs = folders(&self.runs()).any(|folder| !is_unlocked(&folder));
        if runs || folders(&self.root).any(|folder| folder.is_dir() && InUse::is_of_others(&folder)) {
            return Err(Error::Running);
        }
        fs::remove_dir_all(&self.root).map_err(Error::file("Could not remove", &self.root))
    }

    /// Makes a folder for a run, after removing those of killed processes.
    pub(crate) fn run_folder(&self) -> Result<RunFolder, Error> {
        let _alone = self.lock_runs()?;
        let runs = self.runs();
        fs::create_dir_all(&runs).map_err(Error::file("Could not make the folder for runs", &runs))?;
        for leftover in folders(&runs).filter(|folder| is_unlocked(folder)) {
            tracing::debug!(folder = %leftover.display(), "removing what a killed run left behind");
            let _ = fs::remove_dir_all(leftover);
        }
        let folder = tempfile::Builder::new()
            .prefix("run-")
            .tempdir_in(&runs)
            .map_err(Error::file("Could not make a folder for the run in", &runs))?;
        let path = folder.path().join(RUN_LOCK);
        let lock = File::create(&path).map_err(Error::file("Could not make the lock", &path))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(std::io::Error::from)
            .map_err(Error::file("Could not lock", &path))?;
        Ok(RunFolder { folder, _lock: lock })
    }

    /// Fails if less than `needed_mib` MiB are free.
    pub(crate) fn require_space(&self, needed_mib: u64) -> Result<(), Error> {
        fs::create_dir_all(&self.root).map_err(Error::file("Could not make the cache folder", &self.root))?;
        let free_mib = free_mib(&self.root)?;
        if free_mib < needed_mib {
            return Err(Error::NoSpace { path: self.root.clone(), free_mib, needed_mib });
        }
        Ok(())
    }
}

/// The free space of a folder's file system, in MiB.
pub(crate) fn free_mib(folder: &Path) -> Result<u64, Error> {
    let status = statvfs(folder)
        .map_err(std::io::Error::from)
        .map_err(Error::file("Could not ask for the free space of", folder))?;
    Ok(status.f_bavail.saturating_mul(status.f_frsize) >> 20)
}

fn folders(runs: &Path) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(runs).into_iter().flatten().filter_map(Result::ok).map(|entry| entry.path())
}

/// Tests whether no process holds a run's lock.
fn is_unlocked(folder: &Path) -> bool {
    match open_lock(&folder.join(RUN_LOCK), false) {
        Ok(lock) => flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok(),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    }
}

/// Waits for a lock, creating its file and folder if missing. Polls, because a blocking wait in the kernel
/// would not see `stop`. Calls `on_wait` once if another process holds the lock.
pub(crate) fn wait_for_lock(
    path: &Path,
    operation: FlockOperation,
    stop: &AtomicBool,
    on_wait: &mut dyn FnMut(),
) -> Result<File, Error> {
    const LONGEST_PAUSE: Duration = Duration::from_millis(20);
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(file) = try_lock(path, operation)? {
            return Ok(file);
        }
        if stop.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        if pause < LONGEST_PAUSE {
            pause *= 2;
            if pause >= LONGEST_PAUSE {
                on_wait();
            }
        }
        std::thread::sleep(pause.min(LONGEST_PAUSE));
    }
}

/// Takes a lock; `None` if another process holds it or removed its file in between.
pub(crate) fn try_lock(path: &Path, operation: FlockOperation) -> Result<Option<File>, Error> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(Error::file("Could not make", folder))?;
    }
    let file = open_lock(path, true).map_err(Error::file("Could not open the lock", path))?;
    lock_opened(file, path, operation)
}

/// Opens the file of a lock, for reading and writing: on NFS a shared lock needs the one, and an exclusive lock
/// the other (flock(2)).
fn open_lock(path: &Path, create: bool) -> std::io::Result<File> {
    File::options().read(true).write(true).create(create).truncate(false).open(path)
}

fn lock_opened(file: File, path: &Path, operation: FlockOperation) -> Result<Option<File>, Error> {
    match flock(&file, operation) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => return Ok(None),
        Err(error) => return Err(Error::file("Could not lock", path)(error.into())),
    }
    let links = file.metadata().map_err(Error::file("Could not look at", path))?.nlink();
    Ok((links > 0).then_some(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_killed_runs_folder_is_swept_and_a_living_ones_is_not() {
        let root = tempfile::tempdir().unwrap();
        let cache = Cache::at(root.path());
        let living = cache.run_folder().unwrap();
        let [killed, early] = ["killed", "early"].map(|name| root.path().join("runs").join(name));
        fs::create_dir(&killed).unwrap();
        fs::write(killed.join(RUN_LOCK), "").unwrap();
        // A process was killed before it could lock its folder.
        fs::create_dir(&early).unwrap();
        let next = cache.run_folder().unwrap();
        assert!(living.path().exists() && next.path().exists() && !killed.exists() && !early.exists());
        let path = living.path().to_owned();
        drop(living);
        assert!(!path.exists());
    }

    #[test]
    fn a_cache_is_not_removed_below_a_run_or_a_study() {
        let root = tempfile::tempdir().unwrap();
        let cache = Cache::at(root.path().join("lab"));
        let run = cache.run_folder().unwrap();
        let killed = cache.runs().join("killed");
        fs::create_dir(&killed).unwrap();
        assert!(matches!(cache.remove(), Err(Error::Running)) && run.path().join(RUN_LOCK).exists());
        drop(run);
        let guest = cache.root().join("guest-1");
        fs::create_dir(&guest).unwrap();
        let used = InUse::of(&guest);
        assert!(matches!(cache.remove(), Err(Error::Running)) && guest.exists());
        drop(used);
        cache.remove().unwrap();
        assert!(!cache.root().exists());
    }

    #[test]
    fn waiting_for_another_build_is_told_and_ends_with_an_interrupt() {
        let root = tempfile::tempdir().unwrap();
        let cache = Cache::at(root.path());
        let _other = cache.lock_building(&mut |_| panic!("nobody has it")).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let waiting = cache.clone().stopped_by(Arc::clone(&stop));
        let ended = waiting.lock_building(&mut |progress| {
            assert_eq!(progress.step, Step::Waiting);
            stop.store(true, Ordering::Relaxed);
        });
        assert!(matches!(ended, Err(Error::Interrupted)));
    }

    #[test]
    fn a_lock_whose_file_was_removed_meanwhile_is_no_lock() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("00.lock");
        let opened = File::create(&path).unwrap();
        fs::remove_file(&path).unwrap();
        assert!(lock_opened(opened, &path, FlockOperation::NonBlockingLockExclusive).unwrap().is_none());
        assert!(try_lock(&path, FlockOperation::NonBlockingLockExclusive).unwrap().is_some());
    }

    #[test]
    fn the_file_of_a_lock_is_open_for_both_kinds_of_locks() {
        use rustix::fs::fcntl_lock;
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("00.lock");
        let created = try_lock(&path, FlockOperation::NonBlockingLockShared).unwrap().unwrap();
        let existing = open_lock(&path, false).unwrap();
        for file in [created, existing] {
            // Locks of byte ranges have the conditions that flock(2) has on NFS only.
            for operation in [FlockOperation::NonBlockingLockShared, FlockOperation::NonBlockingLockExclusive]
            {
                fcntl_lock(&file, operation).unwrap();
            }
        }
    }

    #[test]
    fn what_a_program_uses_stays_when_another_recipe_is_built() {
        let root = tempfile::tempdir().unwrap();
        let cache = Cache::at(root.path());
        let [used, new] = ["image-1", "image-2"].map(|name| root.path().join(name));
        for folder in [&used, &new] {
            fs::create_dir(folder).unwrap();
        }
        let in_use = [InUse::of(&used), InUse::of(&used)];
        cache.remove_others("image-", &new);
        assert!(used.exists() && new.exists());
        drop(in_use);
        cache.remove_others("image-", &new);
        assert!(!used.exists() && new.exists());
    }

    #[test]
    fn a_folder_is_locked_though_another_process_asks_for_its_users() {
        let root = tempfile::tempdir().unwrap();
        let done = AtomicBool::new(false);
        let locked = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    InUse::is_of_others(root.path());
                }
            });
            let locked = (0..2000).all(|_| InUse::of(root.path())._lock.is_some());
            done.store(true, Ordering::Relaxed);
            locked
        });
        assert!(locked);
    }

    #[test]
    fn a_folder_is_discarded_while_another_process_removes_what_was() {
        let root = tempfile::tempdir().unwrap();
        let cache = Cache::at(root.path());
        let folder = root.path().join("image-1");
        let done = AtomicBool::new(false);
        let gone = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    cache.moved_away().for_each(|leftover| drop(fs::remove_dir_all(leftover)));
                }
            });
            let gone = (0..1000).all(|_| {
                fs::create_dir(&folder).is_ok() && cache.move_away(&folder).is_ok() && !folder.exists()
            });
            done.store(true, Ordering::Relaxed);
            gone
        });
        assert!(gone);
    }

    #[test]
    fn a_folder_is_removed_by_a_program_that_leaves_no_zombie() {
        let root = tempfile::tempdir().unwrap();
        let cache = Cache::at(root.path());
        let folder = root.path().join("image-1");
        fs::create_dir(&folder).unwrap();
        cache.discard(&folder).unwrap();
        assert!(!folder.exists());
        // `rm` has ended when its folder is gone, or soon afterwards.
        let own = std::process::id();
        let remains = || {
            let processes = fs::read_dir("/proc").unwrap().flatten();
            let mut stats = processes.filter_map(|of| fs::read_to_string(of.path().join("stat")).ok());
            stats.any(|stat| {
                ["S", "R", "D", "Z"].iter().any(|state| stat.contains(&format!("(rm) {state} {own} ")))
            })
        };
        let begun = std::time::Instant::now();
        while cache.moved_away().count() > 0 || remains() {
            assert!(begun.elapsed() < Duration::from_secs(60), "a folder or a zombie remains");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn runs_that_begin_together_do_not_sweep_each_other() {
        let root = tempfile::tempdir().unwrap();
        let cache = Cache::at(root.path());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let run = cache.run_folder().unwrap();
                        assert!(run.path().join(RUN_LOCK).exists());
                    }
                });
            }
        });
    }

    #[test]
    fn a_cache_that_others_may_write_to_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;
        let root = tempfile::tempdir().unwrap();
        let home = root.path().join("home");
        let checked = || Cache::checked(root.path(), Path::new("/home/.cache/exitless/lab"));
        assert_eq!(checked().unwrap().root(), home.join(".cache/exitless/lab"));
        for planted in ["home/.cache/exitless/lab", "home/.cache", "home"] {
            let planted = root.path().join(planted);
            let mode = |mode| fs::set_permissions(&planted, fs::Permissions::from_mode(mode)).unwrap();
            mode(0o777);
            assert!(matches!(checked(), Err(Error::CachePlace(_))), "{}", planted.display());
            mode(0o700);
            checked().unwrap();
            if std::os::unix::fs::chown(&planted, Some(65_534), None).is_err() {
                println!("not tested: giving a directory to another user needs root");
                continue;
            }
            assert!(matches!(checked(), Err(Error::CachePlace(_))), "{}", planted.display());
            std::os::unix::fs::chown(&planted, Some(0), None).unwrap();
        }
    }

    #[test]
    fn too_little_space_is_refused_before_anything_is_written() {
        let root = tempfile::tempdir().unwrap();
        let refused = Cache::at(root.path()).require_space(u64::MAX >> 21).unwrap_err();
        assert!(matches!(refused, Error::NoSpace { .. }), "{refused}");
    }
}
