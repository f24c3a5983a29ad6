//! The process that made a change.

use crate::{Error, under};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;

/// A process, identified uniquely even if its ID is reused or the host reboots.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// The process ID.
    pub pid: i32,
    /// The start time, in clock ticks since boot (proc_pid_stat(5), field 22); 0 if there is no such process.
    pub start_ticks: u64,
    /// The boot in which it ran (`/proc/sys/kernel/random/boot_id`); empty if it cannot be read.
    pub boot: String,
}

impl Owner {
    /// This process, as the host below `root` sees it.
    ///
    /// # Errors
    /// [`Error::Access`] when its start cannot be read: it would count as ended.
    pub fn current(root: &Path) -> Result<Self, Error> {
        let pid = i32::try_from(std::process::id()).unwrap_or(i32::MAX);
        Ok(Self { pid, start_ticks: started(root, pid)?.unwrap_or(0), boot: boot(root) })
    }

    /// Tests whether a reboot has ended the process; false if a boot ID is unknown.
    pub(crate) fn rebooted(&self, root: &Path) -> bool {
        let now = boot(root);
        !now.is_empty() && !self.boot.is_empty() && self.boot != now
    }

    /// Tests whether the process still runs; true if that cannot be determined.
    #[must_use]
    pub fn alive(&self, root: &Path) -> bool {
        !self.rebooted(root)
            && start_ticks(root, self.pid).map_or(true, |found| found == Some(self.start_ticks))
    }
}

/// The present boot ID of the host below `root`; empty if it cannot be read.
pub(crate) fn boot(root: &Path) -> String {
    let text = std::fs::read_to_string(under(root, "/proc/sys/kernel/random/boot_id"));
    text.map(|text| text.trim().to_owned()).unwrap_or_default()
}

/// The size limit of a `stat` file; the longest have about 400 bytes.
const LONGEST_STAT: u64 = 4096;

/// The start time of a process or thread, in clock ticks since boot; `None` if there is none with this ID, or if it has ended
/// and its parent has not waited for it. A read error does not mean that it has ended: this process may have run out of
/// threads or descriptors.
fn start_ticks(root: &Path, pid: i32) -> io::Result<Option<u64>> {
    // By now the ID may belong to a process that blocks readers of its files.
    let read = files::look_into(&under(root, &format!("/proc/{pid}")), "stat", LONGEST_STAT);
    let bytes = match read {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let stat = String::from_utf8_lossy(&bytes);
    // The name, field 2, may contain blanks and parentheses; the last parenthesis ends it.
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let field = |number: usize| after_name.split_whitespace().nth(number - 3);
    let ticks = field(22).and_then(|ticks| ticks.parse().ok());
    let ticks = ticks.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "it has no start time"))?;
    // While other threads of it run, they may be making a change: only its first thread has ended.
    let is_zombie = matches!(field(3), Some("Z" | "X"));
    let has_threads = field(20).and_then(|number| number.parse().ok()).is_some_and(|number: u64| number > 1);
    Ok((!is_zombie || has_threads).then_some(ticks))
}

fn started(root: &Path, pid: i32) -> Result<Option<u64>, Error> {
    let path = || under(root, &format!("/proc/{pid}/stat"));
    start_ticks(root, pid).map_err(|source| Error::Access { doing: "read", path: path(), source })
}

/// Tests whether the thread with this ID is the one that started at `began`.
pub(crate) fn is_thread(root: &Path, tid: i32, began: u64) -> Result<bool, Error> {
    Ok(started(root, tid)? == Some(began))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_alive_and_one_of_another_start_or_boot_is_not() {
        let root = Path::new("/");
        let this = Owner::current(root).unwrap();
        assert!(this.start_ticks > 0);
        assert!(this.alive(root));
        assert!(!Owner { start_ticks: this.start_ticks + 1, ..this.clone() }.alive(root));
        assert!(!Owner { boot: "another".to_owned(), ..this }.alive(root));
    }

    #[test]
    fn a_process_that_nobody_has_waited_for_has_ended_with_its_last_thread() {
        let root = tempfile::tempdir().unwrap();
        let owner = Owner { pid: 7, start_ticks: 341, boot: String::new() };
        let stat = root.path().join("proc/7/stat");
        std::fs::create_dir_all(stat.parent().unwrap()).unwrap();
        for (state, threads, alive) in [("Z", 1, false), ("X", 0, false), ("Z", 2, true), ("S", 1, true)] {
            std::fs::write(&stat, format!("7 (x) {state}{} {threads} 0 341 9", " 0".repeat(16))).unwrap();
            assert_eq!(owner.alive(root.path()), alive, "{state} {threads}");
        }
    }

    #[test]
    fn a_process_of_which_nothing_can_be_read_has_not_ended() {
        let root = tempfile::tempdir().unwrap();
        let owner = Owner { pid: 7, start_ticks: 341, boot: String::new() };
        assert!(!owner.alive(root.path()) && !is_thread(root.path(), 7, 341).unwrap());
        let stat = root.path().join("proc/7/stat");
        std::fs::create_dir_all(stat.parent().unwrap()).unwrap();
        for unread in ["", "7 (cut"] {
            std::fs::write(&stat, unread).unwrap();
            assert!(owner.alive(root.path()), "{unread:?}");
            assert!(is_thread(root.path(), 7, 341).unwrap_err().to_string().contains("proc/7/stat"));
        }
        std::fs::remove_file(&stat).unwrap();
        std::fs::create_dir(&stat).unwrap();
        assert!(owner.alive(root.path()) && is_thread(root.path(), 7, 341).is_err());
    }
}
