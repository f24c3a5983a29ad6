//! The IDs of threads, and the files of threads below a root directory.

use crate::Root;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::{fs, io};

/// A thread: the IDs of its process and of itself, which are equal for kernel threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadId {
    /// The process.
    pub pid: i32,
    /// The thread.
    pub tid: i32,
}

impl ThreadId {
    /// A file of the thread's directory in `/proc`; `None` for a thread that has ended.
    pub(crate) fn text(self, root: &Path, name: &str) -> Option<String> {
        let path = format!("/proc/{}/task/{}/{name}", self.pid, self.tid);
        let bytes = Root::directory(root).read(&path).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// A field of a process's or thread's `stat`, by its number in proc_pid_stat(5), from 3 on. Field 2, the name, may contain
/// blanks and parentheses; the last parenthesis ends it.
#[must_use]
pub fn stat_field<T: FromStr>(stat: &str, number: usize) -> Option<T> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(number.checked_sub(3)?)?.parse().ok()
}

/// The threads of a process on the host below `root`, ascending.
///
/// # Errors
/// That of reading `/proc/PID/task`, e.g. if the process has ended.
pub fn threads(root: &Path, pid: i32) -> io::Result<Vec<i32>> {
    let entries = fs::read_dir(root.join(format!("proc/{pid}/task")))?;
    let mut threads: Vec<i32> =
        entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    threads.sort_unstable();
    Ok(threads)
}

/// A path of the host below its root directory.
pub(crate) fn below(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_behind_a_name_with_brackets() {
        // Each field contains its own number.
        let rest: Vec<String> = (4..=52).map(|field: u32| field.to_string()).collect();
        let stat = format!("133 (a) b) (c) S {}", rest.join(" "));
        for number in [4, 22, 39, 52] {
            assert_eq!(stat_field::<usize>(&stat, number), Some(number));
        }
        assert_eq!(stat_field::<u64>(&stat, 53), None);
        assert_eq!(stat_field::<u64>("133 (cut) S 1", 22), None);
        assert_eq!(stat_field::<u64>("", 22), None);
    }
}
