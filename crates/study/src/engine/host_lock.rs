//! A lock of a host, so that no study measures the settings or the guests of another.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use exits::with_causes;
use files::{Directory, Missing};
use guests::GuestPlan;
use rustix::fs::{FlockOperation, OFlags, flock, major, minor};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::EngineError;
use crate::factor::Level;
use crate::forecast::all_guests;
use crate::plan::Plan;

/// The time limit for another study to end: one that was interrupted stops its guests and undoes its changes.
const PATIENCE: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(100);

/// The directory of root's locks. Not below `/run/exitless`, which belongs to the user of the I/O daemon.
const OF_ROOT: &str = "/run/exitless-studies";
/// The directory of another user's locks, below the cache directory. The runtime directory is removed at the end of the
/// user's last session (`pam_systemd(8)`), but a study may live longer.
const OF_USER: &str = "exitless/studies";

/// A lock of this host that is held while a study runs. A study that changes the host, or whose guests have names or
/// addresses that another study could use too, holds it exclusively; others share it.
///
/// Each user has a lock, because any user could keep a file locked that all can open. Usually only root changes hosts.
/// The kernel releases the lock however the process ends, because no program inherits the descriptor. The file stays: if
/// it were removed, two studies could each hold a lock of that name.
#[derive(Debug)]
pub struct HostLock {
    /// `None` if the lock's file cannot be used.
    file: Option<File>,
}

impl HostLock {
    /// Takes the lock for a plan. If another study holds it, passes a line about that to `tell` and waits. `None` if `stop`
    /// was set meanwhile.
    ///
    /// # Errors
    /// [`EngineError::OtherStudy`] if the other one did not end.
    pub fn take(
        plan: &Plan,
        stop: &AtomicBool,
        tell: &mut dyn FnMut(String),
    ) -> Result<Option<Self>, EngineError> {
        Self::take_below(&place_of_locks(), plan, stop, tell)
    }

    /// Takes the lock below `place` as [`Self::take`] does.
    pub(crate) fn take_below(
        place: &Path,
        plan: &Plan,
        stop: &AtomicBool,
        tell: &mut dyn FnMut(String),
    ) -> Result<Option<Self>, EngineError> {
        Self::take_in(place, is_alone(plan), PATIENCE, stop, tell)
    }

    pub(crate) fn take_in(
        place: &Path,
        alone: bool,
        patience: Duration,
        stop: &AtomicBool,
        tell: &mut dyn FnMut(String),
    ) -> Result<Option<Self>, EngineError> {
        let file = match open(place) {
            Ok(file) => file,
            Err(why) => return Ok(Some(Self::not_usable(alone, &why, tell))),
        };
        let operation = if alone {
            FlockOperation::NonBlockingLockExclusive
        } else {
            FlockOperation::NonBlockingLockShared
        };
        let began = Instant::now();
        let mut is_told = false;
        loop {
            match flock(&file, operation) {
                Ok(()) => return Ok(Some(Self { file: Some(file) })),
                Err(Errno::AGAIN) => {}
                Err(errno) => return Ok(Some(Self::not_usable(alone, &errno.to_string(), tell))),
            }
            if !is_told {
                is_told = true;
                let seconds = patience.as_secs();
                tell(format!("Waiting up to {seconds} s for another study on this host: {}", holder(&file)));
            }
            if stop.load(Ordering::Relaxed) {
                return Ok(None);
            }
            if began.elapsed() >= patience {
                return Err(EngineError::OtherStudy { holder: holder(&file) });
            }
            thread::sleep(PAUSE);
        }
    }

    /// Goes on without a lock. Only a study that would hold it exclusively reports that.
    fn not_usable(alone: bool, why: &str, tell: &mut dyn FnMut(String)) -> Self {
        if alone {
            tell(format!(
                "Other studies may disturb this one, because the lock for this host is not usable: {why}"
            ));
        }
        Self { file: None }
    }
}

impl Drop for HostLock {
    fn drop(&mut self) {
        // Closing the descriptor is not enough: a program that another thread starts just now has a copy until its
        // execve(2). If unlocking fails, the lock ends with the last copy.
        let _ = self.file.as_ref().map(|file| flock(file, FlockOperation::Unlock));
    }
}

/// The directory of the locks of this process's user.
pub(crate) fn place_of_locks() -> PathBuf {
    if geteuid().is_root() { PathBuf::from(OF_ROOT) } else { files::user_cache().join(OF_USER) }
}

/// Tests whether a plan changes its host, or has guests that another study could use too.
fn is_alone(plan: &Plan) -> bool {
    plan.factors.iter().flat_map(|factor| &factor.levels).any(Level::changes_host)
        || all_guests(plan).iter().any(GuestPlan::is_known_on_host)
}

/// Opens the lock's file. Its name has the host's, because hosts can share a home directory and its locks.
fn open(place: &Path) -> Result<File, String> {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host: String = host.chars().filter(char::is_ascii_alphanumeric).take(64).collect();
    let place = Directory::private(Path::new("/"), place, Missing::Made(0o700));
    let place = place.map_err(|error| with_causes(&error))?;
    // No lock of a study's server has such a name: there is a hyphen in it.
    let name = format!("host-{host}.lock");
    let file = place.open_file(&name, OFlags::RDWR | OFlags::CREATE, 0o600);
    file.map_err(|error| format!("{}: {error}", place.path().join(&name).display()))
}

/// The process that holds a lock, and its command line, as far as they can be found.
fn holder(lock: &File) -> String {
    let find = || {
        let about = lock.metadata().ok()?;
        holder_in(&fs::read_to_string("/proc/locks").ok()?, about.dev(), about.ino())
    };
    let Some(process) = find() else { return "a process that could not be found".to_owned() };
    let words = files::look_into(Path::new(&format!("/proc/{process}")), "cmdline", 300).unwrap_or_default();
    let words = String::from_utf8_lossy(&words).replace('\0', " ");
    match words.trim() {
        "" => format!("process {process}"),
        words => format!("process {process} ({})", exits::printable(words)),
    }
}

/// The first process that holds a lock of this file by flock(2), in the form of proc_locks(5). Files of other file systems
/// can have the same inode. It is the second choice, because on btrfs the device there is not that of stat(2).
fn holder_in(locks: &str, device: u64, inode: u64) -> Option<u32> {
    let device = format!("{:02x}:{:02x}", major(device), minor(device));
    let held = |line: &str| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let [_, "FLOCK", _, _, process, place, ..] = words[..] else { return None };
        let (on, found) = place.rsplit_once(':')?;
        let is_it = found.parse::<u64>().is_ok_and(|found| found == inode);
        is_it.then_some((on == device, process.parse::<u32>().ok()?))
    };
    let holders: Vec<(bool, u32)> = locks.lines().filter_map(held).collect();
    let holder = holders.iter().find(|(is_here, _)| *is_here).or(holders.first());
    holder.map(|(_, process)| *process)
}

#[cfg(test)]
mod tests {
    use super::*;

    static GO_ON: AtomicBool = AtomicBool::new(false);

    /// Takes a lock without waiting; with the lines that were told.
    fn take(place: &Path, alone: bool) -> (Result<Option<HostLock>, EngineError>, Vec<String>) {
        let mut told = Vec::new();
        let taken =
            HostLock::take_in(place, alone, Duration::ZERO, &GO_ON, &mut |line: String| told.push(line));
        (taken, told)
    }

    #[test]
    fn a_study_that_changes_the_host_is_alone_and_others_share_it() {
        let above = tempfile::tempdir().unwrap();
        let place = above.path().join("locks");
        let holds = |alone| matches!(take(&place, alone), (Ok(Some(HostLock { file: Some(_) })), _));
        let (first, told) = take(&place, false);
        assert!(first.unwrap().is_some() && told.is_empty(), "{told:?}");
        let (first, second) = (take(&place, false).0.unwrap(), take(&place, false).0.unwrap());
        assert!(!holds(true));
        drop((first, second));
        let alone = take(&place, true).0.unwrap();
        for other in [false, true] {
            let (refused, told) = take(&place, other);
            let error = refused.unwrap_err().to_string();
            let own = format!("process {} (", std::process::id());
            assert!(error.contains("Another study uses this host") && error.contains(&own), "{error}");
            assert!(told.len() == 1 && told[0].contains(&own), "{told:?}");
        }
        drop(alone);
        assert!(holds(true) && holds(false));
    }

    #[test]
    fn no_program_inherits_the_lock_of_a_process_that_is_killed() {
        let above = tempfile::tempdir().unwrap();
        let lock = take(&above.path().join("locks"), true).0.unwrap().unwrap();
        let flags = rustix::io::fcntl_getfd(lock.file.as_ref().unwrap()).unwrap();
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
    }

    #[test]
    fn who_waits_is_told_and_can_stop() {
        let above = tempfile::tempdir().unwrap();
        let place = above.path().join("locks");
        let _first = take(&place, true).0.unwrap();
        let mut told = Vec::new();
        let stop = AtomicBool::new(true);
        let second = HostLock::take_in(&place, false, PATIENCE, &stop, &mut |line| told.push(line));
        assert!(second.unwrap().is_none());
        assert!(told.len() == 1 && told[0].starts_with("Waiting up to 120 s for another study"), "{told:?}");
    }

    #[test]
    fn without_a_place_for_the_lock_the_study_goes_on_and_a_change_is_warned_of() {
        let place = tempfile::NamedTempFile::new().unwrap();
        for alone in [false, true] {
            let (taken, told) = take(place.path(), alone);
            assert!(matches!(taken, Ok(Some(HostLock { file: None }))));
            assert_eq!(told.len(), usize::from(alone), "{told:?}");
        }
    }

    #[test]
    fn the_holder_is_the_one_in_the_kernels_list() {
        let locks = "1: POSIX  ADVISORY  WRITE 7 00:19:500 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 8 00:19:5001 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 9 00:19:500 0 EOF\n\
                     3: -> FLOCK  ADVISORY  WRITE 10 00:2f:500 0 EOF\n\
                     4: FLOCK  ADVISORY  WRITE 11 00:2f:500 0 EOF\nodd\n";
        let holder = |minor, inode| holder_in(locks, rustix::fs::makedev(0, minor), inode);
        assert_eq!((holder(0x2f, 500), holder(0x19, 500), holder(0x2f, 1)), (Some(11), Some(9), None));
        // A device of btrfs.
        assert_eq!(holder(0x30, 500), Some(9));
    }

    #[test]
    fn plans_that_change_the_host_or_name_their_guests_are_alone() {
        let small = include_str!("../plan/small.toml");
        let with = |old: &str, new: &str| is_alone(&Plan::read(&small.replace(old, new), "small").unwrap());
        let on = "name = \"on\"";
        let host = "kind = \"host\"";
        assert!(!with("", ""));
        assert!(with(on, "name = \"on\"\nfiles = { \"/sys/module/kvm/parameters/halt_poll_ns\" = 0 }"));
        assert!(with(on, "name = \"on\"\ncommands = [{ before = \"true\", after = \"true\" }]"));
        assert!(!with(host, "kind = \"qemu\"") && !with(host, "kind = \"qemu\"\nnet = {}"));
        assert!(with(host, "kind = \"qemu\"\nnet = { backend = \"tap\" }"));
        assert!(with(host, "kind = \"libvirt\"\ndomains = [\"a\", \"b\"]"));
        let of_level = small.replace(host, "kind = \"qemu\"");
        let of_level = of_level.replace(on, "name = \"on\"\nguests = { net = { backend = \"vhost\" } }");
        assert!(is_alone(&Plan::read(&of_level, "small").unwrap()));
    }
}
