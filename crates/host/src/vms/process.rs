//! One process below `/proc`.

use crate::Root;
use crate::thread_id::stat_field;
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// The clock ticks per second in `/proc`: `USER_HZ`, which is 100 on every x86 kernel
/// (include/asm-generic/param.h).
pub(super) const TICKS_PER_SECOND: u64 = 100;
/// The limit of a command line, in bytes; QEMU's longest ones have tens of KiB.
const LONGEST_ARGUMENTS: usize = 1 << 20;
/// The limit of the number of arguments, each of which takes 24 bytes even if it is empty.
const MOST_ARGUMENTS: usize = 16_384;
/// The flag of kernel threads (include/linux/sched.h).
const PF_KTHREAD: u64 = 0x0020_0000;
/// `ESRCH`: the process ended during the examination.
const NO_SUCH_PROCESS: i32 = 3;

/// A thread and its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedThread {
    /// The thread.
    pub tid: i32,
    /// Its name; for an I/O thread that of QEMU's object.
    pub name: String,
    /// True for a kernel thread outside the process, as vhost workers were before Linux 6.4.
    pub kernel: bool,
}

/// The result of listing something of a process.
pub(super) enum Listing<T> {
    Read(T),
    /// It belongs to another user.
    Denied,
    /// It blocks readers of its files.
    Held,
    /// It ended.
    Gone,
}

pub(super) struct Process<'a> {
    root: &'a Root,
    home: String,
    pub(super) pid: i32,
    /// True if a read of one of its files was blocked.
    held: Cell<bool>,
}

impl<'a> Process<'a> {
    pub(super) fn new(root: &'a Root, pid: i32) -> Self {
        Self { root, home: format!("/proc/{pid}"), pid, held: Cell::new(false) }
    }

    /// Tests whether something could not be read because the process blocks its readers.
    pub(super) fn is_held(&self) -> bool {
        self.held.get()
    }

    fn noting<T>(&self, found: io::Result<T>) -> io::Result<T> {
        if found.as_ref().is_err_and(|error| error.kind() == ErrorKind::TimedOut) {
            self.held.set(true);
        }
        found
    }

    /// The open descriptors with the link targets that `wanted` selects, by number ascending.
    pub(super) fn links(&self, wanted: fn(&Path) -> bool) -> Listing<Vec<(i32, PathBuf)>> {
        let home = format!("{}/fd", self.home);
        // A directory that can be opened but not listed: the process has changed its user.
        let found = match self.noting(self.root.links(&home, wanted)) {
            Ok(found) => found,
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Listing::Gone;
            }
            Err(error) if error.raw_os_error() == Some(NO_SUCH_PROCESS) => return Listing::Gone,
            Err(error) if error.kind() == ErrorKind::TimedOut => return Listing::Held,
            Err(_) => return Listing::Denied,
        };
        let numbered = |(name, target): (String, PathBuf)| Some((name.parse::<i32>().ok()?, target));
        let mut links: Vec<_> = found.into_iter().filter_map(numbered).collect();
        links.sort_unstable();
        Listing::Read(links)
    }

    /// Removes the threads and their names from the record, but not the fact that the process cannot be
    /// examined.
    pub(super) fn forget_threads(&self) {
        for below in ["task", "comm", "cmdline"] {
            self.root.forget(&format!("{}/{below}", self.home));
        }
    }

    /// Removes the process from the record.
    pub(super) fn forget(&self) {
        self.root.forget(&self.home);
    }

    pub(super) fn command(&self) -> Option<String> {
        self.text("comm")
    }

    /// The executable of the process, without the kernel's note that it was deleted.
    pub(super) fn executable(&self) -> Option<String> {
        let target = self.noting(self.root.link(&format!("{}/exe", self.home))).ok()?;
        let target = target.to_string_lossy();
        Some(target.strip_suffix(" (deleted)").unwrap_or(&target).to_owned())
    }

    pub(super) fn arguments(&self) -> Vec<String> {
        let mut bytes = self.noting(self.root.read(&format!("{}/cmdline", self.home))).unwrap_or_default();
        bytes.truncate(LONGEST_ARGUMENTS);
        let arguments = bytes.split(|byte| *byte == 0).take(MOST_ARGUMENTS);
        let mut arguments: Vec<String> =
            arguments.map(|one| String::from_utf8_lossy(one).into_owned()).collect();
        // After the last NUL there is nothing, or blanks if the process has overwritten its title.
        if arguments.last().is_some_and(|last| last.trim().is_empty()) {
            arguments.pop();
        }
        arguments
    }

    /// The lines of its control groups; empty if they cannot be read.
    pub(super) fn control_groups(&self) -> String {
        self.text("cgroup").unwrap_or_default()
    }

    pub(super) fn start_ticks(&self) -> Option<u64> {
        stat_field(&self.text("stat")?, 22)
    }

    /// Tests whether it is a kernel thread, by its flags. Those of users can lack a command line, too: they have ended, or
    /// have unmapped it.
    pub(super) fn is_kernel_thread(&self) -> bool {
        let flags = self.text("stat").and_then(|stat| stat_field::<u64>(&stat, 9));
        flags.is_some_and(|flags| flags & PF_KTHREAD != 0)
    }

    /// All threads, ascending. They are readable by everyone.
    pub(super) fn threads(&self) -> Vec<NamedThread> {
        let home = format!("{}/task", self.home);
        let named = |name: String| {
            let tid = name.parse().ok()?;
            Some(NamedThread { tid, name: self.text(&format!("task/{name}/comm"))?, kernel: false })
        };
        let names = self.root.entries(&home, super::is_number).unwrap_or_default();
        let mut threads: Vec<_> = names.into_iter().filter_map(named).collect();
        threads.sort_unstable_by_key(|one| one.tid);
        threads
    }

    fn text(&self, file: &str) -> Option<String> {
        let bytes = self.noting(self.root.read(&format!("{}/{file}", self.home))).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim_end_matches('\n').to_owned())
    }
}

/// The time of the host's boot, in seconds since 1970.
pub(super) fn boot_time(root: &Root) -> Option<u64> {
    let stat = root.text("/proc/stat", "a line `btime SECONDS`").ok()?;
    stat.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse().ok())
}
