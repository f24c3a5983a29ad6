//! The IDs of threads, and the files of threads below a root directory.

use crate::Root;
use std::path::{Path, PathBuf};

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

/// A path of the host below its root directory.
pub(crate) fn below(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}
