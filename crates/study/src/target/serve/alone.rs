//! A lock that allows one server of a study at a time.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use files::{Directory, Missing};
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, geteuid, pidfd_open, pidfd_send_signal};

use super::ServeError;
use crate::engine::place_of_locks;

/// The time limit for an earlier server to stop its guests.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(100);

/// This process's program.
const PROGRAM: &str = "/proc/self/exe";

/// A lock that is held while a study is served. Taking it ends a server that an earlier connection left behind.
pub(super) struct Alone {
    file: File,
    name: String,
    place: Directory,
}

impl Alone {
    pub(super) fn take(study: &str, stop: &AtomicBool) -> Result<Self, ServeError> {
        Self::take_in(&place_of_locks(), study, stop)
    }

    /// Takes the lock of a study below `place`, a private directory: root terminates the process whose ID is in a lock,
    /// so nobody else may write one.
    fn take_in(place: &Path, study: &str, stop: &AtomicBool) -> Result<Self, ServeError> {
        let plain: String = study.chars().filter(char::is_ascii_alphanumeric).take(64).collect();
        let name = format!("{plain}.lock");
        let place = Directory::private(Path::new("/"), place, Missing::Made(0o700))?;
        let path = place.path().join(&name);
        let failed = |source| ServeError::File { path: path.clone(), source };
        let began = Instant::now();
        let mut asked = false;
        loop {
            let file = place.open_file(&name, OFlags::RDWR | OFlags::CREATE, 0o600).map_err(failed)?;
            let locked = match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => true,
                Err(Errno::AGAIN) => false,
                Err(errno) => return Err(failed(errno.into())),
            };
            let found = file.metadata().map_err(failed)?;
            // Without links, the file was removed by a server that has just ended: open the next one.
            if found.nlink() != 0 {
                if found.uid() != geteuid().as_raw() || found.nlink() != 1 {
                    return Err(failed(std::io::Error::other("it has another name or owner; remove it")));
                }
                if locked {
                    let mut held = Self { file, name, place };
                    held.note().map_err(failed)?;
                    return Ok(held);
                }
                if !asked {
                    asked = end_holder(file, Path::new(PROGRAM));
                }
            }
            if began.elapsed() > PATIENCE || stop.load(Ordering::Relaxed) {
                return Err(ServeError::Busy);
            }
            thread::sleep(PAUSE);
        }
    }

    /// Writes this process's ID into the lock.
    fn note(&mut self) -> std::io::Result<()> {
        self.file.set_len(0)?;
        self.file.rewind()?;
        write!(self.file, "{}", std::process::id())
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        // Ignore errors: a remaining file is reused.
        let _ = self.place.remove(self.name.as_ref());
    }
}

/// Sends SIGTERM to the process whose ID is in a held lock, if it runs `program`. The ID may be that of an earlier
/// holder, if the current one has not written its own yet. Returns false if it sent nothing: the holder is about to write
/// its ID.
fn end_holder(lock: File, program: &Path) -> bool {
    let mut text = String::new();
    let read = lock.take(16).read_to_string(&mut text);
    let is_other = |&id: &u32| id > 1 && id != std::process::id();
    let Some(number) = read.ok().and_then(|_| text.trim().parse().ok()).filter(is_other) else {
        return false;
    };
    let Some(pid) = i32::try_from(number).ok().and_then(Pid::from_raw) else { return false };
    // A pidfd cannot hit another process that gets the same ID after the check.
    let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { return false };
    let file = |path: &Path| fs::metadata(path).map(|found| (found.dev(), found.ino())).ok();
    let runs = file(&PathBuf::from(format!("/proc/{number}/exe")));
    let is_server = runs.is_some() && runs == file(program);
    if is_server {
        tracing::info!("ending process {number}, which serves the same study for an earlier connection");
        let _ = pidfd_send_signal(&process, Signal::TERM);
    }
    is_server
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::{Child, Command};

    use super::*;

    static GO_ON: AtomicBool = AtomicBool::new(false);

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn lock(place: &Path) -> PathBuf {
        place.join("ab1.lock")
    }

    fn take(place: &Path) -> Result<Alone, ServeError> {
        Alone::take_in(place, "../ab1", &GO_ON)
    }

    /// A process that only a signal ends, to see whether SIGTERM did.
    struct Sleeper(Child);

    impl Sleeper {
        fn start() -> Self {
            Self(Command::new("sleep").arg("1000").spawn().unwrap())
        }

        /// The signal that ends it.
        fn signal(mut self) -> Option<i32> {
            self.0.wait().unwrap().signal()
        }
    }

    fn holding(place: &Path, text: &str) -> File {
        let path = place.join("lock");
        fs::write(&path, text).unwrap();
        File::open(path).unwrap()
    }

    #[test]
    fn a_study_is_served_once_and_its_lock_is_removed_at_the_end() {
        let above = tempfile::tempdir().unwrap();
        let place = above.path().join("locks");
        let first = take(&place).unwrap();
        assert_eq!(fs::read_to_string(lock(&place)).unwrap(), std::process::id().to_string());
        let other = Alone::take_in(&place, "other", &GO_ON).unwrap();
        let second = Alone::take_in(&place, "other", &AtomicBool::new(true));
        assert!(matches!(second, Err(ServeError::Busy)));
        drop((first, other));
        assert_eq!(fs::read_dir(&place).unwrap().count(), 0);
    }

    #[test]
    fn a_lock_waits_for_the_one_that_is_held_and_is_not_that_which_its_holder_removes() {
        let above = tempfile::tempdir().unwrap();
        let place = above.path().join("locks");
        let first = take(&place).unwrap();
        let ends = thread::spawn(move || {
            thread::sleep(3 * PAUSE);
            drop(first);
        });
        let second = take(&place).unwrap();
        ends.join().unwrap();
        assert_eq!(fs::read_to_string(lock(&place)).unwrap(), std::process::id().to_string());
        drop(second);
    }

    #[test]
    fn locks_that_others_could_have_made_are_refused() {
        let above = tempfile::tempdir().unwrap();
        let place = above.path().join("locks");
        drop(take(&place).unwrap());
        mode(&place, 0o777);
        assert!(matches!(take(&place), Err(ServeError::Place(files::Error::Mode { .. }))));
        mode(&place, 0o700);
        let target = above.path().join("target");
        fs::write(&target, "2").unwrap();
        symlink(&target, lock(&place)).unwrap();
        assert!(matches!(take(&place), Err(ServeError::File { .. })));
        fs::remove_file(lock(&place)).unwrap();
        fs::hard_link(&target, lock(&place)).unwrap();
        assert!(matches!(take(&place), Err(ServeError::File { .. })));
        assert_eq!(fs::read_to_string(&target).unwrap(), "2");
    }

    #[test]
    fn the_process_of_a_lock_is_ended_if_it_runs_this_program_and_no_other_process() {
        let place = tempfile::tempdir().unwrap();
        let mut sleeper = Sleeper::start();
        let id = sleeper.0.id();
        end_holder(holding(place.path(), &format!("{id}")), Path::new(PROGRAM));
        for text in ["-1", "0", "1", "", "4294967295", "x", &format!("-{id}")] {
            let asked = end_holder(holding(place.path(), text), &PathBuf::from(format!("/proc/{id}/exe")));
            assert!(!asked, "{text:?}");
        }
        // A signal that was sent by mistake ends it first.
        thread::sleep(Duration::from_millis(100));
        sleeper.0.kill().unwrap();
        assert_eq!(sleeper.signal(), Some(9));

        let sleeper = Sleeper::start();
        let id = sleeper.0.id();
        let asked =
            end_holder(holding(place.path(), &format!("{id}")), &PathBuf::from(format!("/proc/{id}/exe")));
        assert!(asked);
        assert_eq!(sleeper.signal(), Some(15));
    }
}
