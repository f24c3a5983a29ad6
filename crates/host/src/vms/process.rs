//! One process below `/proc`.

use super::NamedThread;
use crate::facts::{read_text, under};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Ticks of the times in `/proc`: `USER_HZ`, which is 100 on every x86 kernel (include/asm-generic/param.h).
pub(super) const TICKS_PER_SECOND: u64 = 100;
/// A command line is cut beyond this; the longest of QEMU are some tens of KiB.
const LONGEST_ARGUMENTS: usize = 1 << 20;

/// What came of looking at something of a process.
pub(super) enum Listing<T> {
    Read(T),
    /// It is another user's.
    Denied,
    /// It ended.
    Gone,
}

pub(super) struct Process {
    home: PathBuf,
    pub(super) pid: i32,
}

impl Process {
    pub(super) fn new(root: &Path, pid: i32) -> Self {
        Self { home: under(root, &format!("/proc/{pid}")), pid }
    }

    /// The open descriptors with what they link to, by number ascending.
    pub(super) fn links(&self) -> Listing<Vec<(i32, PathBuf)>> {
        let home = self.home.join("fd");
        let entries = match fs::read_dir(&home) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::PermissionDenied => return Listing::Denied,
            Err(_) => return Listing::Gone,
        };
        let mut links = Vec::new();
        // A directory that can be opened but not listed is that of a process that changed its user meanwhile.
        for entry in entries {
            let Ok(entry) = entry else { return Listing::Denied };
            let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
            match (number, fs::read_link(entry.path())) {
                (Some(number), Ok(target)) => links.push((number, target)),
                (_, Err(error)) if error.kind() == ErrorKind::PermissionDenied => return Listing::Denied,
                _ => {}
            }
        }
        links.sort_unstable();
        Listing::Read(links)
    }

    pub(super) fn command(&self) -> Option<String> {
        text(&self.home.join("comm"))
    }

    /// The file that the process runs, without the kernel's note that it was removed since.
    pub(super) fn executable(&self) -> Option<String> {
        let target = fs::read_link(self.home.join("exe")).ok()?;
        let target = target.to_string_lossy();
        Some(target.strip_suffix(" (deleted)").unwrap_or(&target).to_owned())
    }

    pub(super) fn arguments(&self) -> Vec<String> {
        let mut bytes = fs::read(self.home.join("cmdline")).unwrap_or_default();
        bytes.truncate(LONGEST_ARGUMENTS);
        let mut arguments: Vec<String> =
            bytes.split(|byte| *byte == 0).map(|one| String::from_utf8_lossy(one).into_owned()).collect();
        // What follows the last NUL is nothing, or blanks of a process that wrote its title there.
        if arguments.last().is_some_and(|last| last.trim().is_empty()) {
            arguments.pop();
        }
        arguments
    }

    pub(super) fn start_ticks(&self) -> Option<u64> {
        start_ticks(&text(&self.home.join("stat"))?)
    }

    /// All threads, ascending. Everybody may see these.
    pub(super) fn threads(&self) -> Vec<NamedThread> {
        let Ok(entries) = fs::read_dir(self.home.join("task")) else { return Vec::new() };
        let named = |entry: fs::DirEntry| {
            let tid = entry.file_name().to_str()?.parse().ok()?;
            Some(NamedThread { tid, name: text(&entry.path().join("comm"))?, kernel: false })
        };
        let mut threads: Vec<_> = entries.flatten().filter_map(named).collect();
        threads.sort_unstable_by_key(|one| one.tid);
        threads
    }
}

fn text(path: &Path) -> Option<String> {
    let bytes = fs::read(path).ok()?;
    Some(String::from_utf8_lossy(&bytes).trim_end_matches('\n').to_owned())
}

/// Field 22. Field 2, the name, may have blanks and brackets itself; the last bracket ends it.
fn start_ticks(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(22 - 3)?.parse().ok()
}

/// When the host booted, in seconds since 1970.
pub(super) fn boot_time(root: &Path) -> Option<u64> {
    let stat = read_text(root, "/proc/stat", "a line `btime SECONDS`").ok()?;
    stat.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_does_not_shift_the_start() {
        let rest = "S 1 0 0 0 -1 4 5 6 7 8 9 10 11 12 20 0 6 0 341 796274688";
        assert_eq!(start_ticks(&format!("133 (a) b) (c) {rest}")), Some(341));
        assert_eq!(start_ticks("133 (cut) S 1 0"), None);
        assert_eq!(start_ticks(""), None);
    }
}
