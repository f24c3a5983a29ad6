//! Which process made a change.

use crate::under;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// A process, named once and for all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// Its number.
    pub pid: i32,
    /// When it started, in clock ticks since boot (proc_pid_stat(5), field 22); 0 when that cannot be read.
    pub start_ticks: u64,
    /// The boot in which it ran (`/proc/sys/kernel/random/boot_id`); empty when that cannot be read.
    pub boot: String,
}

impl Owner {
    /// This process, as the host below `root` sees it.
    #[must_use]
    pub fn current(root: &Path) -> Self {
        let pid = i32::try_from(std::process::id()).unwrap_or(i32::MAX);
        Self { pid, start_ticks: start_ticks(root, pid).unwrap_or(0), boot: boot(root) }
    }

    /// Tests whether a boot has ended it. One that cannot be told from this one has not.
    pub(crate) fn rebooted(&self, root: &Path) -> bool {
        let now = boot(root);
        !now.is_empty() && !self.boot.is_empty() && self.boot != now
    }

    /// Tests whether it still runs.
    #[must_use]
    pub fn alive(&self, root: &Path) -> bool {
        !self.rebooted(root) && start_ticks(root, self.pid).is_some_and(|ticks| ticks == self.start_ticks)
    }
}

/// The boot that the host below `root` is in; empty when that cannot be read.
pub(crate) fn boot(root: &Path) -> String {
    let text = std::fs::read_to_string(under(root, "/proc/sys/kernel/random/boot_id"));
    text.map(|text| text.trim().to_owned()).unwrap_or_default()
}

/// Bytes of a `stat`; the longest have some 400.
const LONGEST_STAT: u64 = 4096;

/// When a process or thread started, in clock ticks since boot.
pub(crate) fn start_ticks(root: &Path, pid: i32) -> Option<u64> {
    // The number may belong to a process by now that holds whoever looks.
    let bytes = files::look_into(&under(root, &format!("/proc/{pid}")), "stat", LONGEST_STAT).ok()?;
    let stat = String::from_utf8_lossy(&bytes);
    // The name, field 2, may hold blanks and brackets; the last bracket ends it.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(22 - 3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_alive_and_one_of_another_start_or_boot_is_not() {
        let root = Path::new("/");
        let this = Owner::current(root);
        assert!(this.start_ticks > 0);
        assert!(this.alive(root));
        assert!(!Owner { start_ticks: this.start_ticks + 1, ..this.clone() }.alive(root));
        assert!(!Owner { boot: "another".to_owned(), ..this }.alive(root));
    }
}
